"""Writer of programs for PyTorch (eager, compiled, and fused operators compared with their steps) and for NumPy."""

from __future__ import annotations

from tessera.operators.backends import get_backend_entry, get_expression
from tessera.operators.catalogue.fused import FUSIONS
from tessera.operators.preparation import resolve_inputs
from tessera.operators.repro.program_text import ProgramText, format_function, format_inputs
from tessera.results.record import Case

IMPORTS_TEMPLATE = """\
import numpy as np
import torch
import torch.nn.functional as F

torch.set_num_threads({threads})"""
# a repeated backward pass uses the same saved tensors, so compiled code must not reuse their buffers
KEEP_BUFFERS_SOURCE = "\nimport torch._functorch.config\n\ntorch._functorch.config.donated_buffer = False"
COMPILE_DECORATOR = "@torch.compile(fullgraph=True, dynamic=False)\n"
BACKWARD_TEMPLATE = '''\
def ends(result):
    """Return the outputs that require a gradient."""
    if isinstance(result, (list, tuple)):
        return [end for part in result for end in ends(part)]
    return [result] if torch.is_tensor(result) and result.requires_grad else []


outputs = ends(forward())
given = [torch.randn_like(output) for output in outputs]


def call():
    return torch.autograd.grad({roots}, {inputs}, given, {retain}allow_unused=True)'''


def write_torch(case: Case, threads: int) -> ProgramText:
    """Return the program text of an operator in PyTorch, eager or compiled."""
    operator, inputs, _ = resolve_inputs(case)
    which, compiled = str(case.params["pass"]), get_backend_entry(str(case.params["backend"])).compiles
    decorated = COMPILE_DECORATOR if compiled else ""
    text = get_expression(str(case.params["backend"]), case.name)
    if which == "forward":
        parts = [decorated + format_function("call", text)]
    else:
        names = [name for name, one in inputs.items() if one.differentiable]
        parts = [decorated + format_function("forward", text), format_backward(which, f"[{', '.join(names)}]")]
    if operator.setup:
        parts.insert(0, "\n".join(f"{name} = {source}" for name, source in operator.setup.items()))
    imports = IMPORTS_TEMPLATE.format(threads=threads) + (
        KEEP_BUFFERS_SOURCE if compiled and which == "backward" else ""
    )
    return ProgramText(imports=imports, body=format_inputs(case).format_body(_format_tensors(case), *parts))


def format_backward(pass_name: str, inputs: str) -> str:
    """Return the source of the backward pass of a function `forward`, alone or together with the forward pass."""
    alone = pass_name == "backward"
    return BACKWARD_TEMPLATE.format(
        roots="outputs" if alone else "ends(forward())", inputs=inputs, retain="retain_graph=True, " if alone else ""
    )


def write_fused(case: Case, threads: int) -> ProgramText:
    """Return the program text of a fused operator, and of its separate steps with preallocated and with new buffers."""
    operator, _, _ = resolve_inputs(case)
    how = FUSIONS[operator.name]
    buffers = "\n".join(f"{name} = {text}" for name, text in how.buffers.items())
    library = case.params["fusion"] == "library"
    fused = (
        format_function("fused", how.library)
        if library
        else COMPILE_DECORATOR + format_function("fused", operator.torch)
    )
    parts = (fused, format_function("kept", how.kept), format_function("unfused", operator.torch))
    return ProgramText(
        imports=IMPORTS_TEMPLATE.format(threads=threads),
        body=format_inputs(case).format_body(_format_tensors(case), buffers, *parts),
        calls=("fused", "kept", "unfused"),
    )


def _format_tensors(case: Case) -> dict[str, str]:
    """Return the source of each input as a torch tensor with the strides of the NumPy array."""
    _, inputs, _ = resolve_inputs(case)
    dtype, pass_name = str(case.params["dtype"]), case.params["pass"]
    tensors = {}
    for name, array in format_inputs(case).arrays.items():
        narrow = ".to(torch.bfloat16)" if dtype == "bfloat16" and inputs[name].kind == "float" else ""
        if narrow and case.params.get("skew") == "strided" and len(inputs[name].shape) == 1:
            narrow += ".repeat_interleave(2)[::2]"  # restore the stride of 2, which the conversion to bfloat16 removed
        grad = ".requires_grad_()" if pass_name != "forward" and inputs[name].differentiable else ""
        tensors[name] = f"torch.from_numpy({array}){narrow}{grad}"
    return tensors


def write_numpy(case: Case, threads: int) -> ProgramText:
    """Return the program text of an operator in NumPy."""
    text = format_inputs(case)
    return ProgramText(
        imports="import numpy as np",
        body=text.format_body(text.arrays, format_function("call", get_expression("numpy", case.name))),
    )
