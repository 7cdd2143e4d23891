"""The same command on two hosts, which are two network namespaces with a wire of 200 microseconds and 1 Gbit/s."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parallel.two_hosts import NotAllowed, TwoHosts

pytestmark = [pytest.mark.timeout(240), pytest.mark.ranks]

CUT = ("--num-spatial-parts", "2", "--slice-method", "vertical", "--transport", "gloo")


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    try:
        with TwoHosts() as made:
            yield made
    except NotAllowed as why:
        pytest.skip(f"two hosts cannot be made here: {why}")


def test_the_wire_is_slow(hosts: TwoHosts) -> None:
    assert 2 * hosts.delay <= hosts.round_trip() < 50 * hosts.delay


def test_a_cut_convolution_is_exact_across_hosts(hosts: TwoHosts, tmp_path: Path) -> None:
    words = ("--image-size", "37x50", "--in-channels", "3", "--out-channels", "4", "--kernel", "5", "--stride", "2")
    store = ("--store", str(tmp_path / "results.sqlite"))
    ends = hosts.torchrun(["tessera", "halo", "validate", *CUT, *words, *store], timeout=200)
    assert [end.returncode for end in ends] == [0, 0], ends
    for rank in (0, 1):
        assert f"Validation passed for rank: {rank}" in ends[0].stdout
    assert ends[1].stdout.strip() == "", "one rank speaks for all"


def test_the_exchange_is_timed_across_hosts(hosts: TwoHosts, tmp_path: Path) -> None:
    words = ("--image-size", "256", "--in-channels", "64", "--out-channels", "8", "--overlap", "none,recompute")
    few = ("--warmup", "2", "--iterations", "10", "--launches", "1", "--store", str(tmp_path / "results.sqlite"))
    ends = hosts.torchrun(["tessera", "halo", "compute", *CUT, *words, *few, "--json"], timeout=200)
    assert [end.returncode for end in ends] == [0, 0], ends
    records = json.loads(ends[0].stdout)["records"]
    assert [record["case"]["params"]["overlap"] for record in records] == ["none", "recompute"]
    wire = hosts.delay + 256 * 64 * 4 * 8 / hosts.rate
    for record in records:
        assert record["status"] == "ok", record["reason"]
        assert record["metrics"]["exchange"]["value"] >= wire, "faster than the wire"


def test_nothing_is_left_behind_even_after_a_failure() -> None:
    names: tuple[str, ...] = ()
    try:
        with TwoHosts() as made:
            names = made.names
            made.torchrun(["no_such_module"], timeout=100)
            raise KeyError("in the middle")
    except NotAllowed as why:
        pytest.skip(f"two hosts cannot be made here: {why}")
    except KeyError:
        pass
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert names
    assert not any(name in listed for name in names)


def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    name = f"tessera-{dead.pid}-1a"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are not allowed here")
    with TwoHosts():
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert name not in listed
