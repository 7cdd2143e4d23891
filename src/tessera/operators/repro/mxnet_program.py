"""Programs on MXNet, for its own interpreter; a call returns when all its results are there."""

from __future__ import annotations

import re

from tessera.operators.backends import expression
from tessera.operators.preparation import inputs_of
from tessera.operators.repro.written import Written, drawn, function
from tessera.results.record import Case

IMPORTS = """\
import mxnet as mx
import numpy as np
from mxnet import nd, npx
from mxnet import np as mnp

mx.util.set_np_shape(True)
mx.random.seed({seed})"""
LEAVES = '''\
def leaves(result):
    """Every array of a result."""
    return [leaf for part in result for leaf in leaves(part)] if isinstance(result, (list, tuple)) else [result]'''
# of itself, MXNet has this mode only where it records for a backward pass
TRAINING = """\
def forward():
    with mx.autograd.train_mode():
        return {expression}"""
CALL = """\
def call():
    for leaf in leaves(forward()):
        leaf.wait_to_read()"""
BACKWARD = '''\
inputs = [{given}]
for one in inputs:
    one.attach_grad("write")


def recorded():
    """The floating-point outputs of a pass that keeps what its gradients need."""
    with mx.autograd.record():
        return [leaf for leaf in leaves(forward()) if np.dtype(leaf.dtype).kind == "f"]


outputs = recorded()
weights = [nd.array(np.random.default_rng(1).standard_normal(one.shape), dtype=one.dtype) for one in outputs]
weights = [
    one.as_np_ndarray() if isinstance(output, mx.np.ndarray) else one for one, output in zip(weights, outputs)
]


def call():
    mx.autograd.backward({roots}, weights{retain})
    for one in inputs:
        one.grad.wait_to_read()'''


def write(case: Case, threads: int) -> Written:
    """The operator as MXNet has it."""
    _, inputs, attributes = inputs_of(case)
    dtype, which, text = str(case.params["dtype"]), str(case.params["pass"]), expression("mxnet", case.name)
    like = ".as_np_ndarray()" if re.search(r"\b(mnp|npx)\b", text) else ""
    made = {}
    for name, array in drawn(case).arrays.items():
        kind = dtype if inputs[name].kind == "float" else inputs[name].kind
        made[name] = f"nd.array({array}, dtype={kind!r}){like}"
    forward = function("forward", text)
    if which == "forward":
        forward = TRAINING.format(expression=text) if attributes.get("training") else forward
        last = CALL
    else:
        alone = which == "backward"
        last = BACKWARD.format(
            given=", ".join(name for name, one in inputs.items() if one.differentiable),
            roots="outputs" if alone else "recorded()",
            retain=", retain_graph=True" if alone else "",
        )
    return Written(
        imports=IMPORTS.format(seed=case.params["seed"]),
        body=drawn(case).body(made, LEAVES, forward, last),
        settings={"MXNET_CPU_WORKER_NTHREADS": "1"},
    )
