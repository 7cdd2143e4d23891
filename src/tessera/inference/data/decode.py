"""Image files as pixels. Pillow reads them; binary PPM files, which are nothing but pixels, need no Pillow."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tessera.errors import MissingExtra
from tessera.inference.arrays import Array

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
PLAIN = ".ppm"
HEADER = re.compile(rb"P6(?:\s+|#[^\n]*\n)+(\d+)(?:\s+|#[^\n]*\n)+(\d+)(?:\s+|#[^\n]*\n)+255\s")
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # how bright red, green and blue are


class Broken(Exception):
    """A file that holds no image that can be read."""


def check_readable(paths: list[Path]) -> None:
    """Ask for Pillow before the run where a file needs it."""
    if any(path.suffix.lower() != PLAIN for path in paths) and find_spec("PIL") is None:
        raise MissingExtra("Pillow", "images")


def decode(path: Path, channels: int) -> Array:
    """The pixels of a file: height x width x channels, uint8; one channel is how bright they are."""
    colours = _plain(path) if path.suffix.lower() == PLAIN else _by_pillow(path)
    if channels == 1:
        grey: Array = np.rint(colours.astype(np.float32) @ GREY).astype(np.uint8)[..., None]
        return grey
    return colours


def _plain(path: Path) -> Array:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Broken(error.strerror or "cannot be read") from None
    header = HEADER.match(data)
    if header is None:
        raise Broken("no binary PPM file of 8 bits")
    width, height = int(header[1]), int(header[2])
    size = 3 * width * height
    if not size or len(data) - header.end() < size:
        raise Broken("truncated" if size else "empty")
    return np.frombuffer(data, np.uint8, size, header.end()).reshape(height, width, 3)


def _by_pillow(path: Path) -> Array:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow raises what its many readers raise: a broken file must not end the run
        raise Broken(str(error) or type(error).__name__) from None
