"""Writer of programs for one operator call of a model, on tensors with the captured shapes and strides."""

from __future__ import annotations

from typing import Any

import torch

from tessera.errors import TesseraError
from tessera.operators.repro.program_text import ProgramText, check_name, format_literal
from tessera.operators.repro.torch_program import format_backward
from tessera.operators.sources.arguments import NAMED_TORCH_TYPES, find_index_limit
from tessera.operators.sources.model import RUNNING_STATISTICS
from tessera.results.record import Case

IMPORTS_TEMPLATE = """\
import math

import torch

torch.set_num_threads({threads})"""
SETUP_TEMPLATE = '''\
generator = torch.Generator().manual_seed({seed})


def tensor(shape, dtype, strides=None):
    """Make floats between 0.1 and 1, or integers that are valid indices into every dim."""
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
RESTORE_INPUTS_SOURCE = '''\
written = [named.get(one.name) for one in operator._schema.arguments if one.alias_info and one.alias_info.is_write]
written = [one for one in written if torch.is_tensor(one)]
kept = [one.clone() for one in written]


def before():
    """Restore the tensors that calls overwrite."""
    for one, values in zip(written, kept):
        one.copy_(values)'''
REQUIRE_GRAD_TEMPLATE = """\
inputs = [
    part
    for name, value in named.items()
    if name not in {constant}
    for part in (value if isinstance(value, list) else [value])
    if torch.is_tensor(part) and (part.is_floating_point() or part.is_complex())
]
for part in inputs:
    part.requires_grad_()"""
CALL_TEMPLATE = "def {name}():\n    return operator(*arguments, **keywords)"


def write_model_call(case: Case, threads: int) -> ProgramText:
    """Return the program text of one call: forward, or backward with respect to all floating-point tensors."""
    arguments, keywords = case.params["arguments"], case.params["keywords"]
    name = case.name if case.name.count(".") > 1 else f"{case.name}.default"
    for part in name.split("."):
        check_name(part)
    tensors = SETUP_TEMPLATE.format(
        seed=format_literal(case.params["seed"]),
        below=find_index_limit([arguments, list(keywords.values())]),
        operator=name,
        arguments=_format_argument(arguments),
        keywords="{" + ", ".join(f"{key!r}: {_format_argument(value)}" for key, value in keywords.items()) + "}",
    )
    imports, pass_name = IMPORTS_TEMPLATE.format(threads=threads), str(case.params["pass"])
    if pass_name == "forward":
        parts = [tensors, RESTORE_INPUTS_SOURCE, CALL_TEMPLATE.format(name="call")]
    else:
        differentiated = REQUIRE_GRAD_TEMPLATE.format(constant=RUNNING_STATISTICS)
        parts = [tensors, differentiated, CALL_TEMPLATE.format(name="forward"), format_backward(pass_name, "inputs")]
    return ProgramText(imports=imports, body="\n\n\n".join(parts), before=pass_name == "forward")


def _format_argument(described: Any) -> str:
    """Format an argument, in the JSON form of `sources.arguments`, as Python source.

    >>> _format_argument([{"tensor": [64, 3], "dtype": "float32"}, None, {"device": "cpu"}])
    "[tensor((64, 3), torch.float32), None, torch.device('cpu')]"
    """
    if isinstance(described, list):
        return f"[{', '.join(map(_format_argument, described))}]"
    if not isinstance(described, dict):
        return format_literal(described)
    if "tensor" in described:
        shape, strides = tuple(described["tensor"]), described.get("strides")
        dtype = _format_torch_name(described["dtype"], torch.dtype)
        return f"tensor({format_literal(shape)}, {dtype}" + (f", {format_literal(tuple(strides))})" if strides else ")")
    ((kind, what),) = described.items()
    if kind == "complex":
        real, imaginary = what
        return f"complex({format_literal(float(real))}, {format_literal(float(imaginary))})"
    if kind == "device":
        return f"torch.device({format_literal(what)})"
    types = {name: each for each, name in NAMED_TORCH_TYPES.items()}
    return _format_torch_name(what, types[kind])


def _format_torch_name(name: Any, kind: type) -> str:
    """Return the source of a named object of torch, such as a dtype; raise an error for another object."""
    if not isinstance(name, str) or not isinstance(getattr(torch, name, None), kind):
        raise TesseraError(f"unknown {kind.__name__} in the record", got=name)
    return f"torch.{name}"
