"""Image files of a folder and its sub-folders, decoded by separate processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from itertools import cycle
from pathlib import Path

import numpy as np

from tessera.errors import BenchmarkFailed, TesseraError
from tessera.inference.data.decoder import IMAGE_SUFFIXES, REPLY_HEADER, STATUS_PIXELS, require_pillow
from tessera.inference.data.images import Array

MAX_LISTED_FILES = 3  # maximum number of broken files that a note lists
MAX_PENDING_PER_DECODER = 4  # maximum number of requested files: their paths must fit into the pipe buffer


def find_image_files(folder: Path) -> list[Path]:
    """Return all image files below a folder, sorted by path.

    Raises:
        TesseraError: the folder has no image files.
    """
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if not paths:
        raise TesseraError("the folder has no image files", got=str(folder), allowed=IMAGE_SUFFIXES)
    require_pillow(paths)
    return paths


class DecoderProcess:
    """A process that decodes files in the order of the requests (see `data.decoder`)."""

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        channels, self._height, self._width = image_shape
        self._channels = channels
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tessera.inference.data.decoder", *map(str, image_shape)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def request(self, path: Path) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(str(path)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._build_error() from None

    def receive(self) -> Array | str:
        """Return the next image (height x width x channels), or the reason why its file is broken."""
        kind, size = REPLY_HEADER.unpack(self._read(REPLY_HEADER.size))
        payload = self._read(size)
        if kind != STATUS_PIXELS:
            return payload.decode()
        return np.frombuffer(payload, np.uint8).reshape(self._height, self._width, self._channels)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise self._build_error()
        return data

    def _build_error(self) -> BenchmarkFailed:
        return BenchmarkFailed(f"a process that decodes images ended with exit code {self._process.wait()}")


class ImageFolder:
    """An image source that cycles through the files of a folder. Broken files are skipped and listed in a note.

    Files are distributed round-robin over the decoder processes. With `ahead`, the decoders decode the next batch
    while the engine computes the current one.
    """

    def __init__(
        self, folder: Path, batch_size: int, image_shape: tuple[int, int, int], *, workers: int, ahead: bool
    ) -> None:
        if image_shape[0] not in (1, 3):
            raise TesseraError(
                "a folder of images requires a network with 1 or 3 input channels", got=f"{image_shape[0]} channels"
            )
        self._files = find_image_files(folder)
        self._batch_size, self._shape, self._ahead = batch_size, image_shape, ahead
        self._broken: dict[Path, str] = {}
        self._read: set[Path] = set()
        self._paths = cycle(self._files)
        self._pending: deque[tuple[Path, DecoderProcess]] = deque()
        self._decoders = [DecoderProcess(image_shape) for _ in range(workers)]
        self._turns = cycle(self._decoders)

    def read_batch(self) -> Array:
        channels, height, width = self._shape
        batch = np.empty((self._batch_size, height, width, channels), np.uint8)
        filled = 0
        while filled < self._batch_size:
            self._request_files(self._batch_size - filled)
            image = self._receive_image()
            if image is not None:
                batch[filled] = image
                filled += 1
        if self._ahead:
            self._request_files(self._batch_size)
        return batch.transpose(0, 3, 1, 2)

    def notes(self) -> tuple[str, ...]:
        if not self._broken:
            return ()
        some = [f"{path.name} ({reason})" for path, reason in list(self._broken.items())[:MAX_LISTED_FILES]]
        more = f" and {len(self._broken) - MAX_LISTED_FILES} more" if len(self._broken) > MAX_LISTED_FILES else ""
        count = f"{len(self._broken)} of the {len(self._read)} image files that were read"
        return (f"{count} are broken and were skipped: {', '.join(some)}{more}",)

    def close(self) -> None:
        for decoder in self._decoders:
            decoder.close()

    def _request_files(self, wanted: int) -> None:
        """Request files until `wanted` files are pending, or the pipes of the decoders are full.

        Raises:
            TesseraError: every file is broken. Later calls raise it again, because several threads prefetch batches.
        """
        if len(self._broken) == len(self._files):
            path, reason = next(reversed(self._broken.items()))
            raise TesseraError("every image file of the folder is broken", got=f"{path}: {reason}")
        while len(self._pending) < min(wanted, MAX_PENDING_PER_DECODER * len(self._decoders)):
            path = next(path for path in self._paths if path not in self._broken)
            decoder = next(self._turns)
            decoder.request(path)
            self._pending.append((path, decoder))

    def _receive_image(self) -> Array | None:
        path, decoder = self._pending.popleft()
        reply = decoder.receive()
        self._read.add(path)
        if not isinstance(reply, str):
            return reply
        self._broken[path] = reply
        return None
