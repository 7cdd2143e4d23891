"""A call of any torch function: its forward and backward pass, its result in double precision, its FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from tessera.operators.backends.backend import OperatorRequest, PreparedOperator
from tessera.operators.backends.torch_backend import flatten_leaves, prepare_passes
from tessera.operators.operator import Input, Operator

WIDE_DTYPES = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}

PROFILED_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchCall:
    """A call: a function and its arguments, which may be nested. `written` are the tensors that the call overwrites."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    written: tuple[torch.Tensor, ...] = ()

    def forward(self) -> Callable[[], Any]:
        return partial(self.function, *self.args, **self.kwargs)

    def list_tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors among the arguments, under the names `tensor 0`, `tensor 1` and so on."""
        tensors = (leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor))
        return {f"tensor {number}": tensor for number, tensor in enumerate(tensors)}

    def detach(self) -> TorchCall:
        """Return this call on detached leaf tensors, because a view would be part of the autograd graph of its base."""
        args, kwargs = tree_map(_detach, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)

    def widen(self) -> TorchCall:
        """Return this call on copies of the arguments in double precision."""
        args, kwargs = tree_map(_widen, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs, written=())

    def prepare(self, pass_name: str, dtype: str) -> PreparedOperator:
        """Run a pass once; return the call to time, and the outputs and gradients to check."""
        tensors = self.list_tensors()
        inputs = {name: Input(tuple(t.shape), grad=t.requires_grad) for name, t in tensors.items()}
        request = OperatorRequest(
            operator=make_unlisted_operator(self.name),
            inputs=inputs,
            arrays={},
            attributes={},
            dtype=dtype,
            pass_name=pass_name,
            seed=0,
        )
        return prepare_passes(request, tensors, self.forward())


def _detach(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _widen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        copy = value.detach().to(WIDE_DTYPES.get(value.dtype, value.dtype), copy=True)
        return copy.requires_grad_(value.requires_grad)
    return WIDE_DTYPES.get(value, value) if isinstance(value, torch.dtype) else value


def make_unlisted_operator(name: str, **how: Any) -> Operator:
    """Make a placeholder operator that is not in the catalogue, with the fields that the result check reads."""
    return Operator(name=name, category="", torch="", reference="", sizes={}, **how)


class _RandomnessDetector(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that detects whether random numbers are drawn."""

    draws_random = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.draws_random |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def is_random(call: TorchCall) -> bool:
    """Return whether a call draws random numbers, so that its result cannot be compared with double precision."""
    with _RandomnessDetector() as draws:  # type: ignore[no-untyped-call]
        call.forward()()
    return bool(draws.draws_random)


def count_flops(run: Callable[[], Any]) -> float:
    """Count the FLOPs of a call with torch's FLOP counter, which counts matrix products, convolutions and attention."""
    with FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops())


def profile_shares(run: Callable[[], Any]) -> dict[str, float]:
    """Return the share of each operator in the time of a call, by torch's profiler, the operators it calls included.

    The first of two profiles is discarded: the start of the profiler takes longer than a short call.
    """
    whole, shares = "tessera whole call", {}
    for _ in range(2):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(PROFILED_CALLS):
                with torch.profiler.record_function(whole):
                    run()
        times = {event.key: float(event.cpu_time_total) for event in profile.key_averages()}
        total = max(times.pop(whole, 0.0), 1e-9)
        shares = {name: time / total for name, time in times.items() if "::" in name}
    return shares


def count_moved_bytes(call: TorchCall, prepared: PreparedOperator, pass_name: str) -> float:
    """Return the minimum number of bytes that a pass reads and writes: each input and output once.

    Forward: the arguments and every output with memory of its own; a view moves nothing. Backward: the gradients of
    the outputs and of the inputs. A call with sparse tensors counts 0.
    """
    tensors = call.list_tensors()
    outputs = [leaf for leaf in flatten_leaves(call.forward()()) if isinstance(leaf, torch.Tensor)]
    if any(tensor.layout != torch.strided for tensor in (*tensors.values(), *outputs)):
        return 0.0
    input_storages = {_get_storage_id(tensor) for tensor in tensors.values()}
    new_tensors = [*(out for out in outputs if _get_storage_id(out) not in input_storages), *call.written]
    only_views = bool(outputs) and not new_tensors
    forward = 0 if only_views else sum(map(_count_bytes, (*tensors.values(), *new_tensors)))
    backward = sum(_count_bytes(tensors[name]) for name in prepared.gradients) + sum(
        _count_bytes(out) for out in outputs if out.requires_grad
    )
    return float({"forward": forward, "backward": backward, "both": forward + backward}[pass_name])


def _get_storage_id(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _count_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of a tensor, or of its storage if that is smaller, as for an expanded tensor."""
    return min(int(tensor.nbytes), int(tensor.untyped_storage().nbytes()))
