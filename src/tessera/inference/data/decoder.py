"""Decoder process for image files: `python -m tessera.inference.data.decoder CHANNELS HEIGHT WIDTH`.

A request is a line of JSON on stdin: the path of a file. A reply on stdout is a byte (1: pixels, 0: the file is
broken), the length of the payload, and the payload (pixels or an error text). The process ends when stdin closes, so it
cannot outlive its parent. Pillow decodes the files; binary PPM files are decoded without Pillow.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tessera.errors import MissingExtra
from tessera.inference.data.images import Array, crop_and_resize

REPLY_HEADER = struct.Struct("<BI")  # status, and length of the payload in bytes
STATUS_PIXELS, STATUS_BROKEN = 1, 0  # first byte of a reply
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
PPM_SUFFIX = ".ppm"
PPM_HEADER = re.compile(rb"P6(?:\s+|#[^\n]*\n)+(\d+)(?:\s+|#[^\n]*\n)+(\d+)(?:\s+|#[^\n]*\n)+255\s")
LUMINANCE_WEIGHTS = np.array([0.299, 0.587, 0.114], np.float32)  # weights of red, green and blue in the luminance


class BrokenImage(Exception):
    """Raised for an image file that cannot be decoded."""


def require_pillow(paths: list[Path]) -> None:
    """Raise MissingExtra if a file requires Pillow and Pillow is not installed."""
    if any(path.suffix.lower() != PPM_SUFFIX for path in paths) and find_spec("PIL") is None:
        raise MissingExtra("Pillow", "images")


def decode_image(path: Path, channels: int) -> Array:
    """Return the pixels of a file as uint8, height x width x channels. With `channels` 1 they are the luminance."""
    colours = _decode_ppm(path) if path.suffix.lower() == PPM_SUFFIX else _decode_with_pillow(path)
    if channels == 1:
        grey: Array = np.rint(colours.astype(np.float32) @ LUMINANCE_WEIGHTS).astype(np.uint8)[..., None]
        return grey
    return colours


def _decode_ppm(path: Path) -> Array:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BrokenImage(error.strerror or "cannot be read") from None
    header = PPM_HEADER.match(data)
    if header is None:
        raise BrokenImage("not a binary PPM file with 8 bits per channel")
    width, height = int(header[1]), int(header[2])
    size = 3 * width * height
    if not size or len(data) - header.end() < size:
        raise BrokenImage("truncated" if size else "empty")
    return np.frombuffer(data, np.uint8, size, header.end()).reshape(height, width, 3)


def _decode_with_pillow(path: Path) -> Array:
    from PIL import Image

    try:
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:  # Pillow's readers raise many types, and a broken file must not end the run
        raise BrokenImage(str(error) or type(error).__name__) from None


def decode_to_bytes(path: Path, channels: int, height: int, width: int) -> tuple[int, bytes]:
    """Decode, crop and resize a file; return the status byte and the payload of the reply.

    The payload is the pixels (height x width x channels, uint8), or an error text if the file is broken.
    """
    try:
        image: Array = np.ascontiguousarray(crop_and_resize(decode_image(path, channels), height, width))
    except BrokenImage as error:
        return STATUS_BROKEN, str(error).encode(errors="replace")
    except MemoryError:
        return STATUS_BROKEN, b"too large for memory"
    return STATUS_PIXELS, image.tobytes()


def answer_requests(argv: list[str]) -> None:
    """Answer the requests on stdin until it closes; `argv` is CHANNELS HEIGHT WIDTH."""
    channels, height, width = map(int, argv)
    output = sys.stdout.buffer
    for line in sys.stdin.buffer:
        kind, payload = decode_to_bytes(Path(json.loads(line)), channels, height, width)
        try:
            output.write(REPLY_HEADER.pack(kind, len(payload)) + payload)
            output.flush()
        except BrokenPipeError:  # the parent has ended
            sys.stderr.close()
            return


if __name__ == "__main__":
    answer_requests(sys.argv[1:])
