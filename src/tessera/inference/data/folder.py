"""Real image files of a folder, or of a tree with a folder for every class, decoded by processes of their own."""

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
from tessera.inference.arrays import Array
from tessera.inference.data.decode import SUFFIXES, check_readable
from tessera.inference.data.decoder import HEAD, PIXELS

NAMED = 3  # broken files that are told by name
AHEAD = 4  # files that a decoder is asked for at a time: few enough for their paths to fit into a pipe


def image_files(folder: Path) -> list[Path]:
    """All image files below a folder, in the order of their paths."""
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise TesseraError("no image files in this folder", got=str(folder), allowed=SUFFIXES)
    check_readable(found)
    return found


class Decoder:
    """One process that decodes files in the order in which it is asked."""

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        channels, self._height, self._width = image_shape
        self._channels = channels
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tessera.inference.data.decoder", *map(str, image_shape)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def ask(self, path: Path) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(str(path)).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self) -> Array | str:
        """The next image (height x width x channels), or why its file is broken."""
        kind, size = HEAD.unpack(self._read(HEAD.size))
        payload = self._read(size)
        if kind != PIXELS:
            return payload.decode()
        return np.frombuffer(payload, np.uint8).reshape(self._height, self._width, self._channels)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(size)
        if len(data) < size:
            raise self._ended()
        return data

    def _ended(self) -> BenchmarkFailed:
        return BenchmarkFailed(f"a process that decodes images ended with exit code {self._process.wait()}")


class Folder:
    """The images of a folder, over and over; files that are broken are counted, told and left out from then on.

    Files go to the decoders in turn. With `ahead`, decoders work on the files to come while a batch is computed.
    """

    def __init__(
        self, folder: Path, batch_size: int, image_shape: tuple[int, int, int], *, workers: int, ahead: bool
    ) -> None:
        if image_shape[0] not in (1, 3):
            raise TesseraError("images have three colours, or one channel", got=f"{image_shape[0]} channels")
        self._files = image_files(folder)
        self._batch_size, self._shape, self._ahead = batch_size, image_shape, ahead
        self._broken: dict[Path, str] = {}
        self._paths = cycle(self._files)
        self._asked: deque[tuple[Path, Decoder]] = deque()
        self._decoders = [Decoder(image_shape) for _ in range(workers)]
        self._turns = cycle(self._decoders)

    def raw(self) -> Array:
        channels, height, width = self._shape
        batch = np.empty((self._batch_size, height, width, channels), np.uint8)
        filled = 0
        while filled < self._batch_size:
            self._ask(self._batch_size - filled)
            image = self._answer()
            if image is not None:
                batch[filled] = image
                filled += 1
        if self._ahead:
            self._ask(self._batch_size)
        return batch.transpose(0, 3, 1, 2)

    def notes(self) -> tuple[str, ...]:
        if not self._broken:
            return ()
        some = [f"{path.name} ({reason})" for path, reason in list(self._broken.items())[:NAMED]]
        more = f" and {len(self._broken) - NAMED} more" if len(self._broken) > NAMED else ""
        count = f"{len(self._broken)} of {len(self._files)} image files"
        return (f"{count} are broken and were skipped: {', '.join(some)}{more}",)

    def close(self) -> None:
        for decoder in self._decoders:
            decoder.close()

    def _ask(self, wanted: int) -> None:
        """Have no more files under way than are wanted, nor than the pipes of the decoders take.

        Without a sound file left that is refused, every time: who prepares several batches ahead asks again.
        """
        if len(self._broken) == len(self._files):
            path, reason = next(reversed(self._broken.items()))
            raise TesseraError("every image file of the folder is broken", got=f"{path}: {reason}")
        while len(self._asked) < min(wanted, AHEAD * len(self._decoders)):
            path = next(path for path in self._paths if path not in self._broken)
            decoder = next(self._turns)
            decoder.ask(path)
            self._asked.append((path, decoder))

    def _answer(self) -> Array | None:
        path, decoder = self._asked.popleft()
        found = decoder.answer()
        if not isinstance(found, str):
            return found
        self._broken[path] = found
        return None
