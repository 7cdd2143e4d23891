"""Tests of machine files: calibrated hosts are stored and found by fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.machine import load_host, load_machine, load_machines, save_host
from tessera.machine.catalogue import get_data_home, get_host_path

MACHINE = load_machine("grayskull-e150")
FINGERPRINT = "AMD EPYC / 2 cores; kernel 6.1 ä\n"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "home"))


def test_a_saved_host_is_loaded() -> None:
    assert load_host(FINGERPRINT) is None
    save_host(MACHINE, FINGERPRINT)
    assert load_host(FINGERPRINT) == MACHINE
    assert load_machine("host", FINGERPRINT) == MACHINE
    assert next(iter(load_machines(FINGERPRINT))) == "host"
    assert load_host("another") is None


def test_saving_again_replaces_and_leaves_one_file() -> None:
    save_host(load_machine("ipu-m2000"), FINGERPRINT)
    path = save_host(MACHINE, FINGERPRINT)
    assert load_host(FINGERPRINT) == MACHINE
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("keep", [0, 10, 200, 600])
def test_a_truncated_file_is_an_error_with_a_remedy(keep: int) -> None:
    path = save_host(MACHINE, FINGERPRINT)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TesseraError, match="doctor --calibrate"):
        load_host(FINGERPRINT)


def test_a_file_of_another_host_is_not_used() -> None:
    path = save_host(MACHINE, "other")
    get_host_path(FINGERPRINT).write_bytes(path.read_bytes())
    with pytest.raises(TesseraError, match="to another host"):
        load_host(FINGERPRINT)


def test_a_host_needs_a_fingerprint() -> None:
    with pytest.raises(TesseraError, match="fingerprint"):
        save_host(MACHINE, "")


def test_the_directory_of_stored_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert get_data_home() == tmp_path / "home"
    monkeypatch.delenv("TESSERA_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert get_data_home() == tmp_path / "xdg" / "tessera"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert get_data_home() == tmp_path / "me" / ".local" / "share" / "tessera"


def test_an_unwritable_data_home_is_a_one_line_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "file"))
    with pytest.raises(TesseraError, match="cannot write"):
        save_host(MACHINE, FINGERPRINT)
