"""Tests of the atomic replacement of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tessera.files import replace_text


def test_a_new_file_has_default_permissions_and_an_old_file_keeps_its_own(tmp_path: Path) -> None:
    plain, replaced = tmp_path / "plain", tmp_path / "made"
    plain.touch()
    replace_text(replaced, "one")
    assert replaced.read_text() == "one"
    assert replaced.stat().st_mode == plain.stat().st_mode
    replaced.chmod(0o640)
    replace_text(replaced, "two")
    assert (replaced.read_text(), replaced.stat().st_mode & 0o777) == ("two", 0o640)
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "made"}


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    replace_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_devices_are_written_to_directly() -> None:
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

    def raise_disk_full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", raise_disk_full)
    with pytest.raises(OSError, match="No space"):
        replace_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]
