"""One call of any torch function: as a pass, the same in double precision, its FLOPs and bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import FlopCounterMode

from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.backends.torch_backend import leaves, prepared
from tessera.operators.operator import Input, Operator

WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchCall:
    """A function and its arguments, tensors anywhere within them. `written` are tensors that a call changes."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    written: tuple[torch.Tensor, ...] = ()

    def forward(self) -> Callable[[], Any]:
        return partial(self.function, *self.args, **self.kwargs)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor among the arguments, numbered."""
        found = (leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor))
        return {f"tensor {number}": tensor for number, tensor in enumerate(found)}

    def detached(self) -> TorchCall:
        """The same call on tensors that each begin a graph; a view would end up in that of what it views."""
        args, kwargs = tree_map(_detached, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs)

    def widened(self) -> TorchCall:
        """The same call in double precision, on copies."""
        args, kwargs = tree_map(_wider, (self.args, dict(self.kwargs)))
        return replace(self, args=args, kwargs=kwargs, written=())

    def prepare(self, which: str, dtype: str) -> Prepared:
        """The pass, with what it gives."""
        tensors = self.tensors()
        inputs = {name: Input(shape=tuple(t.shape), grad=t.requires_grad) for name, t in tensors.items()}
        request = Request(
            operator=unlisted(self.name), inputs=inputs, arrays={}, attributes={}, dtype=dtype, which=which, seed=0
        )
        return prepared(request, tensors, self.forward())


def _detached(value: Any) -> Any:
    return value.detach().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value


def _wider(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        copy = value.detach().to(WIDE.get(value.dtype, value.dtype), copy=True)
        return copy.requires_grad_(value.requires_grad)
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def unlisted(name: str, **how: Any) -> Operator:
    """An operator that the catalogue does not have, as far as the check needs it."""
    return Operator(name=name, category="", torch="", reference="", sizes={}, **how)


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notices whether random numbers are drawn."""

    seen = False

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def is_random(call: TorchCall) -> bool:
    """Whether the call draws random numbers, so that double precision gives others."""
    with _Draws() as draws:  # type: ignore[no-untyped-call]
        call.forward()()
    return bool(draws.seen)


def flops(run: Callable[[], Any]) -> float:
    """FLOPs of matrix products and convolutions in whatever is run, as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        run()
    return float(counter.get_total_flops())


def moved(call: TorchCall, found: Prepared, which: str) -> float:
    """The least bytes that a pass has to move: what it is given and what it gives, once.

    Forward that is the arguments and every output with memory of its own; a view moves nothing. Backward it is the
    gradients of the outputs and of the inputs. Sparse tensors are not counted, nor is anything beside them.
    """
    tensors = call.tensors()
    outputs = [leaf for leaf in leaves(call.forward()()) if isinstance(leaf, torch.Tensor)]
    if any(tensor.layout != torch.strided for tensor in (*tensors.values(), *outputs)):
        return 0.0
    given = {_storage(tensor) for tensor in tensors.values()}
    made = [*(out for out in outputs if _storage(out) not in given), *call.written]
    only_views = bool(outputs) and not made
    forward = 0 if only_views else sum(map(_nbytes, (*tensors.values(), *made)))
    backward = sum(_nbytes(tensors[name]) for name in found.gradients) + sum(
        _nbytes(out) for out in outputs if out.requires_grad
    )
    return float({"forward": forward, "backward": backward, "both": forward + backward}[which])


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _nbytes(tensor: torch.Tensor) -> int:
    """Bytes behind a tensor: an expanded one has fewer than its shape says."""
    return min(int(tensor.nbytes), int(tensor.untyped_storage().nbytes()))
