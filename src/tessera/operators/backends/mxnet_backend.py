"""Backend for MXNet 1.9.1: its NDArray operators (`nd`), or its NumPy-like operators (`mnp`, `npx`).

MXNet is imported only in a separate Python interpreter. It executes operators asynchronously; a timed call returns
when all its results are ready.
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
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator, draw_output_gradients
from tessera.operators.expression import bind_expression

SUPPORTED_DTYPES = ("float32", "float64", "float16")


class MxnetBackend:
    """MXNet on the CPU."""

    def preload(self) -> None:
        # in a process forked after the import, MXNet runs many operators on one thread only; with more threads, every
        # forked process imports MXNet itself
        if os.environ.get("OMP_NUM_THREADS") == "1":
            _load_mxnet()

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        if request.dtype not in SUPPORTED_DTYPES:
            raise Refused("MXNet does not support this dtype on the CPU", got=request.dtype, allowed=SUPPORTED_DTYPES)
        mx = _load_mxnet()
        mx.random.seed(request.seed)
        arrays = _to_mxnet_arrays(request, numpy_like=bool(re.search(r"\b(mnp|npx)\b", expression)))
        names = {"mx": mx, "nd": mx.nd, "mnp": mx.np, "npx": mx.npx}
        names["shapes"] = {name: array.shape for name, array in request.arrays.items()}
        forward = bind_expression(expression, {**names, **arrays, **request.attributes})
        try:
            if request.pass_name == "forward":
                trains = request.attributes.get("training")
                return _prepare_forward(_wrap_in_training_mode(forward) if trains else forward, arrays)
            return _prepare_backward(request, forward, arrays)
        except mx.base.MXNetError as error:
            reason = _extract_reason(error)
            raise Refused(f"MXNet does not support {request.operator.name} on these inputs", do=reason) from None


@cache
def _load_mxnet() -> Any:
    """Import MXNet and set its options."""
    # number of operators that run concurrently; within an operator, OpenMP uses all threads of the worker
    os.environ.setdefault("MXNET_CPU_WORKER_NTHREADS", "1")
    import mxnet as mx

    mx.util.set_np_shape(True)  # scalars have the shape (), as in other frameworks
    return mx


def _to_mxnet_arrays(request: OperatorRequest, *, numpy_like: bool) -> dict[str, Any]:
    """Convert the inputs to NDArrays, or to NumPy-like arrays (`mx.np.ndarray`) if `numpy_like`."""
    mx, inputs = _load_mxnet(), {}
    for name, array in request.arrays.items():
        if not array.flags.c_contiguous:
            raise Refused(
                "MXNet would copy non-contiguous inputs to its own layout", got=f"{name} with strides {array.strides}"
            )
        if array.dtype.kind == "c":
            raise Refused("MXNet does not support complex inputs", got=name)
        dtype = request.dtype if request.inputs[name].kind == "float" else array.dtype
        converted = mx.nd.array(array, dtype=dtype)
        inputs[name] = converted.as_np_ndarray() if numpy_like else converted
    return inputs


def _wrap_in_training_mode(forward: Callable[[], Any]) -> Callable[[], Any]:
    """Wrap `forward` to run in training mode, which MXNet by default uses only while it records a backward pass."""

    def call() -> Any:
        with _load_mxnet().autograd.train_mode():
            return forward()

    return call


def _prepare_forward(forward: Callable[[], Any], arrays: dict[str, Any]) -> PreparedOperator:
    result = forward()

    def run_and_wait() -> Any:
        output = forward()
        output.wait_to_read()
        return output

    def run_and_wait_for_all() -> Any:
        outputs = forward()
        for leaf in _flatten_leaves(outputs):
            leaf.wait_to_read()
        return outputs

    return PreparedOperator(
        call=run_and_wait_for_all if isinstance(result, list | tuple) else run_and_wait,
        outputs=tuple(map(_to_array, _flatten_leaves(result))),
        gradients={},
        shared=all(any(_shares_memory(leaf, array) for array in arrays.values()) for leaf in _flatten_leaves(result)),
    )


def _prepare_backward(request: OperatorRequest, forward: Callable[[], Any], arrays: dict[str, Any]) -> PreparedOperator:
    """Prepare a backward pass that computes the gradients of the inputs from fixed gradients of the outputs."""
    autograd = _load_mxnet().autograd
    for name in request.differentiated:
        arrays[name].attach_grad("write")
    gradients = {name: arrays[name].grad for name in request.differentiated}

    def record_forward() -> tuple[Any, ...]:
        with autograd.record():
            return _flatten_leaves(forward())

    leaves = record_forward()
    outputs = tuple(map(_to_array, leaves))
    drawn = draw_output_gradients(outputs)
    ends = _select_floats(leaves)
    weights = [_to_array_like(weight, end) for weight, end in zip(drawn, ends, strict=True)]

    def wait_for_gradients() -> None:
        for gradient in gradients.values():
            gradient.wait_to_read()

    def run_backward() -> None:
        autograd.backward(ends, weights, retain_graph=True)
        wait_for_gradients()

    def run_both() -> None:
        autograd.backward(_select_floats(record_forward()), weights)
        wait_for_gradients()

    call = run_backward if request.pass_name == "backward" else run_both
    call()
    return PreparedOperator(
        call=call,
        outputs=outputs,
        gradients={name: _to_array(gradient) for name, gradient in gradients.items()},
        output_gradients=drawn,
    )


def _shares_memory(leaf: Any, array: Any) -> bool:
    """Return whether a result is stored in the memory of an array."""
    start = _get_address(array)
    return bool(start <= _get_address(leaf) < start + array.size * np.dtype(array.dtype).itemsize)


def _get_address(array: Any) -> int:
    base, address = _load_mxnet().base, ctypes.c_void_p()
    base.check_call(base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(address)))
    return address.value or 0


def _to_array_like(values: NDArray[Any], array: Any) -> Any:
    """Convert NumPy values to an MXNet array with the class and dtype of `array`."""
    converted = _load_mxnet().nd.array(values, dtype=array.dtype)
    return converted.as_np_ndarray() if isinstance(array, _load_mxnet().np.ndarray) else converted


def _select_floats(leaves: Sequence[Any]) -> list[Any]:
    return [leaf for leaf in leaves if np.dtype(leaf.dtype).kind == "f"]


def _flatten_leaves(result: Any) -> tuple[Any, ...]:
    """Return all arrays of a nested list or tuple."""
    if isinstance(result, list | tuple):
        return tuple(leaf for part in result for leaf in _flatten_leaves(part))
    return (result,)


def _to_array(leaf: Any) -> NDArray[Any]:
    """Convert an MXNet array to NumPy; 16-bit floats become float32, which represents them exactly."""
    array: NDArray[Any] = leaf.asnumpy()
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _extract_reason(error: Exception) -> str:
    """Return the message of an MXNet error without the C++ stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "MXNet gave no reason"
