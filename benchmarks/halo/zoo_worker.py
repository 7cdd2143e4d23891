"""Compare public networks on split images with the unsplit networks; prints one line of JSON per run.

Runs in the environment that `zoo_run` prepares. The first argument is a file with the names of networks to leave out;
further arguments are parts of the names of networks to run.
"""

from __future__ import annotations

import copy
import json
import math
import os
import sys
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from zoo_run import list_chosen

from halo.zoo_networks import Build, list_networks
from tessera.spatial import parallelize
from tessera.spatial.tensor.explanation import Explanation
from tessera.transport.in_process import InProcessTransport, run_ranks

TOLERANCE = 1e-9
MESHES = {"1x2": 2, "2x2": 4}
MODES = ("train", "eval")


class KeepDoublePrecision(TorchFunctionMode):
    """Make casts to float32 inside of a network casts to float64, because float32 rounds at 1e-7."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def widen(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        named = {name: widen(value) for name, value in (kwargs or {}).items()}
        return (Tensor.double if func is Tensor.float else func)(*map(widen, args), **named)


def switch_off_random_parts(network: nn.Module) -> None:
    for module in network.modules():
        if isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
            module.p = 0.0
        for name in ("drop_prob", "drop_path_prob", "p", "dropout", "dropout_p", "dropout_prob"):
            if isinstance(getattr(module, name, None), float) and type(module).__module__.split(".")[0] != "torch":
                setattr(module, name, 0.0)
        if hasattr(module, "_global_params"):  # efficientnet_pytorch and MONAI
            module._global_params = module._global_params._replace(drop_connect_rate=0.0)
        if hasattr(module, "drop_connect_rate"):
            module.drop_connect_rate = 0.0


def collect_outputs(output: Any) -> list[Tensor]:
    if hasattr(output, "to_tuple"):
        output = output.to_tuple()
    return [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def run_step(network: Any, image: Tensor, rest: tuple[Any, ...], gather: Callable[[Any], Any]) -> dict[str, Tensor]:
    """Run forward and backward; return outputs and gradients by name."""
    leaf = image.clone().requires_grad_()
    outputs = [gather(output) for output in collect_outputs(network(leaf, *rest))]
    generator = torch.Generator().manual_seed(5)
    total: Any = 0
    for output in outputs:
        if output.requires_grad:
            total = total + (output * torch.randn(output.shape, dtype=output.dtype, generator=generator)).sum()
    if isinstance(total, Tensor):
        total.backward()
    tensors = {f"output {number}": output.detach() for number, output in enumerate(outputs)}
    if leaf.grad is not None:
        tensors["gradient of the image"] = leaf.grad
    tensors |= {f"gradient of {n}": w.grad for n, w in network.named_parameters() if w.grad is not None}
    return tensors | {n: b for n, b in network.named_buffers() if b.is_floating_point()}


def compute_error(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> tuple[float, str]:
    """Return the largest error, relative to the largest value of each tensor or 1, and its tensor."""
    if actual.keys() != expected.keys():
        return math.inf, f"other tensors: {sorted(actual.keys() ^ expected.keys())[:3]}"
    worst = (0.0, "")
    for name, wanted in expected.items():
        got = actual[name]
        if got.shape != wanted.shape or got.dtype != wanted.dtype:
            return math.inf, name
        if wanted.numel() == 0:
            continue
        error = (got - wanted).abs().max().item() / max(1.0, wanted.abs().max().item())
        if not error <= worst[0]:
            worst = (error, name)
    return worst


def describe_error(error: BaseException) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).splitlines()[:1] or [""]
    return f"{type(error).__name__}: {text[0][:300]} at {Path(place.filename).name}:{place.lineno}"


def compare_all(name: str, build: Build) -> list[dict[str, Any]]:
    """Build a network once and return its results on all meshes in all modes."""
    torch.manual_seed(zlib.crc32(name.encode()))
    try:
        network, (image, *others) = build()
        network = network.double()
        switch_off_random_parts(network)
    except Exception as error:
        return [{"mesh": "", "mode": "", "verdict": "not runnable", "detail": f"not built: {describe_error(error)}"}]
    case = Case(network, image.double(), tuple(others))
    results = compare_meshes(case)
    if any(result["verdict"] != "exact" for result in results):
        # Perhaps the network computes in float32 inside, or mixes dtypes.
        torch.set_default_dtype(torch.float64)
        again = [result | {"casts": "float64"} for result in compare_meshes(replace(case, keeps_double=True))]
        torch.set_default_dtype(torch.float32)
        if any(result["verdict"] != "not runnable" for result in again):
            return again
    return results


@dataclass(frozen=True, slots=True)
class Case:
    """A network with the arguments of its forward. With `keeps_double`, its casts to float32 are ignored."""

    network: nn.Module
    image: Tensor
    rest: tuple[Any, ...]
    keeps_double: bool = False

    def run(self, network: nn.Module, image: Tensor, gather: Callable[[Any], Any] = lambda output: output) -> Any:
        with KeepDoublePrecision() if self.keeps_double else nullcontext():
            return run_step(network, image, self.rest, gather)


def compare_meshes(case: Case) -> list[dict[str, Any]]:
    expected: dict[str, dict[str, Tensor]] = {}
    results = []
    for mode in MODES:
        try:
            expected[mode] = case.run(copy.deepcopy(case.network).train(mode == "train"), case.image)
        except Exception as error:
            results.append({"mesh": "", "mode": mode, "verdict": "not runnable", "detail": describe_error(error)})
    for mesh in MESHES:
        together = compare(case, expected, mesh)
        for mode in expected:
            # A network that fails, or keeps state from one mode to the next, is compared in every mode by itself.
            is_exact = all(result["verdict"] == "exact" for result in together)
            results += together if is_exact else compare(case, {mode: expected[mode]}, mesh)
            if is_exact:
                break
    return results


def compare(case: Case, expected: dict[str, dict[str, Tensor]], mesh: str) -> list[dict[str, Any]]:
    """Compare one network on one mesh with the unsplit results of some modes; return the verdicts with details."""
    about: dict[str, Any] = {}

    def run_rank(transport: InProcessTransport) -> list[tuple[float, str]]:
        parallel = parallelize(copy.deepcopy(case.network), mesh, transport=transport, broadcast=False)
        buffers = {name: buffer.clone() for name, buffer in parallel.named_buffers()}
        errors = []
        for mode in expected:
            parallel.train(mode == "train")
            log, is_logged = parallel.group.log, transport.rank == 0 and mode == "eval"
            with log.record(parallel.model) if is_logged else nullcontext():
                actual = case.run(parallel, case.image, parallel.gather)
            if is_logged:
                explanation = Explanation(log.take(), parallel.group.mesh)
                about["ways"] = {way: explanation.count(way) for way in ("split", "moved", "whole")}
                names = Counter(f"{o.name} {o.way}" for o in explanation.operations if o.way != "split")
                about["whole"] = dict(names.most_common(12))
            errors.append(compute_error(actual, expected[mode]))
            parallel.zero_grad()
            for name, buffer in parallel.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])
        return errors

    try:
        errors = [max(pairs) for pairs in zip(*run_ranks(MESHES[mesh], run_rank), strict=True)]
    except Exception as caught:
        return [
            {"mesh": mesh, "mode": mode, "verdict": "crashed", "detail": describe_error(caught)} for mode in expected
        ]
    results = []
    for mode, (error, where) in zip(expected, errors, strict=True):
        sensitivity = 0.0
        if not error <= TOLERANCE:
            nudged = case.run(copy.deepcopy(case.network).train(mode == "train"), case.image * (1 + 1e-15))
            sensitivity, _ = compute_error(nudged, expected[mode])
        # A network that draws random numbers, or amplifies a change of the image by one part in 1e15 beyond the
        # tolerance, cannot be compared.
        verdict = "exact" if error <= TOLERANCE else "not comparable" if sensitivity > TOLERANCE / 100 else "wrong"
        result = {"mesh": mesh, "mode": mode, "verdict": verdict, "error": error}
        result |= {"detail": f"{error:.1e} {where}"} | ({"sensitivity": sensitivity} if sensitivity else {})
        results.append(result | (about if mode == "eval" else {}))
    return results


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for name, build in list_chosen(dict(list_networks()), sys.argv[1:]):
        began = time.process_time()
        for result in compare_all(name, build):
            print(json.dumps({"name": name} | result | {"cpu_seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
