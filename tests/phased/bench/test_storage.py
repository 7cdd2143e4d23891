"""On what kind of storage a file lies."""

from __future__ import annotations

from pathlib import Path

from tessera.phased.bench.storage import file_system


def test_the_file_system_of_a_path_is_found(tmp_path: Path):
    mounts = tmp_path / "mounts"
    space = tmp_path / "a place"
    space.mkdir()
    mounts.write_text(
        f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n"
        f"/dev/vdb {str(space).replace(' ', chr(92) + '040')} xfs rw 0 0\n"
    )
    assert file_system(tmp_path / "file", mounts) == "tmpfs"
    assert file_system(space / "file", mounts) == "xfs"
    assert file_system(Path("/"), mounts) == "ext4"
    assert file_system(Path("/"), tmp_path / "none") == ""
