"""Build the device for tests, once: a directory for PYTHONPATH, in which torch finds the backend itself."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

SOURCES = Path(__file__).parent
ENTRY_POINT = "[torch.backends]\nstandin = tessera_standin:load\n"
METADATA = "Metadata-Version: 2.1\nName: tessera-standin\nVersion: 1\n"
BUILD_SECONDS = 600


def find_missing() -> str:
    """Return why the device cannot be built here; empty if it can."""
    if sys.platform != "linux":
        return "the device for tests requires Linux"
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        return "the device for tests requires a C++ compiler (g++, or the variable CXX)"
    return ""


@cache
def build() -> Path:
    """Build the device unless it was built before from the same files, and return its directory."""
    files = [SOURCES / "standin.cpp", SOURCES / "backend.py", Path(__file__)]
    texts = [file.read_bytes() for file in files] + [f"{version('torch')} {sys.version}".encode()]
    key = hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"tessera-standin-{os.getuid()}-{key}"
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory() as work:
        package, information = Path(work) / "tessera_standin", Path(work) / "tessera_standin-1.dist-info"
        package.mkdir()
        information.mkdir()
        (package / "__init__.py").write_bytes((SOURCES / "backend.py").read_bytes())
        (information / "METADATA").write_text(METADATA)
        (information / "entry_points.txt").write_text(ENTRY_POINT)
        _compile(SOURCES / "standin.cpp", package / "libstandin.so")
        ready = Path(tempfile.mkdtemp(prefix=f"{target.name}-"))
        shutil.copytree(work, ready, dirs_exist_ok=True)
        try:
            ready.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(ready)
    return target


def _compile(source: Path, library: Path) -> None:
    import torch

    root = Path(torch.__file__).parent
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", str(source)]
    command += [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}", f"-L{root / 'lib'}"]
    command += ["-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{root / 'lib'}", "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert done.returncode == 0, done.stderr[-4000:]


def make_environment(**settings: object) -> dict[str, str]:
    """Return the variables of a process in which torch has the device, with settings such as `operator_ns=1000`."""
    root = SOURCES.parents[2]
    path = [str(build()), str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]
    values = {f"STANDIN_{name.upper()}": str(value) for name, value in settings.items()}
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "OMP_NUM_THREADS": "1", **values}
