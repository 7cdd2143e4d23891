"""What kind of storage a file lies on: a disk can be cold, a file system in memory cannot."""

from __future__ import annotations

from pathlib import Path

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")


def file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """The type of the file system that holds a file; empty where nobody says."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    here, found = path.resolve(), ("", "")
    for words in (line.split() for line in lines):
        if len(words) < 3:
            continue
        place = words[1].encode().decode("unicode_escape")  # blanks in a path are written as \040
        if here.is_relative_to(place) and len(place) >= len(found[0]):
            found = (place, words[2])
    return found[1]


def in_memory(path: Path) -> bool:
    """Whether reading the file is a copy within memory, whatever is done about the page cache."""
    return file_system(path) in IN_MEMORY
