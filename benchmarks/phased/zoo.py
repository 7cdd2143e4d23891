"""Exactness of public networks under every schedule, with a quarter of their weights as the budget.

The networks come from packages on PyPI, installed in an environment of their own (benchmarks/.zoo). Each has a small
configuration and random weights, runs three passes, and is compared with plain torch: bit-equal or within 1e-6 of the
largest value; within 1e-4 for `data-parallel`, which may split a mini-batch. If a quarter of the weights is less than
the memory of the two largest modules in a row, the budget is that memory.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".zoo"
PACKAGES = """
    timm torchvision diffusers transformers huggingface_hub pyyaml tqdm requests regex tokenizers filelock packaging
    typing_extensions httpx httpcore h11 anyio sniffio certifi idna charset_normalizer urllib3 importlib_metadata zipp
    hf_xet shellingham typer click pillow einops
""".split()  # noqa: SIM905
TIME_LIMIT_SECONDS = 240.0  # per network
SMALL_SCHEDULES = "overlapped"


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    python = _prepare_environment(say)
    results = list(_run_networks(python, say, SMALL_SCHEDULES if small else ""))
    counts = Counter(result["verdict"] for result in results)
    runnable = len(results) - counts["not runnable"]
    lines = [
        f"{runnable} public networks under every schedule: {counts['exact']} exact, {counts['wrong']} wrong,"
        f" {counts['crashed']} failed; {counts['not runnable']} do not run in plain torch here"
    ]
    lines += [f"  {r['verdict']}: {r['name']}: {r['detail']}" for r in results if r["verdict"] != "exact"]
    return {"results": results, "lines": lines}


def _prepare_environment(say: Callable[[str], None]) -> Path:
    """Install the packages, without their dependencies, beside the torch of this interpreter."""
    python = Path(os.environ.get("TESSERA_ZOO_PYTHON", ENVIRONMENT / "bin" / "python"))
    if not python.exists():
        say(f"installing {len(PACKAGES)} packages into {ENVIRONMENT.name}")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        Path(site, "tessera.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT.parent / 'src'}\n")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
    return python


def _run_networks(python: Path, say: Callable[[str], None], schedules: str) -> Iterator[dict[str, Any]]:
    """Yield the result of every network; a network that crashes or hangs ends its process, and a new one goes on."""
    skip = 0
    path = os.pathsep.join([str(ROOT), str(ROOT.parent / "src"), os.environ.get("PYTHONPATH", "")])
    while True:
        process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("zoo_worker.py")), str(skip), *filter(None, [schedules])],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        )
        assert process.stdout is not None
        while select.select([process.stdout], [], [], TIME_LIMIT_SECONDS)[0]:
            line = process.stdout.readline()
            if not line:
                break
            if not line.startswith("{"):
                continue
            result = json.loads(line)
            if result.get("finished"):
                process.wait()
                return
            skip += 1
            if result["verdict"] in ("wrong", "crashed"):
                say(f"{result['verdict']}: {result['name']}: {result['detail']}")
            yield result
        process.kill()
        process.wait()
        skip += 1
        yield {"name": f"network {skip}", "verdict": "crashed", "detail": "process ended or took too long"}
