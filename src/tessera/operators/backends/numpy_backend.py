"""NumPy: it has the operators whose reference is written with NumPy alone. Forward only."""

from __future__ import annotations

import numpy as np

from tessera.errors import Refused
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.check import flat
from tessera.operators.expression import bound


class NumpyBackend:
    """NumPy on the inputs as they are."""

    def preload(self) -> None:
        pass

    def prepare(self, request: Request, expression: str) -> Prepared:
        if request.which != "forward":
            raise Refused("NumPy does not differentiate", got=request.which, allowed="forward")
        if request.dtype in ("bfloat16", "float16"):
            raise Refused("NumPy computes 16-bit floats in software", got=request.dtype, allowed="float32, float64")
        np.random.seed(request.seed % 2**32)
        call = bound(expression, {"np": np, **request.arrays, **request.attributes})
        outputs = flat(call())
        given = request.arrays.values()
        views = all(any(np.may_share_memory(out, array) for array in given) for out in outputs)
        return Prepared(call=call, outputs=outputs, gradients={}, shared=views)
