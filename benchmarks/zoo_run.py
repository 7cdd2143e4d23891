"""Run a zoo of public networks: prepare an environment with the packages, and run a worker process over all networks.

The packages are installed without dependencies beside the torch of this interpreter into benchmarks/.zoo;
TESSERA_ZOO_PYTHON names an interpreter that has them already. TESSERA_ZOO_REPOSITORIES names a folder with checkouts of
public repositories; without it their networks are left out.

A worker prints one JSON object per line: the names of all networks, the name of a network before its results, its
results, and the end. A network that ends or stops the process is recorded as crashed, and a new process continues with
the next one. Results are appended to benchmarks/.zoo/<zoo>.jsonl as they come, each with the commit of the code, and an
interrupted run continues there; the file is deleted at the end of a run. TESSERA_ZOO_MINUTES ends a run early.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
ENVIRONMENT = ROOT / ".zoo"
PACKAGES = """
    timm torchvision pytorchcv segmentation-models-pytorch monai diffusers ultralytics transformers accelerate
    huggingface_hub
    pyyaml tqdm requests regex tokenizers filelock packaging typing_extensions efficientnet_pytorch munch
    httpx httpcore httpx2 httpcore2 h11 anyio sniffio certifi idna charset_normalizer urllib3
    importlib_metadata zipp opencv-python-headless matplotlib pandas hf_xet shellingham typer click
    ultralytics-thop seaborn py-cpuinfo pillow einops contourpy cycler fonttools kiwisolver pyparsing
    python-dateutil six pytz truststore safetensors psutil
""".split()  # noqa: SIM905


def prepare_environment(say: Callable[[str], None]) -> Path:
    """Return an interpreter that has the packages of the networks; install them at the first call."""
    given = os.environ.get("TESSERA_ZOO_PYTHON")
    if given:
        return Path(given)
    python, done = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "installed"
    if not done.exists():
        say(f"installing {len(PACKAGES)} packages into {ENVIRONMENT.name}")
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        Path(site, "torch_beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
        done.touch()
    return python


def make_worker_env() -> dict[str, str]:
    """Build the environment variables of a worker: the benchmarks and the package of this checkout can be imported."""
    path = os.pathsep.join([str(ROOT), str(ROOT.parent / "src"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


@dataclass(frozen=True, slots=True)
class ZooRun:
    """A run over all networks of a zoo by a worker script, with the results so far on disk."""

    name: str
    worker: Path
    time_limit_seconds: float  # without a line of the worker
    say: Callable[[str], None]
    arguments: Sequence[str] = ()  # of the worker, after the file with the names of finished networks

    @property
    def partial_results(self) -> Path:
        return ENVIRONMENT / f"{self.name}.jsonl"

    def run(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the results of all networks, and the names of networks for which the time did not suffice."""
        python = prepare_environment(self.say)
        ENVIRONMENT.mkdir(exist_ok=True)
        missing = self._run_networks(python)
        results = self._read_results()
        self.partial_results.unlink(missing_ok=True)
        return results, missing

    def _run_networks(self, python: Path) -> list[str]:
        self._drop_last_network()
        done = ENVIRONMENT / f"{self.name}-done.txt"
        end = time.monotonic() + 60 * float(os.environ.get("TESSERA_ZOO_MINUTES", "inf"))
        commit = _describe_commit()
        finished, names = False, []
        while not finished:
            done.write_text("\n".join({result["name"] for result in self._read_results()}))
            process = subprocess.Popen(
                [str(python), str(self.worker), str(done), *self.arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=make_worker_env(),
            )
            name, reason = "", "ended its process"
            try:
                for message in self._read_messages(process):
                    name = message.get("begin", name)
                    names = message.get("networks", names)
                    finished = message.get("finished", False) or ("begin" in message and time.monotonic() > end)
                    if finished:
                        break
                    if "verdict" in message:
                        self._store(message | {"commit": commit})
            except TimeoutError:
                reason = f"no result for {self.time_limit_seconds:g} s"
            process.kill()
            process.wait()
            if not finished:
                if not name:
                    raise RuntimeError(f"the worker does not start; run {self.worker.name} to see why")
                self._store({"name": name, "verdict": "crashed", "detail": reason, "commit": commit})
        known = {result["name"] for result in self._read_results()}
        return [name for name in names if name not in known]

    def _drop_last_network(self) -> None:
        """Drop the results of the last network of an interrupted run: they may be incomplete."""
        results = self._read_results()
        if results:
            self.say(f"continues after {results[-1]['name']}")
            kept = [result for result in results if result["name"] != results[-1]["name"]]
            self.partial_results.write_text("".join(json.dumps(result) + "\n" for result in kept))

    def _read_results(self) -> list[dict[str, Any]]:
        if not self.partial_results.exists():
            return []
        return [json.loads(line) for line in self.partial_results.read_text().splitlines()]

    def _read_messages(self, process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
        """Yield the JSON lines of a process until it ends; raise TimeoutError if none comes in time."""
        assert process.stdout is not None
        pending = b""
        while True:
            if not select.select([process.stdout], [], [], self.time_limit_seconds)[0]:
                raise TimeoutError
            block = os.read(process.stdout.fileno(), 65536)
            if not block:
                return
            *lines, pending = (pending + block).split(b"\n")
            yield from (json.loads(line) for line in lines if line.startswith(b"{"))

    def _store(self, result: dict[str, Any]) -> None:
        if result["verdict"] in ("wrong", "crashed"):
            where = " ".join(filter(None, (result.get("mesh"), result.get("mode"))))
            self.say(f"{result['verdict']}: {result['name']} {where}: {result['detail']}")
        with self.partial_results.open("a") as file:
            file.write(json.dumps(result) + "\n")


def list_chosen(networks: dict[str, Any], argv: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the networks that a worker has to run, each announced by its name.

    `argv` has the file with the names of finished networks, then parts of names to choose from (default: all).
    """
    done, chosen = set(Path(argv[0]).read_text().split("\n")), argv[1:]
    print(json.dumps({"networks": list(networks)}), flush=True)
    for name, build in networks.items():
        if name not in done and (not chosen or any(part in name for part in chosen)):
            print(json.dumps({"begin": name}), flush=True)
            yield name, build
    print(json.dumps({"finished": True}), flush=True)


def _describe_commit() -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (" with changes" if git("status", "--porcelain", "../src") else "")
