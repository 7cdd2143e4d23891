"""Real image files for tests: binary PPM files, which need no library."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tessera.inference.arrays import Array


def write_image(path: Path, pixels: Array, comment: str = "") -> Path:
    """Height x width x 3, uint8."""
    height, width, _ = pixels.shape
    note = f"# {comment}\n" if comment else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"P6\n{note}{width} {height}\n255\n".encode() + pixels.tobytes())
    return path


def random_image(height: int, width: int) -> Array:
    return np.random.default_rng().integers(0, 256, (height, width, 3), np.uint8)


def tree(folder: Path, classes: int, images: int) -> list[Path]:
    """A folder for every class, as ImageNet has it, with images of unlike sizes."""
    rng = np.random.default_rng()
    return [
        write_image(folder / f"class{number}" / f"{image}.ppm", random_image(*rng.integers(20, 90, 2)))
        for number in range(classes)
        for image in range(images)
    ]


def torn(path: Path) -> Path:
    """A file that ends in the middle."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path
