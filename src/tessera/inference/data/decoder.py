"""A process that decodes image files: `python -m tessera.inference.data.decoder CHANNELS HEIGHT WIDTH`.

A line of JSON on its input is the path of a file. Its answer is a byte (1: pixels, 0: why the file is broken), the
length of what follows and that. It ends with its input, so it cannot outlive the process that asks.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np

from tessera.inference.arrays import Array
from tessera.inference.data.decode import Broken, decode
from tessera.inference.data.resize import fitted

HEAD = struct.Struct("<BI")
PIXELS, BROKEN = 1, 0


def answer(path: Path, channels: int, height: int, width: int) -> tuple[int, bytes]:
    """The image of a file, fitted, as bytes in the order height x width x channels."""
    try:
        image: Array = np.ascontiguousarray(fitted(decode(path, channels), height, width))
    except Broken as error:
        return BROKEN, str(error).encode(errors="replace")
    except MemoryError:
        return BROKEN, b"too large for memory"
    return PIXELS, image.tobytes()


def main(argv: list[str]) -> None:
    channels, height, width = map(int, argv)
    output = sys.stdout.buffer
    for line in sys.stdin.buffer:
        kind, payload = answer(Path(json.loads(line)), channels, height, width)
        try:
            output.write(HEAD.pack(kind, len(payload)) + payload)
            output.flush()
        except BrokenPipeError:  # nobody waits for it any more
            sys.stderr.close()
            return


if __name__ == "__main__":
    main(sys.argv[1:])
