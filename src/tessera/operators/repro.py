"""A record's case as a program of one file that needs no Tessera: to send along with a bug report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.errors import TesseraError
from tessera.measure.allocator import allocator_env
from tessera.operators.backends import expression
from tessera.operators.inputs import COMPLEX
from tessera.operators.operator import Input
from tessera.operators.preparation import inputs_of
from tessera.operators.skews import SKEWS, takes
from tessera.results.record import Record

BACKENDS = ("torch", "compile", "numpy")

PROGRAM = '''\
"""Repeats {key}

Measured: {seconds} seconds (median) with {versions}.
"""

import os
import statistics
import sys
import time

SETTINGS = {settings}
if any(os.environ.get(name) != value for name, value in SETTINGS.items()):
    os.environ.update(SETTINGS)  # the allocator reads its settings when a process starts
    os.execv(sys.executable, [sys.executable, *sys.argv])

{imports}

rng = np.random.default_rng({seed})
{shapes}
{inputs}
{attributes}

{call}

call()
call()
times = []
until = time.perf_counter() + 1.0
while time.perf_counter() < until or len(times) < 3:
    begin = time.perf_counter()
    call()
    times.append(time.perf_counter() - begin)
print(f"{{statistics.median(times):.3e}} seconds (median of {{len(times)}})")
'''

FORWARD = "def call():\n    return {expression}"
COMPILED = "@torch.compile(fullgraph=True, dynamic=False)\ndef forward():\n    return {expression}"
BACKWARD = '''\
{forward}


def ends(result):
    """The outputs that a gradient can come back from."""
    parts = result if isinstance(result, (list, tuple)) else [result]
    return [part for part in parts if torch.is_tensor(part) and part.requires_grad]


outputs = ends(forward())
given = [torch.randn_like(output) for output in outputs]


def call():
    return torch.autograd.grad({roots}, [{names}], given, {retain}allow_unused=True)'''


def program(record: Record) -> str:
    """The Python program that repeats a record's case."""
    case = record.case
    backend = str(case.params.get("backend"))
    if backend not in BACKENDS or any(case.params.get(name) for name in ("source", "cache", "fusion")):
        allowed = f"cases of the catalogue on {', '.join(BACKENDS)}, with a hot cache, not fused"
        raise TesseraError("no program can be written for this case", got=case.key, allowed=allowed)
    operator, inputs, attributes = inputs_of(case)
    environment = record.environment
    time = record.metrics.get("time")
    libraries = environment.get("libraries", {})
    threads = int(environment.get("threads", 1))
    return PROGRAM.format(
        key=case.key,
        seconds=f"{time.value:.3e}" if time else "no",
        versions=", ".join(f"{name} {libraries[name]}" for name in ("torch", "numpy") if name in libraries),
        settings={"OMP_NUM_THREADS": str(threads), **allocator_env(str(environment.get("allocator", "steady")))},
        imports=_imports(backend, threads),
        seed=case.params["seed"],
        shapes=f"shapes = { {name: one.shape for name, one in inputs.items()} }",
        inputs="\n".join(_input(name, one, case.params, backend) for name, one in inputs.items()),
        attributes="\n".join(f"{name} = {value!r}" for name, value in attributes.items()),
        call=_call(expression(backend, operator.name), str(case.params["pass"]), inputs, backend),
    )


def _imports(backend: str, threads: int) -> str:
    if backend == "numpy":
        return "import numpy as np"
    lines = (
        "import numpy as np",
        "import torch",
        "import torch.nn.functional as F",
        f"\ntorch.set_num_threads({threads})",
    )
    return "\n".join(lines)


def _input(name: str, one: Input, params: Mapping[str, Any], backend: str) -> str:
    """The line that makes one input, drawn in the same order and rounded in the same way."""
    dtype = str(params["dtype"])
    drawn = f"(lambda shape: {one.draw.expression})({one.shape})"
    if one.kind == "complex":
        made = f"({drawn} + 1j * {drawn}).astype({COMPLEX.get(dtype, 'complex64')!r})"
    else:
        kept = {"bfloat16": "float32"}.get(dtype, dtype) if one.kind == "float" else one.kind
        made = f"np.asarray({drawn}).astype({kept!r})"
    skew = params.get("skew")
    if skew in SKEWS and takes(name, one.kind, one.shape, str(skew)):
        made = f"(lambda array: {SKEWS[skew]})({made}).astype({kept!r}, copy=False)"
    if backend == "numpy":
        return f"{name} = {made}"
    narrow = ".to(torch.bfloat16)" if dtype == "bfloat16" and one.kind == "float" else ""
    grad = ".requires_grad_()" if params["pass"] != "forward" and one.differentiable else ""
    return f"{name} = torch.from_numpy({made}){narrow}{grad}"


def _call(expression: str, which: str, inputs: Mapping[str, Input], backend: str) -> str:
    if which == "forward" and backend != "compile":
        return FORWARD.format(expression=expression)
    shape = COMPILED if backend == "compile" else FORWARD.replace("def call", "def forward")
    forward = shape.format(expression=expression)
    if which == "forward":
        return forward + "\n\n\ncall = forward"
    return BACKWARD.format(
        forward=forward,
        names=", ".join(name for name, one in inputs.items() if one.differentiable),
        roots="outputs" if which == "backward" else "ends(forward())",
        retain="retain_graph=True, " if which == "backward" else "",
    )
