"""Programs of a call that a model makes: the operator of torch itself, on tensors as the model gives it."""

from __future__ import annotations

from typing import Any

from tessera.operators.repro.torch_program import backward
from tessera.operators.repro.written import Written, literal
from tessera.operators.sources.arguments import below
from tessera.operators.sources.model import STATISTICS
from tessera.results.record import Case

IMPORTS = """\
import math

import torch

torch.set_num_threads({threads})"""
TENSORS = '''\
generator = torch.Generator().manual_seed({seed})


def tensor(shape, dtype, strides=None):
    """Floats between 0.1 and 1, integers that may be indices: below the shortest length of the others."""
    count = math.prod(shape) if strides is None else 1 + sum((n - 1) * step for n, step in zip(shape, strides))
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        values = torch.rand(count, generator=generator, dtype=wide).mul_(0.9).add_(0.1).to(dtype)
    else:
        values = torch.randint(2 if dtype is torch.bool else {below}, (count,), generator=generator).to(dtype)
    return values.reshape(shape) if strides is None else values.as_strided(shape, strides)


operator = torch.ops.{operator}
arguments = {arguments}
keywords = {keywords}
named = dict(zip((one.name for one in operator._schema.arguments), arguments)) | keywords'''
WRITES = '''\
written = [named.get(one.name) for one in operator._schema.arguments if one.alias_info and one.alias_info.is_write]
written = [one for one in written if torch.is_tensor(one)]
kept = [one.clone() for one in written]


def before():
    """Put back what calls have overwritten."""
    for one, values in zip(written, kept):
        one.copy_(values)'''
DIFFERENTIATED = """\
inputs = [
    part
    for name, value in named.items()
    if name not in {constant}
    for part in (value if isinstance(value, list) else [value])
    if torch.is_tensor(part) and (part.is_floating_point() or part.is_complex())
]
for part in inputs:
    part.requires_grad_()"""
CALL = "def {name}():\n    return operator(*arguments, **keywords)"


def write(case: Case, threads: int) -> Written:
    """One call, forward or backward by all of its floating-point tensors."""
    arguments, keywords = case.params["arguments"], case.params["keywords"]
    name = case.name if case.name.count(".") > 1 else f"{case.name}.default"
    made = TENSORS.format(
        seed=case.params["seed"],
        below=below([arguments, list(keywords.values())]),
        operator=name,
        arguments=_text(arguments),
        keywords="{" + ", ".join(f"{key!r}: {_text(value)}" for key, value in keywords.items()) + "}",
    )
    imports, which = IMPORTS.format(threads=threads), str(case.params["pass"])
    if which == "forward":
        parts = [made, WRITES, CALL.format(name="call")]
    else:
        differentiated = DIFFERENTIATED.format(constant=STATISTICS)
        parts = [made, differentiated, CALL.format(name="forward"), backward(which, "inputs")]
    return Written(imports=imports, body="\n\n\n".join(parts), before=which == "forward")


def _text(described: Any) -> str:
    """An argument as Python; see `sources.arguments` for how cases write them down.

    >>> _text([{"tensor": [64, 3], "dtype": "float32"}, None, {"device": "cpu"}])
    "[tensor((64, 3), torch.float32), None, torch.device('cpu')]"
    """
    if isinstance(described, list):
        return f"[{', '.join(map(_text, described))}]"
    if not isinstance(described, dict):
        return literal(described)
    if "tensor" in described:
        shape, strides = tuple(described["tensor"]), described.get("strides")
        return f"tensor({shape}, torch.{described['dtype']}" + (f", {tuple(strides)})" if strides else ")")
    ((kind, what),) = described.items()
    if kind == "complex":
        return repr(complex(*what))
    return f"torch.device({what!r})" if kind == "device" else f"torch.{what}"
