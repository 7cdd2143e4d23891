"""Exactness of public networks on split images: output, input gradient, weight gradients and buffers in float64.

The networks come from packages on PyPI, installed in an environment of their own (benchmarks/.zoo), and from checkouts
of public repositories in the folder TESSERA_ZOO_REPOSITORIES, if set. Every network runs unmodified, with random
weights and images, on in-process ranks of two meshes in training and evaluation mode, and is compared with the unsplit
network. Dropout and stochastic depth are switched off, because in-process ranks share one random generator; a network
that draws random numbers all the same is not comparable. Networks that compute in float32 inside are compared with
these casts made casts to float64.

Results are appended to benchmarks/.zoo/results.jsonl as they come, and an interrupted run continues there. The file is
deleted at the end. TESSERA_ZOO_MINUTES ends the run early; the number of networks that were not run is reported.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
PARTIAL_RESULTS = ENVIRONMENT / "results.jsonl"
TIME_LIMIT_SECONDS = 240.0  # without a result


def run(say: Callable[[str], None]) -> dict[str, Any]:
    python = prepare_environment(say)
    missing = _run_networks(python, say)
    results = _read_partial_results()
    PARTIAL_RESULTS.unlink()
    lines = list(_summarise(results)) + ([f"  not run, because the time was up: {len(missing)}"] if missing else [])
    return {"results": results, "not run": missing, "lines": lines}


def _summarise(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield counts in all and per family, the worst error of each family, and all runs that are not exact."""
    families: dict[str, list[dict[str, Any]]] = {"all": list(results)}
    for result in results:
        families.setdefault(result["name"].split()[0], []).append(result)
    yield f"{'family':20} networks  runs  exact  wrong  crashed  not comparable  not runnable unsplit  largest error"
    for family, runs in families.items():
        counts = Counter(result["verdict"] for result in runs)
        compared = [result for result in runs if result["verdict"] != "not runnable"]
        names = {result["name"] for result in compared}
        refused = {result["name"] for result in runs} - names
        worst = max((result["error"] for result in compared if result["verdict"] == "exact"), default=0.0)
        yield (
            f"{family:20} {len(names):8} {len(compared):5} {counts['exact']:6} {counts['wrong']:6}"
            f" {counts['crashed']:8} {counts['not comparable']:15} {len(refused):21} {worst:14.1e}"
        )
    for result in results:
        if result["verdict"] != "exact":
            yield f"  {result['verdict']}: {result['name']} {result['mesh']} {result['mode']}: {result['detail']}"


def _is_bad(result: dict[str, Any]) -> bool:
    return result["verdict"] in ("wrong", "crashed")


def prepare_environment(say: Callable[[str], None]) -> Path:
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


def _read_partial_results() -> list[dict[str, Any]]:
    if not PARTIAL_RESULTS.exists():
        return []
    return [json.loads(line) for line in PARTIAL_RESULTS.read_text().splitlines()]


def _run_networks(python: Path, say: Callable[[str], None]) -> list[str]:
    """Run the networks that have no results, and return the names of those for which the time did not suffice.

    A network that ends or stops its process is recorded, and a new process goes on.

    The last network with results may be incomplete, and is run again.
    """
    results = _read_partial_results()
    if results:
        say(f"continues after {results[-1]['name']}")
        kept = [result for result in results if result["name"] != results[-1]["name"]]
        PARTIAL_RESULTS.write_text("".join(json.dumps(result) + "\n" for result in kept))
    done = ENVIRONMENT / "done.txt"
    end = time.monotonic() + 60 * float(os.environ.get("TESSERA_ZOO_MINUTES", "inf"))
    finished, names = False, []
    while not finished:
        done.write_text("\n".join({result["name"] for result in _read_partial_results()}))
        process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("zoo_worker.py")), str(done)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        finished, name, reason = False, "", "ended its process"
        try:
            for message in _read_messages(process):
                name = message.get("begin", name)
                names = message.get("networks", names)
                finished = message.get("finished", False) or ("begin" in message and time.monotonic() > end)
                if finished:
                    break
                if "verdict" in message:
                    _store(message, say)
        except TimeoutError:
            reason = f"no result for {TIME_LIMIT_SECONDS:g} s"
        process.kill()
        process.wait()
        if not finished:
            if not name:
                raise RuntimeError("the process of the networks does not start; run zoo_worker.py to see why")
            _store({"name": name, "mesh": "", "mode": "", "verdict": "crashed", "detail": reason}, say)
    known = {result["name"] for result in _read_partial_results()}
    return [name for name in names if name not in known]


def _read_messages(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines of a process until it ends; raise TimeoutError if none comes in time."""
    assert process.stdout is not None
    pending = b""
    while True:
        if not select.select([process.stdout], [], [], TIME_LIMIT_SECONDS)[0]:
            raise TimeoutError
        block = os.read(process.stdout.fileno(), 65536)
        if not block:
            return
        *lines, pending = (pending + block).split(b"\n")
        yield from (json.loads(line) for line in lines if line.startswith(b"{"))


def _store(result: dict[str, Any], say: Callable[[str], None]) -> None:
    if _is_bad(result):
        say(f"{result['verdict']}: {result['name']} {result['mesh']} {result['mode']} {result['detail']}")
    with PARTIAL_RESULTS.open("a") as file:
        file.write(json.dumps(result) + "\n")
