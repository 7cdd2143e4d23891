"""Tests of commands on two simulated hosts, connected by a link of 1 Gbit/s with a latency of 200 microseconds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.parallel.two_hosts import NotAllowed, TwoHosts

pytestmark = [pytest.mark.timeout(240), pytest.mark.ranks]

SPLIT = ("--num-spatial-parts", "2", "--slice-method", "vertical", "--transport", "gloo")


@pytest.fixture(scope="module")
def hosts() -> Iterator[TwoHosts]:
    try:
        with TwoHosts() as hosts:
            yield hosts
    except NotAllowed as why:
        pytest.skip(f"two hosts cannot be created here: {why}")


def test_the_simulated_network_has_its_delay(hosts: TwoHosts) -> None:
    assert 2 * hosts.delay <= hosts.measure_round_trip() < 50 * hosts.delay


def test_a_split_convolution_is_exact_across_hosts(hosts: TwoHosts, tmp_path: Path) -> None:
    words = ("--image-size", "37x50", "--in-channels", "3", "--out-channels", "4", "--kernel", "5", "--stride", "2")
    store = ("--store", str(tmp_path / "results.sqlite"))
    ends = hosts.torchrun(["tessera", "halo", "validate", *SPLIT, *words, *store], timeout=200)
    assert [end.returncode for end in ends] == [0, 0], ends
    for rank in (0, 1):
        assert f"Validation passed for rank: {rank}" in ends[0].stdout
    assert ends[1].stdout.strip() == "", "only rank 0 prints"


def test_ranks_of_a_host_share_memory_and_send_messages_to_the_other_host(hosts: TwoHosts, tmp_path: Path) -> None:
    words = ("--num-spatial-parts", "4", "--slice-method", "1x4", "--image-size", "37x50", "--in-channels", "3")
    words += ("--out-channels", "4", "--kernel", "5", "--store", str(tmp_path / "results.sqlite"), "--json")
    ends = hosts.torchrun(["tessera", "halo", "validate", *words], ranks_per_host=2, timeout=200)
    assert [end.returncode for end in ends] == [0, 0], ends
    (record,) = json.loads(ends[0].stdout)["records"]
    assert record["chosen"]["transport"] == "shm+gloo"
    assert record["verdict"] == "passed"
    assert record["metrics"]["error_pixels"]["value"] == 0


def test_the_exchange_is_timed_across_hosts(hosts: TwoHosts, tmp_path: Path) -> None:
    words = ("--image-size", "256", "--in-channels", "64", "--out-channels", "8", "--overlap", "none,recompute")
    few = ("--warmup", "2", "--iterations", "10", "--launches", "1", "--store", str(tmp_path / "results.sqlite"))
    ends = hosts.torchrun(["tessera", "halo", "compute", *SPLIT, *words, *few, "--json"], timeout=200)
    assert [end.returncode for end in ends] == [0, 0], ends
    records = json.loads(ends[0].stdout)["records"]
    assert [record["case"]["params"]["overlap"] for record in records] == ["none", "recompute"]
    wire = hosts.delay + 256 * 64 * 4 * 8 / hosts.rate
    for record in records:
        assert record["status"] == "ok", record["reason"]
        assert record["metrics"]["exchange"]["value"] >= wire, "faster than the wire"


def test_overlap_is_exact_across_hosts(hosts: TwoHosts) -> None:
    ends = hosts.torchrun(["tests.parallel.overlap_program"], timeout=200)
    assert [end.returncode for end in ends] == [0, 0], ends
    for end in ends:
        assert end.stdout.split() == ["none", "exact", "split", "exact", "recompute", "exact"]


def test_namespaces_are_removed_after_a_failure() -> None:
    names: tuple[str, ...] = ()
    try:
        with TwoHosts() as hosts:
            names = hosts.names
            hosts.torchrun(["no_such_module"], timeout=100)
            raise KeyError("in the middle")
    except NotAllowed as why:
        pytest.skip(f"two hosts cannot be made here: {why}")
    except KeyError:
        pass
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert names
    assert not any(name in listed for name in names)


def test_namespaces_of_a_killed_run_are_removed_by_the_next_run() -> None:
    with subprocess.Popen(["true"]) as dead:
        pass
    name = f"tessera-{dead.pid}-1a"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        pytest.skip("namespaces are not allowed here")
    with TwoHosts():
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert name not in listed
