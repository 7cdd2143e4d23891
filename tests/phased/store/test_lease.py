"""A file that is mapped is not cut off under a phase: whoever wants to waits for it, and the next one is an error."""

from __future__ import annotations

import subprocess
import threading
import time

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import TesseraError
from tessera.phased.store.lease import Lease
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
    found = Lease(file, file.fd)
    if not found.held:
        pytest.skip("no leases on this file system")
    yield found
    found.close()


def cut_off(file: WeightsFile) -> subprocess.Popen[bytes]:
    """Another program that cuts the file off."""
    return subprocess.Popen(["sh", "-c", 'head -c 100 /dev/zero > "$0"', str(file.path)])


def use_for_long(lease: Lease) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with lease.in_use():
            time.sleep(0.01)


def test_who_cuts_a_file_off_waits_for_those_who_use_it(file, lease):
    with lease.in_use():
        with lease.in_use():
            other = cut_off(file)
        time.sleep(0.3)
        assert other.poll() is None
        assert file.path.stat().st_size > 20_000
    assert other.wait(10) == 0
    assert file.path.stat().st_size == 100
    with pytest.raises(TesseraError, match="changed under the run"), lease.in_use():
        pass


def test_nobody_waits_for_a_file_that_is_not_in_use(file, lease):
    assert cut_off(file).wait(10) == 0
    with pytest.raises(TesseraError, match="changed under the run"), lease.in_use():
        pass


def test_nobody_begins_while_another_program_waits(file, lease):
    with lease.in_use():
        other = cut_off(file)
        with pytest.raises(TesseraError, match="changed under the run"):
            use_for_long(lease)
        assert file.path.stat().st_size > 20_000  # it was not cut off yet: nothing was lost
    assert other.wait(10) == 0


def test_closing_gives_the_file_back_and_ends_the_thread(file):
    lease = Lease(file, file.fd)
    lease.close()
    lease.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "tessera-lease"]
    assert cut_off(file).wait(10) == 0


def test_without_a_lease_the_file_is_looked_at_before_every_use(file):
    with file.path.open("r+b") as writer:  # which nobody can take a lease beside
        lease = Lease(file, file.fd)
        assert not lease.held
        with lease.in_use():
            pass
        writer.truncate(100)
        with pytest.raises(TesseraError, match="changed under the run"), lease.in_use():
            pass
        lease.close()
