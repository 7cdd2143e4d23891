"""MXNet 1.9.1: its NDArray operators (`nd`), and the NumPy-like ones (`mnp`, `npx`) where those say it better.

Imported only in MXNet's own interpreter. Operators are queued to an engine of threads: a call returns when all its
results are there.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.errors import Refused
from tessera.operators.backends.backend import Prepared, Request, output_gradients
from tessera.operators.expression import bound

DTYPES = ("float32", "float64", "float16")


class MxnetBackend:
    """MXNet on the CPU."""

    def preload(self) -> None:
        # a process that was forked after the import keeps many operators to one thread: where there are more, every
        # fork has to import MXNet by itself
        if os.environ.get("OMP_NUM_THREADS") == "1":
            _mxnet()

    def prepare(self, request: Request, expression: str) -> Prepared:
        if request.dtype not in DTYPES:
            raise Refused("MXNet has no operators of this dtype on the CPU", got=request.dtype, allowed=DTYPES)
        mx = _mxnet()
        mx.random.seed(request.seed)
        arrays = _arrays(request, numpy_like=bool(re.search(r"\b(mnp|npx)\b", expression)))
        names = {"mx": mx, "nd": mx.nd, "mnp": mx.np, "npx": mx.npx}
        names["shapes"] = {name: array.shape for name, array in request.arrays.items()}
        forward = bound(expression, {**names, **arrays, **request.attributes})
        try:
            if request.which == "forward":
                return _forward(_training(forward) if request.attributes.get("training") else forward, arrays)
            return _backward(request, forward, arrays)
        except mx.base.MXNetError as error:
            raise Refused(f"MXNet does not take {request.operator.name} on these inputs", do=_reason(error)) from None


@cache
def _mxnet() -> Any:
    """MXNet, set for all that follows."""
    # those that run operators side by side; the threads within an operator are OpenMP's, as many as the worker has
    os.environ.setdefault("MXNET_CPU_WORKER_NTHREADS", "1")
    import mxnet as mx

    mx.util.set_np_shape(True)  # scalars have the shape (), as everywhere else
    return mx


def _arrays(request: Request, *, numpy_like: bool) -> dict[str, Any]:
    """The inputs as MXNet's arrays, of the kind that the expression's functions take."""
    mx, found = _mxnet(), {}
    for name, array in request.arrays.items():
        if not array.flags.c_contiguous:
            raise Refused("MXNet copies its inputs into one layout", got=f"{name} with strides {array.strides}")
        if array.dtype.kind == "c":
            raise Refused("MXNet has no complex numbers", got=name)
        dtype = request.dtype if request.inputs[name].kind == "float" else array.dtype
        made = mx.nd.array(array, dtype=dtype)
        found[name] = made.as_np_ndarray() if numpy_like else made
    return found


def _training(forward: Callable[[], Any]) -> Callable[[], Any]:
    """An operator in the mode that, of itself, MXNet has only where it records for a backward pass."""

    def call() -> Any:
        with _mxnet().autograd.train_mode():
            return forward()

    return call


def _forward(forward: Callable[[], Any], arrays: dict[str, Any]) -> Prepared:
    result = forward()

    def single() -> Any:
        made = forward()
        made.wait_to_read()
        return made

    def several() -> Any:
        made = forward()
        for leaf in _leaves(made):
            leaf.wait_to_read()
        return made

    return Prepared(
        call=several if isinstance(result, list | tuple) else single,
        outputs=tuple(map(_to_array, _leaves(result))),
        gradients={},
        shared=all(any(_within(leaf, array) for array in arrays.values()) for leaf in _leaves(result)),
    )


def _backward(request: Request, forward: Callable[[], Any], arrays: dict[str, Any]) -> Prepared:
    """Gradients of the inputs, each written over the one before, for given gradients of the outputs."""
    autograd = _mxnet().autograd
    for name in request.differentiated:
        arrays[name].attach_grad("write")
    gradients = {name: arrays[name].grad for name in request.differentiated}

    def recorded() -> tuple[Any, ...]:
        with autograd.record():
            return _leaves(forward())

    leaves = recorded()
    outputs = tuple(map(_to_array, leaves))
    wanted = output_gradients(outputs)
    ends = _floats(leaves)
    weights = [_like(weight, end) for weight, end in zip(wanted, ends, strict=True)]

    def wait() -> None:
        for gradient in gradients.values():
            gradient.wait_to_read()

    def backward() -> None:
        autograd.backward(ends, weights, retain_graph=True)
        wait()

    def both() -> None:
        autograd.backward(_floats(recorded()), weights)
        wait()

    call = backward if request.which == "backward" else both
    call()
    return Prepared(
        call=call,
        outputs=outputs,
        gradients={name: _to_array(gradient) for name, gradient in gradients.items()},
        output_gradients=wanted,
    )


def _within(leaf: Any, array: Any) -> bool:
    """Whether a result lies in the memory of another array."""
    start = _address(array)
    return bool(start <= _address(leaf) < start + array.size * np.dtype(array.dtype).itemsize)


def _address(array: Any) -> int:
    base, found = _mxnet().base, ctypes.c_void_p()
    base.check_call(base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(found)))
    return found.value or 0


def _like(values: NDArray[Any], array: Any) -> Any:
    """Values as an array of the same kind and dtype as another."""
    made = _mxnet().nd.array(values, dtype=array.dtype)
    return made.as_np_ndarray() if isinstance(array, _mxnet().np.ndarray) else made


def _floats(leaves: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in leaves if np.dtype(leaf.dtype).kind == "f"]


def _leaves(result: Any) -> tuple[Any, ...]:
    """Every array of a result, however it is nested."""
    if isinstance(result, list | tuple):
        return tuple(leaf for part in result for leaf in _leaves(part))
    return (result,)


def _to_array(leaf: Any) -> NDArray[Any]:
    """A result as an array; 16-bit floats become float32, which holds them exactly."""
    array: NDArray[Any] = leaf.asnumpy()
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _reason(error: Exception) -> str:
    """What MXNet's error says, without the stack of its C++ code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "it gives no reason"
