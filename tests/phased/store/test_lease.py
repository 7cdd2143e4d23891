"""Tests of the lease: a program that truncates a mapped file waits for the current phase; the next phase fails."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import TesseraError
from tessera.phased.store.lease import FileLease
from tessera.phased.store.weights_file import WeightsFile

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def file(tmp_path):
    save_file({"a": torch.randn(5000)}, tmp_path / "w")
    opened = WeightsFile(tmp_path / "w")
    yield opened
    opened.close()


@pytest.fixture
def lease(file):
    lease = FileLease(file, file.fd)
    if not lease.held:
        pytest.skip("no leases on this file system")
    yield lease
    lease.close()


def truncate(file: WeightsFile) -> subprocess.Popen[bytes]:
    """Start another process that truncates the file."""
    return subprocess.Popen(["sh", "-c", 'head -c 100 /dev/zero > "$0"', str(file.path)])


def use_for_long(lease: FileLease) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with lease.hold():
            time.sleep(0.01)


def test_truncation_waits_until_the_file_is_not_in_use(file, lease):
    with lease.hold():
        with lease.hold():
            program = truncate(file)
        time.sleep(0.3)
        assert program.poll() is None
        assert file.path.stat().st_size > 20_000
    assert program.wait(10) == 0
    assert file.path.stat().st_size == 100
    with pytest.raises(TesseraError, match="changed while it was in use"), lease.hold():
        pass


def test_truncation_of_an_unused_file_does_not_wait(file, lease):
    assert truncate(file).wait(10) == 0
    with pytest.raises(TesseraError, match="changed while it was in use"), lease.hold():
        pass


def test_no_use_begins_while_another_program_waits(file, lease):
    with lease.hold():
        program = truncate(file)
        with pytest.raises(TesseraError, match="changed while it was in use"):
            use_for_long(lease)
        assert file.path.stat().st_size > 20_000  # the file is not truncated yet
    assert program.wait(10) == 0


def test_closing_releases_the_lease_and_ends_the_thread(file):
    lease = FileLease(file, file.fd)
    lease.close()
    lease.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "tessera-lease"]
    assert truncate(file).wait(10) == 0


def test_without_a_lease_the_file_is_checked_before_every_use(file):
    with file.path.open("r+b") as writer:  # the kernel grants no lease while the file is open for writing
        lease = FileLease(file, file.fd)
        assert not lease.held
        with lease.hold():
            pass
        writer.truncate(100)
        with pytest.raises(TesseraError, match="changed while it was in use"), lease.hold():
            pass
        lease.close()
