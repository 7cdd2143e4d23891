"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tessera.files import replace_text


def test_a_new_file_has_the_usual_rights_and_an_old_one_keeps_its_own(tmp_path: Path) -> None:
    plain, made = tmp_path / "plain", tmp_path / "made"
    plain.touch()
    replace_text(made, "one")
    assert made.read_text() == "one"
    assert made.stat().st_mode == plain.stat().st_mode
    made.chmod(0o640)
    replace_text(made, "two")
    assert (made.read_text(), made.stat().st_mode & 0o777) == ("two", 0o640)
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "made"}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    replace_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_what_is_no_file_is_written_to() -> None:
    reading, writing = os.pipe()
    try:
        replace_text(Path(f"/dev/fd/{writing}"), "through a pipe")
        assert os.read(reading, 100) == b"through a pipe"
    finally:
        os.close(reading)
        os.close(writing)


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kept"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
