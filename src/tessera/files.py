"""Replace the content of files atomically."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Replace the content of a file atomically: after a failure, such as a full disk, the old file is unchanged.

    A path that is not a regular file, such as a terminal or a pipe, is written directly.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
        return
    target = path.resolve()
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _choose_mode(target))
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def _choose_mode(target: Path) -> int:
    """Return the mode of the existing file, else the umask default."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
