"""`SplitTensor`: a tensor whose parts are on several ranks. It behaves like the whole tensor.

It has the shape, dtype and results of the whole tensor; each rank stores its part only. torch calls
`__torch_dispatch__` for every operation that its autograd, autocast, modules and functions need, forward and backward,
and a *rule* computes it on the parts. The autograd graph equals the unsplit network's, so hooks, checkpoints, double
backward and control flow work as in plain torch. All ranks must run the same operations in the same order.

An operation without a rule is computed from whole tensors on every rank, which is exact; `strict` raises an error.
Plain tensors (weights, constants) count as whole: they must be equal on all ranks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, overload

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from tessera.errors import TesseraError
from tessera.geometry import Box
from tessera.spatial.tensor.eager_mode import run_eagerly
from tessera.spatial.tensor.layout import (
    TensorLayout,
    list_common_factors,
    make_whole,
    refine,
    reshape,
    split_dims_evenly,
)
from tessera.spatial.tensor.trace_log import OperationLog
from tessera.spatial.tensor.transfer import Ring, Transfer
from tessera.transport.transport import Transport

Rule = Callable[..., Any]
RULES: dict[Any, Rule] = {}  # key: operator overload, such as torch.ops.aten.add.Tensor
PENDING_RULES: dict[Any, Rule] = {}  # rules for tensors that are not computed yet, which come before other rules
Overlap = Literal["none", "split", "recompute"]  # of a convolution with the exchange of its halo
MAX_GATHER_BYTES = 1 << 26  # keys and values of attention; larger keys and values use ring attention
NO_RULE = object()  # returned by a rule that does not apply to these arguments


MAX_PLAN_SETS = 16  # image sizes whose plans, buffers and connections are kept
MAX_PLANS, MAX_TRANSFERS = 40_000, 10_000  # per image size


@dataclass(slots=True)
class PlanSet:
    """The cached plans of one image size, and its transfers with their buffers and connections."""

    plans: dict[Any, Any]
    transfers: dict[tuple[TensorLayout, tuple[Box, ...]], Transfer] = field(default_factory=dict)
    rings: dict[tuple[int, torch.dtype], Ring] = field(default_factory=dict)

    def close(self) -> None:
        """Close transfers and rings, which no rank may still use."""
        for transfer in self.transfers.values():
            transfer.close()
        for ring in self.rings.values():
            ring.close()
        self.transfers.clear()
        self.rings.clear()


@dataclass(slots=True)
class WideExchange:
    """An exchange of a halo for `depth` windows; `uses` is the number of windows that have used it so far.

    `number` increases with every exchange.
    """

    depth: int
    number: int
    uses: int = 1


class SplitGroup:
    """The ranks that share split tensors: their mesh, their transport, and cached plans."""

    def __init__(
        self,
        transport: Transport,
        mesh: Sequence[int],
        *,
        strict: bool = False,
        halo_depth: int | Literal["auto"] = 1,
        max_gather_bytes: int = MAX_GATHER_BYTES,
        overlap: Overlap = "none",
    ) -> None:
        if prod(mesh) != transport.size:
            raise TesseraError(
                f"a mesh of {'x'.join(map(str, mesh))} requires {prod(mesh)} ranks",
                got=f"{transport.size} ranks",
                do="pass process_group=… to use some of the ranks",
            )
        self.transport, self.mesh, self.strict, self.halo_depth = transport, tuple(mesh), strict, halo_depth
        self.rank, self.ranks, self.max_gather_bytes = transport.rank, transport.size, max_gather_bytes
        self.overlap = overlap
        self.device_mesh: DeviceMesh | None = None  # of DTensors
        self.log = OperationLog()
        self.add_weights: Callable[[Tensor], None] = transport.all_reduce
        self.defers_sums = False  # whether weight gradients may be summed later than they are computed
        self.has_thin_parts = False  # whether any split tensor so far had parts whose strides are ambiguous
        self.bucket: Any = None  # of weight gradients, see `gradient_buckets`
        self.plans: dict[Any, Any] = {}  # of the current image size
        self._current = PlanSet(self.plans)
        self.plan_sets: OrderedDict[Any, PlanSet] = OrderedDict({None: self._current})  # least recently used first
        self.exchange_count = 0  # of wide halos
        self.link: Any = None  # measured costs of an exchange, see `halo_depth`
        self.exchanges: list[tuple[Any, WideExchange]] = []  # of this pass, with what they were planned for
        self.last_exchanges: list[tuple[Any, WideExchange]] = []  # of the pass before
        self.scratch_frames: dict[Any, Any] = {}  # views of the scratch memory, see `FramePlan`
        self._scratch: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def select_plans(self, shape: Sequence[int]) -> None:
        """Use the plans of an image size from now on. All ranks call it, with the same sizes in the same order.

        The least recently used sizes are evicted, with their plans, buffers and connections.
        """
        key = tuple(shape)
        current = self.plan_sets.pop(key, None)
        if current is None:
            current = PlanSet({})
            while len(self.plan_sets) >= MAX_PLAN_SETS:
                _, oldest = self.plan_sets.popitem(last=False)
                self._drop(oldest)
        if len(current.plans) > MAX_PLANS:  # sizes inside of the network depend on data
            current.plans.clear()
        if len(current.transfers) > MAX_TRANSFERS:  # the number of transfers is equal on all ranks
            current.plans.clear()
            self._drop(current)
        self.plan_sets[key] = self._current = current
        self.plans = current.plans

    def close(self) -> None:
        """Release all buffers and connections; all ranks call this together. Later operations open new ones."""
        for plan_set in self.plan_sets.values():
            plan_set.plans.clear()
            self._drop(plan_set)

    def _drop(self, plans: PlanSet) -> None:
        """Close transfers and rings. The barrier ensures that no rank still reads the buffers of a peer."""
        self.transport.barrier()
        plans.close()
        self.scratch_frames.clear()

    def start_pass(self) -> None:
        """Start a pass of the network; `halo_depth="auto"` uses the exchanges of the previous pass."""
        self.last_exchanges, self.exchanges = self.exchanges, []

    def get_tiles(self, shape: Sequence[int], spatial: int) -> TensorLayout:
        """Return the layout of an activation as tiles: its last `spatial` dims are split over the mesh."""
        key = "tiles", tuple(shape), spatial
        if key not in self.plans:
            dims = range(len(shape) - spatial, len(shape))
            self.plans[key] = split_dims_evenly(shape, tuple(dims)[-len(self.mesh) :], self.mesh)
        layout: TensorLayout = self.plans[key]
        return layout

    def get_transfer(self, source: TensorLayout, needs: tuple[Box, ...]) -> Transfer:
        key, transfers = (source, needs), self._current.transfers
        if key not in transfers:
            transfers[key] = self._make_transfer(source, needs)
        return transfers[key]

    def _make_transfer(self, source: TensorLayout, needs: tuple[Box, ...]) -> Transfer:
        return Transfer(source, needs, self.transport)

    def get_ring(self, count: int, like: Tensor) -> Ring:
        """Return the ring of the ranks for up to `count` values of a tensor's dtype."""
        key, rings = (count, like.dtype), self._current.rings
        if key not in rings:
            rings[key] = Ring(self.transport, count, like.dtype)
        return rings[key]

    def get_scratch(self, count: int, like: Tensor) -> Tensor:
        """Return memory for values of a tensor's dtype; the next call returns the same memory."""
        key = like.dtype, like.device
        if key not in self._scratch or self._scratch[key].numel() < count:
            self._scratch.pop(key, None)  # freed before more is allocated
            self.scratch_frames.clear()
            with torch.inference_mode(False):
                self._scratch[key] = torch.empty(count, dtype=like.dtype, device=like.device)
        return self._scratch[key][:count]

    def sum(self, values: Tensor) -> Tensor:
        """All-reduce a tensor and return the sum; `values` may be overwritten."""
        if self.ranks > 1:
            values = values.contiguous()
            self.transport.all_reduce(values)
            self.log.count_bytes(values.nbytes)
        return values

    def __deepcopy__(self, memo: Any) -> SplitGroup:
        return self


@dataclass(frozen=True, slots=True)
class CopiedView:
    """The base of a view that could not share the base's memory. `view` makes the view from the whole base.

    `version` is the base's count of in-place writes when the view was copied.
    """

    base: SplitTensor
    version: int
    view: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Margin:
    """A rank's part with surrounding pixels that other ranks own, which were received or recomputed.

    `wide` has the box of `layout`, whose boxes overlap. It is valid while the tensor's count of in-place writes is
    `version`. With `is_shared`, the part of the tensor is a view of `wide`. `exchange` is the exchange that provided
    the pixels, and `uses` is the number of windows between the exchange and this tensor.
    """

    wide: Tensor
    layout: TensorLayout
    version: int
    is_shared: bool
    exchange: WideExchange
    uses: int


class SplitTensor(Tensor):
    """A tensor of which this rank stores the part `local`, according to `layout_on_ranks`.

    `source` links a view that had to be copied to its base. `pending` computes `local` when it is first needed; read
    the part with `get_local`. `writes` counts in-place writes; a tensor shares it with its views. `margin` has pixels
    around the part, for operators that can use them; read it with `get_margin`.
    """

    local: Tensor
    layout_on_ranks: TensorLayout
    group: SplitGroup
    writes: list[int]
    source: CopiedView | None = None
    pending: Callable[[], Tensor] | None = None
    margin: Margin | None = None
    halo: Any = None  # the `KeptHalo` of a convolution, for its backward pass
    has_gaps = False  # whether the parts of some ranks, or of a base, are cut out of larger memory

    @staticmethod
    def __new__(
        cls, local: Tensor, layout: TensorLayout, group: SplitGroup, strides: tuple[int, ...] | None = None
    ) -> SplitTensor:
        tensor = Tensor._make_wrapper_subclass(
            cls, layout.shape, strides=strides or _get_strides(local, layout), dtype=local.dtype, device=local.device
        )
        tensor.local, tensor.layout_on_ranks, tensor.group, tensor.writes = local, layout, group, [0]
        if layout.has_thin_part:
            group.has_thin_parts = True
        return tensor

    def __init__(
        self, local: Tensor, layout: TensorLayout, group: SplitGroup, strides: tuple[int, ...] | None = None
    ) -> None:
        """Do nothing: `__new__` sets all attributes."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    @run_eagerly
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})

    def numpy(self, *, force: bool = False) -> Any:
        return gather(self).numpy(force=force)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return gather(self.detach()).numpy().__array__(*args, **kwargs)

    def tolist(self) -> Any:
        return gather(self.detach()).tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"SplitTensor({tuple(self.shape)}, {self.dtype}, {self.layout_on_ranks!r})"

    def __deepcopy__(self, memo: Any) -> Any:
        if not self.is_leaf:
            raise RuntimeError("only leaf tensors can be copied deeply")
        copy = SplitTensor(get_local(self).clone(), self.layout_on_ranks, self.group)
        return copy.requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return gather(self.detach()).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


def _get_strides(local: Tensor, layout: TensorLayout) -> tuple[int, ...] | None:
    """Return strides of the whole tensor, with the dims in the part's order in memory; None for the usual order.

    The strides must be equal on all ranks, because torch calls different operators for different strides. `dispatch`
    corrects the strides if a part is so thin that its order is ambiguous.
    """
    if layout.has_thin_part or local.is_contiguous():
        return None
    strides, shape = local.stride(), layout.shape
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    result, step = [0] * len(shape), 1
    for dim in reversed(order):
        if strides[dim] == 0 and shape[dim] > 1:
            continue
        result[dim] = step
        step *= shape[dim]
    return tuple(result)


def rule(*overloads: Any) -> Callable[[Rule], Rule]:
    """Register `rule(call)` for some operators. It returns the result, or `NO_RULE` to compute from whole tensors."""

    def register(function: Rule) -> Rule:
        for operator in overloads:
            if operator in RULES:
                raise ValueError(f"{operator} has a rule already")
            RULES[operator] = function
        return function

    return register


class Call:
    """One operation: the operator, its arguments, and the group of its split tensors."""

    __slots__ = ("args", "func", "group", "kwargs")

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], group: SplitGroup) -> None:
        self.func, self.args, self.kwargs, self.group = func, args, kwargs, group

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument by position or name."""
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)

    def wrap(self, local: Tensor, layout: TensorLayout) -> SplitTensor:
        return SplitTensor(local, layout, self.group)

    def wrap_cropped(self, local: Tensor, layout: TensorLayout) -> SplitTensor:
        """Return a split tensor whose parts may be cut out of larger memory."""
        result = SplitTensor(local, layout, self.group)
        result.has_gaps = True
        return result

    def bind(self, names: Sequence[str], defaults: Sequence[Any] = ()) -> list[Any]:
        """Return the arguments in the order of `names`; `defaults` are the defaults of the last names."""
        values = []
        missing = [None] * (len(names) - len(defaults)) + list(defaults)
        for position, (name, default) in enumerate(zip(names, missing, strict=True)):
            values.append(self.get(position, name, default))
        return values


@dataclass(frozen=True, slots=True)
class OperatorTraits:
    """Properties of an operator for `dispatch`: its rule; whether it returns views, writes, or reshapes in place."""

    rule: Rule | None
    decomposes: bool  # torch does this itself, except in inference mode
    is_view: bool
    changes_strides: bool
    is_mutable: bool
    writes_first: bool  # to its first argument and to nothing else
    changes_shape: bool


SAME_SHAPE_VIEWS = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}  # their rule keeps the strides
_traits_by_operator: dict[Any, OperatorTraits] = {}


def _get_traits(func: Any) -> OperatorTraits:
    traits = _traits_by_operator.get(func)
    if traits is None:
        found = RULES.get(func) or next((rule for find in GENERIC_RULES if (rule := find(func)) is not None), None)
        traits = _traits_by_operator[func] = OperatorTraits(
            rule=found,
            decomposes=func not in RULES
            and torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
            is_view=_is_view(func),
            changes_strides=_is_view(func) and func not in SAME_SHAPE_VIEWS,
            is_mutable=func._schema.is_mutable,
            writes_first=[at for at, argument in enumerate(func._schema.arguments) if _is_written(argument)] == [0],
            changes_shape=torch.Tag.inplace_view in func.tags,
        )
    return traits


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator on split and plain tensors."""
    first = args[0] if args and isinstance(args[0], SplitTensor) else None
    group = first.group if first is not None else _find_group(args, kwargs)
    call = Call(func, args, kwargs, group)
    traits = _traits_by_operator.get(func) or _get_traits(func)
    if first is not None and first.pending is not None and func in PENDING_RULES:
        result = PENDING_RULES[func](call)
        if result is not NO_RULE:
            return result
    if traits.changes_shape:
        return _change_shape(call)
    if traits.decomposes:
        return func.decompose(*args, **kwargs)
    if traits.is_view and torch.is_inference_mode_enabled() and first is not None and not first.is_inference():
        with torch.inference_mode(False), torch.no_grad():  # torch requires a view to be like its base
            return dispatch(func, args, kwargs)
    result = NO_RULE if traits.rule is None else traits.rule(call)
    if result is NO_RULE:
        result = compute_whole(call)
    elif traits.is_view and first is not None and first.source is not None:
        _link_views(call, first.source, result)
    if traits.changes_strides or (group.has_thin_parts and (_has_thin_part(result) or _has_thin_part(args))):
        result = _restore_strides(call, result)
    if traits.is_view and first is not None:
        for view in result if isinstance(result, tuple | list) else (result,):
            view.writes = first.writes
            if first.has_gaps:
                view.has_gaps = True
    if traits.is_mutable:
        for written in (first,) if traits.writes_first and first is not None else _list_written(call):
            if isinstance(written, SplitTensor):
                written.writes[0] += 1
    if group.log.active:
        group.log.add(func, result)
    return result


def _has_thin_part(values: Any) -> bool:
    """Return whether any split tensor among the values has a thin part, whose strides are ambiguous."""
    if isinstance(values, SplitTensor):
        return values.layout_on_ranks.has_thin_part
    if isinstance(values, tuple | list):
        for value in values:
            if isinstance(value, SplitTensor) and value.layout_on_ranks.has_thin_part:
                return True
    return False


def _change_shape(call: Call) -> SplitTensor:
    """Run an operator such as squeeze_ or transpose_, which changes the shape of its argument in place."""
    tensor: SplitTensor = call.args[0]
    packet = getattr(torch.ops.aten, call.func.overloadpacket.__name__.removesuffix("_"))
    overload = call.func._overloadname  # transpose_.default corresponds to transpose.int
    view = dispatch(getattr(packet, overload if overload in packet.overloads() else "int"), call.args, call.kwargs)
    with no_dispatch():
        call.func(*call.args, **call.kwargs)
    source = view.source
    tensor.local, tensor.layout_on_ranks, tensor.margin = view.local, view.layout_on_ranks, None
    tensor.source = None if source is None or source.base is tensor else source
    return tensor


def _restore_strides(call: Call, result: Any) -> Any:
    """Return a result with the strides that plain torch gives it. Strides of thin parts are ambiguous."""
    key = "strides", call.func, _describe_strides(call.args), _describe_strides(tuple(call.kwargs.items()))
    plans = call.group.plans
    if key not in plans:
        plans[key] = _compute_strides(call.func, *tree_flatten((call.args, call.kwargs)))
    strides: list[tuple[int, ...] | None] = plans[key]

    def restore(value: Any, stride: tuple[int, ...] | None) -> Any:
        if not isinstance(value, SplitTensor) or stride is None or value.stride() == stride:
            return value
        if any(value is argument for argument in tree_leaves((call.args, call.kwargs))):
            return value
        restored = SplitTensor(value.local, value.layout_on_ranks, value.group, stride)
        restored.__dict__.update(value.__dict__)
        return restored

    if not isinstance(result, tuple | list):
        return restore(result, strides[0] if strides else None)
    strides = strides if len(strides) == len(result) else [None] * len(result)
    return type(result)(restore(value, stride) for value, stride in zip(result, strides, strict=True))


def _describe_strides(value: Any) -> Any:
    """Return a key of an argument: results of arguments with equal keys have equal strides."""
    if isinstance(value, Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, tuple | list):
        return tuple([_describe_strides(entry) for entry in value])
    return float if isinstance(value, float) else repr(value)


def _compute_strides(func: Any, flat: Sequence[Any], spec: Any) -> list[tuple[int, ...] | None]:
    """Return the strides of an operator's results, computed on the meta device; empty if torch does not support it."""
    metas = [
        torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        if isinstance(value, Tensor)
        else torch.device("meta")
        if isinstance(value, torch.device)
        else value
        for value in flat
    ]
    args, kwargs = tree_unflatten(metas, spec)
    try:
        results = func(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        return []
    return [
        value.stride() if isinstance(value, Tensor) else None
        for value in (results if isinstance(results, tuple | list) else (results,))
    ]


GENERIC_RULES: list[Callable[[Any], Rule | None]] = []  # each returns a rule for an operator by its properties, or None


def _find_group(args: Iterable[Any], kwargs: dict[str, Any]) -> SplitGroup:
    for value in args:
        if isinstance(value, SplitTensor):
            return value.group
    flat, _ = tree_flatten((args, kwargs))
    for value in flat:
        if isinstance(value, SplitTensor):
            return value.group
    raise AssertionError("no split tensor among the arguments")


def get_local(tensor: SplitTensor) -> Tensor:
    """Return this rank's part. The part of a view that had to be copied is refreshed if its base has changed."""
    source = tensor.source
    if tensor.pending is not None:  # computed only if needed
        tensor.local, tensor.pending = tensor.pending(), None
    if source is not None and get_version(source.base) != source.version:
        whole = source.view(gather_in_order(source.base))
        tensor.local = slice_whole(whole, tensor.layout_on_ranks, tensor.group.rank).clone()
        tensor.source = CopiedView(source.base, get_version(source.base), source.view)
    return tensor.local


def get_margin(tensor: SplitTensor) -> Margin | None:
    """Return the margin of a tensor; None if it has none, or if the tensor or a view of it was written since."""
    margin = tensor.margin
    if margin is None or tensor.source is not None or tensor.pending is not None or margin.version != tensor.writes[0]:
        return None
    return margin


def get_version(tensor: SplitTensor) -> int:
    """Return the number of in-place writes; autograd's version counter does not exist in inference mode."""
    return tensor.writes[0]


def to_factors(local: Tensor, layout: TensorLayout, rank: int) -> Tensor:
    """View a rank's part with one dim per factor."""
    shape = layout.get_factor_shape(rank)
    return local if tuple(local.shape) == shape else local.reshape(shape)


@overload
def gather(tensor: Tensor) -> Tensor: ...
@overload
def gather(tensor: None) -> None: ...
def gather(tensor: Tensor | None) -> Tensor | None:
    """Return the whole tensor on every rank as a plain tensor; may share memory with the split tensor."""
    if not isinstance(tensor, SplitTensor):
        return tensor
    layout = tensor.layout_on_ranks
    local = get_local(tensor)
    if layout.is_whole:
        return local
    group = tensor.group
    whole = Box.from_sizes(layout.sizes)
    transfer = group.get_transfer(layout, (whole,) * layout.ranks)
    group.log.count_moves(transfer.moved, tensor.itemsize)
    return transfer.run(to_factors(local, layout, group.rank)).reshape(layout.shape)


def gather_in_order(tensor: SplitTensor) -> Tensor:
    """Return the whole tensor with the strides of the split tensor, which `as_strided` refers to."""
    return _put_in_order(gather(tensor), tensor)


def _put_in_order(whole: Tensor, tensor: SplitTensor) -> Tensor:
    is_expanded = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))
    if whole.stride() == tensor.stride() or is_expanded:
        return whole
    ordered = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return ordered.copy_(whole)


def slice_whole(tensor: Tensor, layout: TensorLayout, rank: int) -> Tensor:
    """Return a rank's part of a plain whole tensor; a view where possible."""
    box = layout.boxes[rank]
    if layout.is_plain and len(layout.sizes) == tensor.dim():
        return tensor[box.slices]
    return tensor.reshape(layout.sizes)[box.slices].reshape(layout.get_local_shape(rank))


def redistribute(tensor: Tensor, layout: TensorLayout, group: SplitGroup) -> Tensor:
    """Return this rank's part of a tensor in a different layout, as a plain tensor; may share memory."""
    if not isinstance(tensor, SplitTensor):
        return tensor if layout.is_whole else slice_whole(tensor, layout, group.rank)
    source, local = tensor.layout_on_ranks, get_local(tensor)
    if source is layout:
        return local
    rank = group.rank
    key = "redistribute", source, layout
    if key not in group.plans:
        group.plans[key] = _plan_redistribution(source, layout, group)
    plan = group.plans[key]
    if plan is None:
        return slice_whole(gather(tensor), layout, rank)
    fine_source, transfer = plan
    group.log.count_moves(transfer.moved, tensor.itemsize)
    part: Tensor = transfer.run(to_factors(local, fine_source, rank))
    return part.reshape(layout.get_local_shape(rank))


def _plan_redistribution(
    source: TensorLayout, target: TensorLayout, group: SplitGroup
) -> tuple[TensorLayout, Transfer] | None:
    if source.factors == target.factors:
        return source, group.get_transfer(source, target.boxes)
    factors = list_common_factors([source, target])
    if factors is None:
        return None
    fine_source, fine_target = refine(source, factors), refine(target, factors)
    if fine_source is None or fine_target is None:
        return None
    return fine_source, group.get_transfer(fine_source, fine_target.boxes)


def _gather_like_strides(tensor: SplitTensor) -> Tensor:
    """Gather a tensor, contiguous if and only if the split tensor is (the backward of `det` depends on it)."""
    whole = gather(tensor)
    same = whole.is_contiguous() == tensor.is_contiguous() and not tensor.layout_on_ranks.has_thin_part
    return whole if same else _put_in_order(whole, tensor)


def compute_whole(call: Call) -> Any:
    """Compute an operation from whole tensors on every rank. Split tensors that it writes to are updated."""
    group, func = call.group, call.func
    if group.strict:
        raise TesseraError(
            f"{func} is not computed on tiles for these arguments",
            do="use strict=False to compute it from whole tensors",
        )
    group.log.mark("whole")
    if _is_view(func):
        return _view_whole(call)
    flat, spec = tree_flatten((call.args, call.kwargs))
    wholes = {id(value): _gather_like_strides(value) for value in flat if isinstance(value, SplitTensor)}
    written = _list_written(call)
    for value in written:
        if isinstance(value, SplitTensor):
            wholes[id(value)] = wholes[id(value)].clone()
    args, kwargs = tree_unflatten([wholes.get(id(value), value) for value in flat], spec)
    result = func(*args, **kwargs)
    for value in written:
        if isinstance(value, SplitTensor):
            write(value, wholes[id(value)])
    originals = {id(wholes[id(value)]): value for value in written if isinstance(value, SplitTensor)}

    def wrap(tensor: Tensor) -> Tensor:
        if id(tensor) in originals:
            return originals[id(tensor)]
        if any(tensor is value for value in written):
            return tensor
        return SplitTensor(tensor, make_whole(tensor.shape, group.ranks), group)

    return tree_map_only(Tensor, wrap, result)


def _is_view(func: Any) -> bool:
    """Return whether an operator returns views of its first argument."""
    schema = func._schema
    first = schema.arguments[0].alias_info if schema.arguments else None
    return first is not None and not first.is_write


def _link_views(call: Call, source: CopiedView, results: Any) -> None:
    """Link views of a copied view to its base, so that writes reach the base."""
    for number, view in enumerate(results if isinstance(results, list | tuple) else [results]):
        if view.source is None:
            at = number if isinstance(results, list | tuple) else None
            base = source.base
            if call.func is torch.ops.aten.detach.default:  # a detached tensor must not keep the autograd graph alive
                base = SplitTensor(base.local, base.layout_on_ranks, base.group, base.stride())
                base.writes, base.source, base.pending = source.base.writes, source.base.source, source.base.pending
            view.source = CopiedView(base, source.version, _compose(source.view, call, at))


def _compose(view: Callable[[Tensor], Tensor], call: Call, number: int | None) -> Callable[[Tensor], Tensor]:
    """Return a function that applies a view operation to the result of another view function."""

    def make_view(whole: Tensor) -> Tensor:
        views = call.func(view(whole), *call.args[1:], **call.kwargs)
        return views if number is None else views[number]  # type: ignore[no-any-return]

    return make_view


def _view_whole(call: Call) -> Any:
    """Return views of a whole tensor. Views of a split tensor are copies; writes to a copy are written back."""
    base, group = call.args[0], call.group
    results = call.func(gather_in_order(base), *call.args[1:], **call.kwargs)

    def wrap(view: Tensor, number: int | None) -> SplitTensor:
        split = SplitTensor(view, make_whole(view.shape, group.ranks), group)
        # The decision must be equal on all ranks: a rank that owns all of a split base would not need a copy.
        is_copy = view.untyped_storage().data_ptr() != base.local.untyped_storage().data_ptr()
        if is_copy or not base.layout_on_ranks.is_whole:
            split.source = CopiedView(base, get_version(base), _compose(lambda whole: whole, call, number))
        return split

    if isinstance(results, Tensor):
        return wrap(results, None)
    return [wrap(view, number) for number, view in enumerate(results)]


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _list_written(call: Call) -> list[Any]:
    """Return the arguments that the operator writes to, according to its schema."""
    schema = call.func._schema
    if not schema.is_mutable:
        return []
    written = []
    for position, argument in enumerate(schema.arguments):
        if _is_written(argument):
            value = call.get(position, argument.name)
            written += list(value) if isinstance(value, list | tuple) else [value]
    return [value for value in written if value is not None]


def write(target: SplitTensor, whole: Tensor) -> None:
    """Overwrite a split tensor, and the base of a view that had to be copied, with a plain whole tensor."""
    get_local(target).copy_(slice_whole(whole, target.layout_on_ranks, target.group.rank))
    write_back(target)


def write_back(target: SplitTensor) -> None:
    """Copy a view that does not share its base's memory back to the base."""
    source = target.source
    if source is None:
        return
    whole = gather_in_order(source.base).clone()
    source.view(whole).copy_(gather(target))
    write(source.base, whole)
    # Autograd counts the current write after the operation.
    target.source = CopiedView(source.base, get_version(source.base) + 1, source.view)


def move_split(tensor: Tensor, whole_dims: Iterable[int], group: SplitGroup) -> tuple[Tensor, TensorLayout]:
    """Return this rank's part of a tensor in a layout with some dims whole, and the layout.

    A different dim is split over all ranks instead; if no dim is large enough, every rank gets the whole tensor.
    """
    whole = {dim % tensor.dim() for dim in whole_dims}
    if isinstance(tensor, SplitTensor) and not whole & set(tensor.layout_on_ranks.split_dims):
        return get_local(tensor), tensor.layout_on_ranks
    shape = tuple(tensor.shape)
    others = [dim for dim in range(len(shape)) if dim not in whole and shape[dim] >= group.ranks]
    best = max(others, key=lambda dim: (shape[dim] % group.ranks == 0, shape[dim]), default=None)
    if best is None:
        layout = make_whole(shape, group.ranks)
        group.log.mark("whole")
    else:
        layout = split_dims_evenly(shape, (best,), (group.ranks,))
        group.log.mark("moved")
    return redistribute(tensor, layout, group), layout


def reshape_split(tensor: SplitTensor, shape: Sequence[int]) -> SplitTensor | None:
    """Reshape a tensor part by part, without communication; None if the layout does not permit it."""
    layout = tensor.layout_on_ranks
    key = "reshape", layout, tuple(shape)
    plans = tensor.group.plans
    if key not in plans:
        plans[key] = reshape(layout, shape)
    target: TensorLayout | None = plans[key]
    if target is None:
        return None
    local = get_local(tensor)
    # All ranks decide from the strides of the whole tensor, and therefore identically, whether memory is shared.
    # A part that is a view of a wider one has gaps, so that most shapes need a copy.
    is_shared = tensor.is_contiguous() and not target.has_thin_part and not layout.has_thin_part
    is_shared &= not tensor.has_gaps
    if is_shared and not local.is_contiguous():
        tensor.local = local = local.contiguous()
    part = local.reshape(target.get_local_shape(tensor.group.rank))
    result = SplitTensor(part, target, tensor.group)
    if not is_shared:
        result.source = CopiedView(tensor, get_version(tensor), lambda whole: whole.reshape(tuple(shape)))
    return result
