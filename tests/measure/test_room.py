"""Memory that a process can still take: of the machine, of its control groups, of its own limit."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.measure.room import available

GB = 1 << 30


def machine(root: Path, groups: str, **files: str) -> Path:
    """Files as the kernel has them, below a folder."""
    told = {"proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {20 * GB // 1024} kB\n", "proc/self/cgroup": groups}
    for path, text in (told | {f"sys/fs/cgroup/{path}": text for path, text in files.items()}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def group(path: str, limit: str, used: int, cache: int) -> dict[str, str]:
    return {
        f"{path}memory.max": f"{limit}\n",
        f"{path}memory.current": f"{used}\n",
        f"{path}memory.stat": f"anon 5\ninactive_file {cache}\n",
    }


def test_without_limits_it_is_what_the_machine_has(tmp_path):
    assert available(machine(tmp_path, "0::/\n")) == 20 * GB
    assert available(machine(tmp_path, "0::/a\n", **group("a/", "max", 5 * GB, 0))) == 20 * GB


def test_a_group_leaves_what_is_unused_or_can_be_given_back(tmp_path):
    assert available(machine(tmp_path, "0::/a\n", **group("a/", str(8 * GB), 5 * GB, GB))) == 4 * GB


def test_the_narrowest_of_nested_groups_counts(tmp_path):
    files = group("a/", str(4 * GB), 3 * GB, 0) | group("a/b/", str(8 * GB), GB, 0)
    assert available(machine(tmp_path, "0::/a/b\n", **files)) == GB


def test_a_container_sees_its_group_as_the_root(tmp_path):
    assert available(machine(tmp_path, "0::/docker/123\n", **group("", str(2 * GB), GB, 0))) == GB


def test_groups_of_the_first_version(tmp_path):
    files = {
        "memory/job/memory.limit_in_bytes": str(3 * GB),
        "memory/job/memory.usage_in_bytes": str(2 * GB),
        "memory/job/memory.stat": f"cache 7\ntotal_inactive_file {GB // 2}\n",
    }
    assert available(machine(tmp_path, "4:memory:/job\n2:cpu:/\n", **files)) == 3 * GB // 2


def test_a_group_that_is_over_its_limit_leaves_nothing(tmp_path):
    assert available(machine(tmp_path, "0::/a\n", **group("a/", str(GB), 2 * GB, 0))) == 0


def test_a_limit_of_addresses_is_seen():
    limit = 4 * GB
    code = "from tessera.measure.room import available; print(available())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert 0 < int(done.stdout) < limit


def test_a_real_group_is_seen():
    top = Path("/sys/fs/cgroup/memory")
    name, own = top / "tessera-test-of-room", "memory.limit_in_bytes"
    if not (top / own).exists():
        top = Path("/sys/fs/cgroup")
        name, own = top / "tessera-test-of-room", "memory.max"
    try:
        name.mkdir()
        (name / own).write_text(str(GB))
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        code = (
            f"import os; open('{name}/cgroup.procs', 'w').write(str(os.getpid()))\n"
            "from tessera.measure.room import available; print(available())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert GB // 2 < int(done.stdout) <= GB
    finally:
        name.rmdir()
