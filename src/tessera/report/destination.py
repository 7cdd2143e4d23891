"""Where a command writes its result: standard output, or the file of `-o`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tessera.errors import TesseraError


@contextmanager
def destination(path: str | None) -> Iterator[TextIO]:
    """A stream to write to; a file is written only when the result is complete."""
    if path is None or path == "-":
        yield sys.stdout
        return
    text = io.StringIO()
    yield text
    try:
        Path(path).write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        raise TesseraError(f"cannot write the output: {error.strerror}", got=path) from None
