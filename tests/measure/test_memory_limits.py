"""Tests of the memory available to a process: limits of the machine, of control groups and of the address space."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.measure.memory_limits import get_available_bytes

GB = 1 << 30


def write_kernel_files(root: Path, groups: str, **files: str) -> Path:
    """Write copies of kernel files (`/proc`, `/sys`) below a directory, and return the directory."""
    kernel_files = {
        "proc/meminfo": f"MemTotal: 99 kB\nMemAvailable:   {20 * GB // 1024} kB\n",
        "proc/self/cgroup": groups,
    }
    for path, text in (kernel_files | {f"sys/fs/cgroup/{path}": text for path, text in files.items()}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def make_group_files(path: str, limit: str, used: int, cache: int) -> dict[str, str]:
    return {
        f"{path}memory.max": f"{limit}\n",
        f"{path}memory.current": f"{used}\n",
        f"{path}memory.stat": f"anon 5\ninactive_file {cache}\n",
    }


def test_without_limits_all_free_memory_is_available(tmp_path):
    assert get_available_bytes(write_kernel_files(tmp_path, "0::/\n")) == 20 * GB
    assert (
        get_available_bytes(write_kernel_files(tmp_path, "0::/a\n", **make_group_files("a/", "max", 5 * GB, 0)))
        == 20 * GB
    )


def test_unused_and_reclaimable_memory_of_a_group_is_available(tmp_path):
    assert (
        get_available_bytes(write_kernel_files(tmp_path, "0::/a\n", **make_group_files("a/", str(8 * GB), 5 * GB, GB)))
        == 4 * GB
    )


def test_the_smallest_limit_of_nested_groups_applies(tmp_path):
    files = make_group_files("a/", str(4 * GB), 3 * GB, 0) | make_group_files("a/b/", str(8 * GB), GB, 0)
    assert get_available_bytes(write_kernel_files(tmp_path, "0::/a/b\n", **files)) == GB


def test_a_container_sees_its_group_as_the_root(tmp_path):
    assert (
        get_available_bytes(
            write_kernel_files(tmp_path, "0::/docker/123\n", **make_group_files("", str(2 * GB), GB, 0))
        )
        == GB
    )


def test_control_groups_version_1(tmp_path):
    files = {
        "memory/job/memory.limit_in_bytes": str(3 * GB),
        "memory/job/memory.usage_in_bytes": str(2 * GB),
        "memory/job/memory.stat": f"cache 7\ntotal_inactive_file {GB // 2}\n",
    }
    assert get_available_bytes(write_kernel_files(tmp_path, "4:memory:/job\n2:cpu:/\n", **files)) == 3 * GB // 2


def test_a_group_over_its_limit_has_no_available_memory(tmp_path):
    assert (
        get_available_bytes(write_kernel_files(tmp_path, "0::/a\n", **make_group_files("a/", str(GB), 2 * GB, 0))) == 0
    )


def test_the_address_space_limit_applies():
    limit = 4 * GB
    code = "from tessera.measure.memory_limits import get_available_bytes; print(get_available_bytes())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert 0 < int(done.stdout) < limit


def test_a_real_control_group():
    top = Path("/sys/fs/cgroup/memory")
    name, limit_file = top / "tessera-test-memory-limits", "memory.limit_in_bytes"
    if not (top / limit_file).exists():
        top = Path("/sys/fs/cgroup")
        name, limit_file = top / "tessera-test-memory-limits", "memory.max"
    try:
        name.mkdir()
        (name / limit_file).write_text(str(GB))
    except OSError as error:
        pytest.skip(f"control groups cannot be made here: {error}")
    try:
        code = (
            f"import os; open('{name}/cgroup.procs', 'w').write(str(os.getpid()))\n"
            "from tessera.measure.memory_limits import get_available_bytes; print(get_available_bytes())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert GB // 2 < int(done.stdout) <= GB
    finally:
        name.rmdir()
