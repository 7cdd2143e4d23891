"""Where a command writes its result: standard output, or the file of `-o`."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from tessera.errors import TesseraError
from tessera.files import replace_text


@contextmanager
def destination(path: str | None) -> Iterator[TextIO]:
    """A stream to write to; a file is replaced only when the result is complete."""
    if path is None or path == "-":
        yield sys.stdout
        return
    text = io.StringIO()
    yield text
    try:
        replace_text(Path(path), text.getvalue())
    except OSError as error:
        raise TesseraError(f"cannot write the output: {error.strerror}", got=path) from None
