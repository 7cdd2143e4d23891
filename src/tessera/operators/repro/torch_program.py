"""Programs on PyTorch, eager or compiled, forward and backward; fused operators beside their steps; and on NumPy."""

from __future__ import annotations

from tessera.operators.backends import expression
from tessera.operators.catalogue.fused import FUSIONS
from tessera.operators.preparation import inputs_of
from tessera.operators.repro.written import Written, drawn, function
from tessera.results.record import Case

IMPORTS = """\
import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads({threads})"""
# the backward pass alone is run over and over on the same saved tensors: it must not write into them
NOT_DONATED = "\nimport torch._functorch.config\n\ntorch._functorch.config.donated_buffer = False"
COMPILED = "@torch.compile(fullgraph=True, dynamic=False)\n"
BACKWARD = '''\
def ends(result):
    """The outputs that a gradient can come back from."""
    if isinstance(result, (list, tuple)):
        return [end for part in result for end in ends(part)]
    return [result] if torch.is_tensor(result) and result.requires_grad else []


outputs = ends(forward())
given = [torch.randn_like(output) for output in outputs]


def call():
    return torch.autograd.grad({roots}, {inputs}, given, {retain}allow_unused=True)'''


def write(case: Case, threads: int) -> Written:
    """The operator as one call, eager or compiled."""
    _, inputs, _ = inputs_of(case)
    which, compiled = str(case.params["pass"]), case.params["backend"] == "compile"
    decorated = COMPILED if compiled else ""
    text = expression(str(case.params["backend"]), case.name)
    if which == "forward":
        parts = [decorated + function("call", text)]
    else:
        names = [name for name, one in inputs.items() if one.differentiable]
        parts = [decorated + function("forward", text), backward(which, f"[{', '.join(names)}]")]
    imports = IMPORTS.format(threads=threads) + (NOT_DONATED if compiled and which == "backward" else "")
    return Written(imports=imports, body=drawn(case).body(_tensors(case), *parts))


def backward(which: str, inputs: str) -> str:
    """The backward pass behind a function `forward`: alone, or both together."""
    alone = which == "backward"
    return BACKWARD.format(
        roots="outputs" if alone else "ends(forward())", inputs=inputs, retain="retain_graph=True, " if alone else ""
    )


def write_fused(case: Case, threads: int) -> Written:
    """A fused operator, and beside it the same steps with buffers that are kept, and with new ones."""
    operator, _, _ = inputs_of(case)
    how = FUSIONS[operator.name]
    buffers = "\n".join(f"{name} = {text}" for name, text in how.buffers.items())
    library = case.params["fusion"] == "library"
    fused = function("fused", how.library) if library else COMPILED + function("fused", operator.torch)
    parts = (fused, function("kept", how.kept), function("unfused", operator.torch))
    return Written(
        imports=IMPORTS.format(threads=threads),
        body=drawn(case).body(_tensors(case), buffers, *parts),
        calls=("fused", "kept", "unfused"),
    )


def _tensors(case: Case) -> dict[str, str]:
    """The inputs as tensors that keep the arrays' strides."""
    _, inputs, _ = inputs_of(case)
    dtype, which = str(case.params["dtype"]), case.params["pass"]
    found = {}
    for name, array in drawn(case).arrays.items():
        narrow = ".to(torch.bfloat16)" if dtype == "bfloat16" and inputs[name].kind == "float" else ""
        if narrow and case.params.get("skew") == "strided" and len(inputs[name].shape) == 1:
            narrow += ".repeat_interleave(2)[::2]"  # another dtype has no gaps of itself
        grad = ".requires_grad_()" if which != "forward" and inputs[name].differentiable else ""
        found[name] = f"torch.from_numpy({array}){narrow}{grad}"
    return found


def write_numpy(case: Case, threads: int) -> Written:
    """The operator as NumPy has it."""
    text = drawn(case)
    return Written(
        imports="import numpy as np", body=text.body(text.arrays, function("call", expression("numpy", case.name)))
    )
