"""Writer of MXNet programs, which run in a separate interpreter; a call waits for all its results."""

from __future__ import annotations

import re

from tessera.operators.backends import get_expression
from tessera.operators.preparation import resolve_inputs
from tessera.operators.repro.program_text import ProgramText, format_function, format_inputs
from tessera.results.record import Case

IMPORTS_TEMPLATE = """\
import mxnet as mx
import numpy as np
from mxnet import nd, npx
from mxnet import np as mnp

mx.util.set_np_shape(True)
mx.random.seed({seed})"""
LEAVES_SOURCE = '''\
def leaves(result):
    """Return every array of a result."""
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, (list, tuple)) else [result]'''
# by default, MXNet uses training mode only while it records a backward pass
TRAINING_TEMPLATE = """\
def forward():
    with mx.autograd.train_mode():
        return {expression}"""
CALL_SOURCE = """\
def call():
    for leaf in leaves(forward()):
        leaf.wait_to_read()"""
BACKWARD_TEMPLATE = '''\
inputs = [{given}]
for one in inputs:
    one.attach_grad("write")


def record_forward():
    """Return the floating-point outputs of a pass recorded for its gradients."""
    with mx.autograd.record():
        return [leaf for leaf in leaves(forward()) if np.dtype(leaf.dtype).kind == "f"]


outputs = record_forward()
weights = [nd.array(np.random.default_rng(1).standard_normal(one.shape), dtype=one.dtype) for one in outputs]
weights = [
    one.as_np_ndarray() if isinstance(output, mx.np.ndarray) else one for one, output in zip(weights, outputs)
]


def call():
    mx.autograd.backward({roots}, weights{retain})
    for one in inputs:
        one.grad.wait_to_read()'''


def write_mxnet(case: Case, threads: int) -> ProgramText:
    """Return the program text of an operator in MXNet."""
    _, inputs, attributes = resolve_inputs(case)
    dtype, pass_name, text = str(case.params["dtype"]), str(case.params["pass"]), get_expression("mxnet", case.name)
    like = ".as_np_ndarray()" if re.search(r"\b(mnp|npx)\b", text) else ""
    arrays = {}
    for name, array in format_inputs(case).arrays.items():
        kind = dtype if inputs[name].kind == "float" else inputs[name].kind
        arrays[name] = f"nd.array({array}, dtype={kind!r}){like}"
    forward = format_function("forward", text)
    if pass_name == "forward":
        forward = TRAINING_TEMPLATE.format(expression=text) if attributes.get("training") else forward
        last = CALL_SOURCE
    else:
        alone = pass_name == "backward"
        last = BACKWARD_TEMPLATE.format(
            given=", ".join(name for name, one in inputs.items() if one.differentiable),
            roots="outputs" if alone else "record_forward()",
            retain=", retain_graph=True" if alone else "",
        )
    return ProgramText(
        imports=IMPORTS_TEMPLATE.format(seed=case.params["seed"]),
        body=format_inputs(case).format_body(arrays, LEAVES_SOURCE, forward, last),
        settings={"MXNET_CPU_WORKER_NTHREADS": "1"},
    )
