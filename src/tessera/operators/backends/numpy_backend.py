"""Backend for NumPy: the operators whose reference uses only NumPy. Forward pass only."""

from __future__ import annotations

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import flatten_outputs
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator
from tessera.operators.expression import bind_expression


class NumpyBackend:
    """NumPy, applied directly to the input arrays."""

    def preload(self) -> None:
        pass

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        if request.pass_name != "forward":
            raise Refused("NumPy has no backward pass", got=request.pass_name, allowed="forward")
        if request.dtype in ("bfloat16", "float16"):
            raise Refused("NumPy does not support 16-bit floats", got=request.dtype, allowed="float32, float64")
        np.random.seed(request.seed % 2**32)
        call = bind_expression(expression, {"np": np, **request.arrays, **request.attributes})
        outputs = flatten_outputs(call())
        inputs = request.arrays.values()
        views = all(any(np.may_share_memory(out, array) for array in inputs) for out in outputs)
        return PreparedOperator(call=call, outputs=outputs, gradients={}, shared=views)
