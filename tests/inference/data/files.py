"""Test helpers that write image files: binary PPM files, which require no library."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tessera.inference.data.images import Array


def write_image(path: Path, pixels: Array, comment: str = "") -> Path:
    """Write pixels (height x width x 3, uint8) to a binary PPM file."""
    height, width, _ = pixels.shape
    note = f"# {comment}\n" if comment else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"P6\n{note}{width} {height}\n255\n".encode() + pixels.tobytes())
    return path


def draw_image(height: int, width: int) -> Array:
    return np.random.default_rng().integers(0, 256, (height, width, 3), np.uint8)


def write_image_tree(folder: Path, classes: int, images: int) -> list[Path]:
    """Write images of random sizes in one folder per class, as in ImageNet."""
    rng = np.random.default_rng()
    return [
        write_image(folder / f"class{number}" / f"{image}.ppm", draw_image(*rng.integers(20, 90, 2)))
        for number in range(classes)
        for image in range(images)
    ]


def truncate_file(path: Path) -> Path:
    """Truncate a file to half its size."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path
