"""Exactness of public networks on split images: output, input gradient, weight gradients and buffers in float64.

The networks come from packages on PyPI, installed in an environment of their own (benchmarks/.zoo). Every network runs
unmodified, with random weights and images, on in-process ranks of two meshes in training and evaluation mode, and is
compared with the unsplit network. Dropout and stochastic depth are switched off, because in-process ranks share one
random generator.
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
    timm torchvision segmentation-models-pytorch monai diffusers ultralytics transformers huggingface_hub
    pyyaml tqdm requests regex tokenizers filelock packaging typing_extensions efficientnet_pytorch munch
    httpx httpcore httpx2 httpcore2 h11 anyio sniffio certifi idna charset_normalizer urllib3
    importlib_metadata zipp opencv-python-headless matplotlib pandas hf_xet shellingham typer click
    ultralytics-thop seaborn py-cpuinfo pillow einops contourpy cycler fonttools kiwisolver pyparsing
    python-dateutil six pytz truststore
""".split()  # noqa: SIM905
TIME_LIMIT_SECONDS = 240.0  # per network and mode


def run(say: Callable[[str], None]) -> dict[str, Any]:
    python = _prepare_environment(say)
    results = list(_run_networks(python, say))
    counts = Counter(result["verdict"] for result in results)
    total = len(results)
    lines = [
        f"{total} runs of {len({result['name'] for result in results})} public networks on 1x2 and 2x2 ranks:"
        f" {counts['exact']} exact, {counts['wrong']} wrong, {counts['crashed']} crashed;"
        f" {counts['not runnable']} do not run unsplit"
    ]
    lines += [f"  {r['verdict']}: {r['name']} {r['mesh']} {r['mode']}: {r['detail']}" for r in results if _is_bad(r)]
    return {"results": results, "lines": lines}


def _is_bad(result: dict[str, Any]) -> bool:
    return result["verdict"] in ("wrong", "crashed")


def _prepare_environment(say: Callable[[str], None]) -> Path:
    """Install the packages, without their dependencies, beside the torch of this interpreter."""
    python = ENVIRONMENT / "bin" / "python"
    done = ENVIRONMENT / "installed"
    if not done.exists():
        say(f"installing {len(PACKAGES)} packages into {ENVIRONMENT.name}")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        paths = [sysconfig.get_path("purelib"), str(ROOT.parent / "src")]
        site = subprocess.run(
            [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        Path(site, "tessera.pth").write_text("\n".join(paths) + "\n")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
        done.touch()
    return python


def _run_networks(python: Path, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield the result of every network; a network that crashes or hangs ends its process, and a new one goes on."""
    skip = 0
    while True:
        process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("zoo_worker.py")), str(skip)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
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
            if _is_bad(result):
                say(f"{result['verdict']}: {result['name']} {result['mesh']} {result['mode']} {result['detail']}")
            yield result
        process.kill()
        process.wait()
        skip += 1
        say(f"run {skip} ended its process or took more than {TIME_LIMIT_SECONDS:g} s")
        yield {"name": f"run {skip}", "mesh": "", "mode": "", "verdict": "crashed", "detail": "process ended or hung"}
