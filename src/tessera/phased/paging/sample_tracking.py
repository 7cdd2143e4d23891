"""Find out whether a network computes every sample of a mini-batch without the other samples.

`SampleTracker` watches the operators of one pass. It follows the dim along which the samples of each tensor lie, with a
rule for each kind of operator. An operator without a rule, an operator that mixes samples, and Python code that reads
values of samples (branches, `item`, `tolist`) are obstacles: the samples may depend on each other. The decision does
not depend on the values of the samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary


@dataclass(frozen=True, slots=True)
class SampleDim:
    """The dim along which samples lie. Its entries are `outer` blocks of all samples, with `inner` entries per sample.

    `dim` is None for tensors that depend on inputs which are not split: they have no samples, but change between calls.
    """

    dim: int | None
    inner: int = 1
    outer: int = 1

    @property
    def index(self) -> int:
        assert self.dim is not None
        return self.dim

    def move(self, dim: int) -> SampleDim:
        """Return the same order of samples in another dim."""
        return SampleDim(dim, self.inner, self.outer)


UNSPLIT = SampleDim(None)


class SamplesMixed(Exception):
    """An operator may mix samples; the message says why."""


class _Call:
    """One call of an operator: its arguments by name, and the sample dims of its tensors."""

    def __init__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], tracker: SampleTracker) -> None:
        names = [argument.name for argument in func._schema.arguments]
        defaults = {argument.name: argument.default_value for argument in func._schema.arguments}
        self.arguments = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
        self.tracker, self.samples = tracker, tracker.samples
        self.tensors = [value for value in pytree.tree_leaves(list(self.arguments.values())) if _is_tensor(value)]
        self.strides = [tensor.stride() if tensor.layout == torch.strided else () for tensor in self.tensors]
        self.outputs: list[Tensor] = []

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get_dim(self, tensor: Any) -> SampleDim | None:
        return self.tracker.get_dim(tensor) if _is_tensor(tensor) else None

    def require_same(self, tensor: Tensor, dim: int, order: SampleDim) -> None:
        """Check that a tensor without samples has the same values for all samples along a dim, ordered as `order`."""
        if tensor.shape[dim] == 1:
            return
        if self.get_dim(tensor) is not None:
            raise SamplesMixed("an input that is not split has one value per sample")
        dim %= tensor.dim()
        shape = (*tensor.shape[:dim], order.outer, self.samples, order.inner, *tensor.shape[dim + 1 :])
        per_sample = tensor.detach().reshape(shape)
        if not torch.equal(per_sample, per_sample.narrow(dim + 1, 0, 1).expand_as(per_sample)):
            raise SamplesMixed("a constant has different values for different samples")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


class SampleTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the samples of a mini-batch through the operators of a pass; `obstacle` says why they may be mixed."""

    def __init__(self, inputs: Sequence[Tensor], samples: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.samples = samples
        self.obstacle = ""
        self._dims: MutableMapping[Tensor, SampleDim] = WeakTensorKeyDictionary()
        self._storages: dict[int, Any] = {}  # memory that holds samples
        self._reads = _ValueReads(self)
        for tensor in inputs:
            self._set_dim(tensor, SampleDim(0) if tensor.dim() and len(tensor) == samples else UNSPLIT)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Follow the operators of this thread."""
        with self._reads, self:
            yield

    def find_obstacle(self, outputs: Any) -> str:
        """Return why a pass with these outputs may mix samples; empty if it does not."""
        for value in pytree.tree_leaves(outputs):
            if not self.obstacle and isinstance(value, Tensor) and self._dims.get(value) != SampleDim(0):
                self.obstacle = "a result has not one value per sample"
        return self.obstacle

    def get_dim(self, tensor: Tensor) -> SampleDim | None:
        dim = self._dims.get(tensor)
        if dim is None:
            reference = self._storages.get(_get_storage_key(tensor))
            if reference is not None and not reference.expired():
                raise SamplesMixed("samples are read through another view of their memory")
        return dim

    def depends_on_inputs(self, tensor: Tensor) -> bool:
        try:
            return self.get_dim(tensor) is not None
        except SamplesMixed:
            return True

    def _set_dim(self, tensor: Tensor, dim: SampleDim) -> None:
        self._dims[tensor] = dim
        if tensor.layout == torch.strided:
            self._storages[_get_storage_key(tensor)] = StorageWeakRef(  # type: ignore[no-untyped-call]
                tensor.untyped_storage()
            )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.obstacle:
            return func(*args, **kwargs)
        with self:  # in inference mode, composite operators arrive whole
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        try:
            call = _Call(func, args, kwargs, self)
            dims = [dim for dim in map(call.get_dim, call.tensors) if dim is not None]
        except SamplesMixed as error:
            self.obstacle = f"{_get_name(func)}: {error}"
            return func(*args, **kwargs)
        shapes = [tensor.shape for tensor in call.tensors]
        result = func(*args, **kwargs)
        if not dims:
            return result
        call.outputs = [value for value in pytree.tree_leaves(result) if isinstance(value, Tensor)]
        try:
            if shapes != [tensor.shape for tensor in call.tensors]:
                raise SamplesMixed("the shape of an argument is changed")
            for tensor, dim in zip(call.outputs, _follow(func, call, dims), strict=True):
                if dim is not None:
                    self._check(tensor, dim)
                    self._set_dim(tensor, dim)
        except SamplesMixed as error:
            self.obstacle = f"{_get_name(func)}: {error}"
        return result

    def _check(self, tensor: Tensor, dim: SampleDim) -> None:
        if dim.dim is not None and tensor.shape[dim.dim] != dim.outer * self.samples * dim.inner:
            raise SamplesMixed("samples are selected or repeated")


class _ValueReads(TorchFunctionMode):
    """Notices reads of a tensor's values that are not operators."""

    NAMES = frozenset({"tolist", "numpy", "__array__", "__dlpack__"})

    def __init__(self, tracker: SampleTracker) -> None:
        super().__init__()
        self._tracker = tracker

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tracker = self._tracker
        name = getattr(func, "__name__", "")
        if name in self.NAMES and not tracker.obstacle and tracker.depends_on_inputs(args[0]):
            tracker.obstacle = f"{name}: Python code reads values of the samples"
        return func(*args, **(kwargs or {}))


def _get_storage_key(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata) if tensor.layout == torch.strided else 0


def _get_name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def _follow(func: Any, call: _Call, dims: Sequence[SampleDim]) -> Sequence[SampleDim | None]:
    """Return the sample dims of the outputs of a call."""
    if torch.Tag.nondeterministic_seeded in func.tags and call.arguments.get("dropout_p") != 0:
        raise SamplesMixed("random numbers are drawn")
    name = _get_name(func)
    if name in SHAPE_ONLY:
        return [None] * len(call.outputs)
    if not call.outputs or name in READS_VALUES:
        raise SamplesMixed("a branch on values of the samples")
    if all(dim.dim is None for dim in dims):
        return [UNSPLIT] * len(call.outputs)
    rule = RULES.get(name.removesuffix("_") if func._schema.is_mutable else name)
    if rule is None and torch.Tag.pointwise in func.tags:
        rule = follow_pointwise
    if rule is None:
        raise SamplesMixed("no rule for this operator")
    dim = rule(call)
    return list(dim) if isinstance(dim, list) else [dim] * len(call.outputs)


# Rules


Rule = Callable[[_Call], "SampleDim | list[SampleDim | None]"]
RULES: dict[str, Rule] = {}
SHAPE_ONLY = frozenset(
    "empty_like zeros_like ones_like full_like new_empty new_zeros new_ones new_full new_empty_strided".split()  # noqa: SIM905
)
READS_VALUES = frozenset(
    "_local_scalar_dense equal is_nonzero nonzero masked_select _unique2 unique_dim bincount allclose".split()  # noqa: SIM905
)


def register(names: str) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names.split(), rule))
        return rule

    return add


def _get_samples(call: _Call, argument: str = "self") -> SampleDim:
    """Return the sample dim of an argument, and check that no other tensor has samples."""
    dim = call.get_dim(call[argument])
    others = [tensor for tensor in call.tensors if tensor is not call[argument]]
    if dim is None or dim.dim is None or any(_has_samples(call, tensor) for tensor in others):
        raise SamplesMixed("an argument other than the first has samples")
    return dim


def _has_samples(call: _Call, tensor: Any) -> bool:
    dim = call.get_dim(tensor)
    return dim is not None and dim.dim is not None


def _wrap(dims: Any, rank: int) -> list[int]:
    return [dim % rank for dim in ([dims] if isinstance(dims, int) else dims)]


def _join(call: _Call, tensors: Sequence[Tensor], rank: int) -> SampleDim:
    """Return the common sample dim of tensors that are broadcast to `rank` dims."""
    dims = {
        dim.move(dim.dim + rank - tensor.dim())
        for tensor in tensors
        if (dim := call.get_dim(tensor)) is not None and dim.dim is not None
    }
    if len(dims) != 1:
        raise SamplesMixed("samples of the arguments lie in different dims")
    joined = dims.pop()
    for tensor in tensors:
        own = joined.index - rank + tensor.dim()
        if not _has_samples(call, tensor) and own >= 0:
            call.require_same(tensor, own, joined)
    return joined


@register(
    "masked_fill where clamp addcmul addcdiv lerp bitwise_and bitwise_or bitwise_not logical_not complex "
    "hardswish polar _to_copy clone alias detach lift_fresh fill zero nan_to_num native_dropout view_as_real"
)
def follow_pointwise(call: _Call) -> SampleDim:
    rank = max(tensor.dim() for tensor in call.tensors)
    return _join(call, call.tensors, rank)


@register("view _unsafe_view reshape _reshape_alias")
def follow_view(call: _Call) -> SampleDim:
    samples, source, shape = _get_samples(call), call["self"].shape, call.outputs[0].shape
    if call.arguments.get("dtype") is not None:
        raise SamplesMixed("values are reinterpreted")
    before = math.prod(source[: samples.index]) * samples.outer
    after = math.prod(source[samples.index + 1 :]) * samples.inner
    for at in range(len(shape)):
        outside, inside = math.prod(shape[:at]), math.prod(shape[at + 1 :])
        if inside and shape[at] > 1 and before % outside == 0 and after % inside == 0:
            return SampleDim(at, after // inside, before // outside)
    raise SamplesMixed("samples are merged with another dim")


@register("as_strided")
def follow_strides(call: _Call) -> SampleDim:
    """Strides that change only in dims of size 1, as in pooling of channels-last images."""
    samples, shape = _get_samples(call), call["self"].shape
    before = [stride for stride, size in zip(call.strides[0], shape, strict=True) if size > 1]
    after = [stride for stride, size in zip(call["stride"], call["size"], strict=True) if size > 1]
    if list(shape) != list(call["size"]) or before != after or call["storage_offset"] not in (None, 0):
        raise SamplesMixed("the layout in memory is changed")
    return samples


@register("expand repeat")
def follow_expand(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    return samples.move(samples.index + call.outputs[0].dim() - call["self"].dim())


@register("permute transpose t")
def follow_permutation(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    rank = call["self"].dim()
    order = list(range(rank))
    if "dims" in call.arguments:
        order = _wrap(call["dims"], rank)
    elif rank > 1:
        first, second = _wrap([call.arguments.get("dim0", 0), call.arguments.get("dim1", 1)], rank)
        order[first], order[second] = order[second], order[first]
    return samples.move(order.index(samples.index))


@register("unsqueeze")
def follow_unsqueeze(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    return samples.move(samples.index + (call["dim"] % (call["self"].dim() + 1) <= samples.index))


@register("squeeze")
def follow_squeeze(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    shape = call["self"].shape
    dims = call.arguments.get("dim", list(range(len(shape))))
    removed = [at for at in _wrap(dims, len(shape)) if shape[at] == 1]
    return samples.move(samples.index - sum(at < samples.index for at in removed))


@register("select unbind")
def follow_removed_dim(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    removed = call["dim"] % call["self"].dim()
    if removed == samples.index:
        raise SamplesMixed("single samples are selected")
    return samples.move(samples.index - (removed < samples.index))


@register("slice split unsafe_split split_with_sizes chunk narrow unfold roll flip")
def follow_kept_dims(call: _Call) -> SampleDim:
    """Operators that change the order or the number of entries along a dim: not along the samples."""
    samples = _get_samples(call)
    dims = call.arguments.get("dims") if "dims" in call.arguments else call.arguments.get("dim", 0)
    if "dimension" in call.arguments:
        dims = call["dimension"]
    unchanged = call.arguments.get("step") == 1 and call.outputs[0].shape == call["self"].shape  # a slice of all
    if not unchanged and (dims == [] or samples.index in _wrap(dims, call["self"].dim())):
        raise SamplesMixed("samples are moved or selected")
    return samples


@register(
    "sum mean amax amin max min argmax argmin any all prod var std var_mean std_mean logsumexp linalg_vector_norm "
    "norm median nanmedian count_nonzero aminmax mode kthvalue"
)
def follow_reduction(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    rank = call["self"].dim()
    dims = call.arguments.get("dim")
    if dims is None or dims == []:
        raise SamplesMixed("all samples are reduced to one value")
    removed = _wrap(dims, rank)
    if samples.index in removed:
        raise SamplesMixed("samples are reduced to one value")
    keep = call.outputs[0].dim() == rank
    return samples if keep else samples.move(samples.index - sum(at < samples.index for at in removed))


@register(
    "_softmax _log_softmax _safe_softmax cumsum cumprod cummax cummin logcumsumexp sort topk glu _fft_r2c _fft_c2c "
    "_fft_c2r renorm"
)
def follow_along_dim(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    if samples.index in _wrap(call["dim"], call["self"].dim()):
        raise SamplesMixed("the operator works along the samples")
    return samples


@register("tril triu")
def follow_triangle(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    if samples.index >= call["self"].dim() - 2:
        raise SamplesMixed("the operator works along the samples")
    return samples


@register("mm bmm addmm baddbmm mv")
def follow_product(call: _Call) -> SampleDim:
    names = [name for name in ("self", "mat1", "batch1", "mat2", "batch2", "vec") if name in call.arguments]
    left, right = call[names[-2]], call[names[-1]]
    rank = left.dim()
    batch = rank == 3
    has_left, has_right = _has_samples(call, left), _has_samples(call, right)
    if batch and 0 in {getattr(call.get_dim(value), "dim", None) for value in (left, right)}:
        out = _join(call, [left, right], 3)
    elif has_left and has_right:
        raise SamplesMixed("samples are multiplied by samples")
    elif has_left:
        out = call.get_dim(left)  # type: ignore[assignment]
        if out.dim == rank - 1:
            raise SamplesMixed("samples are summed")
    else:
        out = call.get_dim(right)  # type: ignore[assignment]
        if right.dim() == 1 or out.dim == rank - 2:
            raise SamplesMixed("samples are summed")
    if len(names) == 3:
        added, at = call[names[0]], out.index - call.outputs[0].dim()
        if _has_samples(call, added):
            if call.get_dim(added) != out.move(at + added.dim()):
                raise SamplesMixed("samples of the arguments lie in different dims")
        elif added.dim() >= -at:
            call.require_same(added, at, out)
    return out


@register("copy")
def follow_copy(call: _Call) -> SampleDim:
    source, rank = call["src"], call["self"].dim()
    if not _has_samples(call, source):
        return _join(call, call.tensors, rank)
    return _join(call, [source], rank)


@register("linear")
def follow_linear(call: _Call) -> SampleDim:
    samples = _get_samples(call, "input")
    if samples.index == call["input"].dim() - 1:
        raise SamplesMixed("samples are summed")
    return samples


@register(
    "convolution _convolution mkldnn_convolution _slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d "
    "slow_conv_dilated3d thnn_conv2d _conv_depthwise2d slow_conv_transpose2d slow_conv_transpose3d "
    "max_pool2d_with_indices max_pool3d_with_indices max_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d mkldnn_max_pool2d "
    "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d upsample_linear1d "
    "upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
    "pixel_shuffle pixel_unshuffle native_channel_shuffle channel_shuffle reflection_pad1d reflection_pad2d "
    "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col col2im"
)
def follow_images(call: _Call) -> SampleDim:
    """Operators that compute every entry of dim 0 separately."""
    samples = _get_samples(call, "input" if "input" in call.arguments else "self")
    if samples.index != 0:
        raise SamplesMixed("samples are not in the first dim")
    return samples


@register("grid_sampler_2d grid_sampler_3d")
def follow_grid_sampler(call: _Call) -> SampleDim:
    joined = _join(call, [call["input"], call["grid"]], call["input"].dim())
    if joined.dim != 0:
        raise SamplesMixed("samples are not in the first dim")
    return joined


@register("constant_pad_nd")
def follow_pad(call: _Call) -> SampleDim:
    samples = _get_samples(call)
    if any(call["pad"][2 * (call["self"].dim() - 1 - samples.index) :][:2]):
        raise SamplesMixed("samples are added")
    return samples


@register("native_layer_norm _fused_rms_norm")
def follow_layer_norm(call: _Call) -> SampleDim:
    samples = _get_samples(call, "input")
    if samples.index >= call["input"].dim() - len(call["normalized_shape"]):
        raise SamplesMixed("the norm is taken over samples")
    return samples


@register("native_group_norm")
def follow_group_norm(call: _Call) -> SampleDim:
    samples = _get_samples(call, "input")
    if samples.index != 0:
        raise SamplesMixed("samples are not in the first dim")
    return samples


@register("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_no_update")
def follow_batch_norm(call: _Call) -> list[SampleDim | None]:
    """Batch norms with running statistics; and instance norms, which have the samples in the dim of channels."""
    samples = _get_samples(call, "input")
    statistics = call.arguments.get("training", call.arguments.get("train", False))
    if samples.index == 1:
        for tensor in call.tensors:
            if tensor.dim() == 1:
                call.require_same(tensor, 0, samples)
    elif samples.index != 0 or statistics:
        raise SamplesMixed("statistics are taken over samples")
    rest = samples.move(0) if statistics else None
    return [samples, *(rest if output.numel() else None for output in call.outputs[1:])]


@register(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_fused_attention_overrideable"
)
def follow_attention(call: _Call) -> list[SampleDim | None]:
    values = [call[name] for name in ("query", "key", "value")]
    masks = [call[name] for name in ("attn_mask", "attn_bias") if isinstance(call.arguments.get(name), Tensor)]
    joined = _join(call, values + masks, values[0].dim())
    if joined.dim is None or joined.dim >= values[0].dim() - 2:
        raise SamplesMixed("attention between samples")
    return [joined if output.dim() >= 2 else None for output in call.outputs]


@register("embedding")
def follow_embedding(call: _Call) -> SampleDim:
    return _get_samples(call, "indices")


@register("index_select")
def follow_index_select(call: _Call) -> SampleDim:
    along = call["dim"] % max(call["self"].dim(), 1)
    if _has_samples(call, call["index"]):
        return _get_samples(call, "index").move(along)
    samples = _get_samples(call)
    if samples.index == along:
        raise SamplesMixed("samples are selected")
    return samples


@register("gather scatter scatter_add scatter_reduce")
def follow_gather(call: _Call) -> SampleDim:
    joined = _join(call, call.tensors, call["self"].dim())
    at = joined.index
    whole = len({tensor.shape[at] for tensor in call.tensors}) == 1
    if at == call["dim"] % call["self"].dim() or not whole:
        raise SamplesMixed("samples are selected")
    return joined


@register("index _unsafe_index")
def follow_index(call: _Call) -> SampleDim:
    table, indices = call["self"], call["indices"]
    places = [at for at, index in enumerate(indices) if index is not None]
    given = [indices[at] for at in places]
    rank = max(index.dim() for index in given)
    together = places == list(range(places[0], places[0] + len(places)))
    start = places[0] if together else 0
    if any(index.dtype in (torch.bool, torch.uint8) for index in given):
        raise SamplesMixed("samples are selected by a mask")
    if not _has_samples(call, table):
        joined = _join(call, given, rank)
        return joined.move(start + joined.index)
    samples = call.get_dim(table)
    assert samples is not None
    if samples.index in places:
        own = indices[samples.index]
        counts = torch.arange(call.samples, device=own.device)
        plain = samples == SampleDim(samples.dim) and call.get_dim(own) is None
        if not plain or not torch.equal(own.flatten().long(), counts):
            raise SamplesMixed("samples are selected")
        joined = SampleDim(own.shape.index(call.samples) + rank - own.dim())
        for index in given:
            if index is own:
                continue
            if _has_samples(call, index):
                if _join(call, [index], rank) != joined:
                    raise SamplesMixed("samples of the arguments lie in different dims")
            elif index.dim() >= rank - joined.index:
                call.require_same(index, joined.index - rank, joined)
        return joined.move(start + joined.index)
    if any(_has_samples(call, index) for index in given):
        raise SamplesMixed("samples select entries of other samples")
    if together and start > samples.index:
        return samples
    return samples.move(samples.index - sum(at < samples.index for at in places) + rank)


@register("cat stack")
def follow_join(call: _Call) -> SampleDim:
    tensors = [tensor for tensor in call["tensors"] if tensor.dim() != 1 or len(tensor)]
    rank = tensors[0].dim()
    joined = _join(call, tensors, rank)
    if call.outputs[0].dim() > rank:
        return joined.move(joined.index + (call["dim"] % (rank + 1) <= joined.index))
    if call["dim"] % rank == joined.index:
        raise SamplesMixed("samples are appended")
    return joined


@register("view_as_complex")
def follow_view_as_complex(call: _Call) -> SampleDim:
    return _get_samples(call)


@register("_native_multi_head_attention _transformer_encoder_layer_fwd")
def follow_fused_attention(call: _Call) -> list[SampleDim | None]:
    samples = [tensor for tensor in call.tensors if _has_samples(call, tensor)]
    if any(call.get_dim(tensor) != SampleDim(0) for tensor in samples):
        raise SamplesMixed("samples are not in the first dim")
    if isinstance(mask := call.arguments.get("mask"), Tensor) and mask.dim() and not _has_samples(call, mask):
        raise SamplesMixed("a mask without samples")
    return [SampleDim(0) if output.dim() else None for output in call.outputs]
