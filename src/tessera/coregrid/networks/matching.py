"""Recorded calls of a network as layers: batch norms are folded, activations are fused, views are followed.

A call that has no operation of its own on the device becomes a layer of kind `elementwise` (values stay where they are)
or `other` (computed from tensors in global memory)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.networks.layers import NETWORK_INPUT, GridLayer, GridNetwork, LayerKind
from tessera.coregrid.networks.recording import NetworkRecording, RecordedCall, ValueRef, WeightRef
from tessera.errors import TesseraError

ACTIVATION_OPERATIONS = ("relu", "silu", "sigmoid", "tanh", "hardswish")  # fusable, named as on the device
NO_OP_OPERATIONS = ("clone", "alias", "detach", "contiguous", "lift_fresh", "dropout", "_to_copy")
VIEW_OPERATIONS = ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "flatten")
BATCH_NORM_OPERATIONS = ("native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit")


def match_layers(recording: NetworkRecording, name: str) -> GridNetwork:
    """Return the layers of a recorded network."""
    return _Matcher(recording).build(name)


class _Matcher:
    """The layers so far, and the layer and shape of every recorded value."""

    def __init__(self, recording: NetworkRecording) -> None:
        self.recording, self.calls = recording, recording.calls
        self.layers: list[GridLayer] = []
        self.values: dict[ValueRef, tuple[int, tuple[int, ...]]] = {
            ValueRef(-1, number): (NETWORK_INPUT, shape) for number, shape in enumerate(recording.input_shapes)
        }
        self.readers: dict[ValueRef, int] = {}  # number of calls that read a value
        for call in self.calls:
            for reference in call.list_references(ValueRef):
                self.readers[reference] = self.readers.get(reference, 0) + 1
        for reference in recording.outputs:
            self.readers[reference] = self.readers.get(reference, 0) + 1
        self.flattened: dict[ValueRef, tuple[ValueRef, tuple[int, int, int]]] = {}  # view: images that it flattens
        self.final: dict[int, ValueRef] = {}  # layer: its value, after fused batch norm and activation
        self.taken: dict[str, int] = {}

    def build(self, name: str) -> GridNetwork:
        if len(self.recording.input_shapes) != 1 or len(self.recording.input_shapes[0]) != 4:
            raise TesseraError("a network on the core grid requires one input", allowed="images (N, C, H, W)")
        for number, call in enumerate(self.calls):
            if any(reference in self.values for reference in call.list_references(ValueRef)):
                self._match_call(number, call)
        ends = [self.values.get(reference) for reference in self.recording.outputs]
        if not self.layers or any(end is None or end[0] < 0 for end in ends):
            raise TesseraError("the network has no layers for the core grid", got=name)
        known = [end for end in ends if end is not None]
        return GridNetwork(
            name=name,
            batch=self.recording.input_shapes[0][0],
            layers=tuple(self.layers),
            input_shape=self.recording.input_shapes[0],
            outputs=tuple(layer for layer, _ in known),
            output_shapes=tuple(shape for _, shape in known),
            calls=self.calls,
            aliases=dict(self.values),
        )

    def _match_call(self, number: int, call: RecordedCall) -> None:
        operation = call.name.removesuffix("_") if call.name != "_to_copy" else call.name
        source = next(reference for reference in call.list_references(ValueRef) if reference in self.values)
        if operation in NO_OP_OPERATIONS and call.shapes[0] == self.values[source][1]:
            self._alias(ValueRef(number), source, call.shapes[0])
        elif (
            (operation in VIEW_OPERATIONS and self._match_view(number, call, source))
            or (operation in BATCH_NORM_OPERATIONS and self._fold_norm(number, call, source))
            or ((activation := _find_activation(operation, call)) and self._fuse_activation(number, source, activation))
        ):
            return
        else:
            matcher = _MATCHERS.get(operation)
            if matcher is None or not matcher(self, number, call):
                self._add_general_layer(number, call)

    def _alias(self, value: ValueRef, source: ValueRef, shape: tuple[int, ...]) -> None:
        self.values[value] = self.values[source][0], shape
        if source in self.flattened:
            self.flattened[value] = self.flattened[source]
        layer = self.values[source][0]
        if self.final.get(layer) == source and self.readers.get(source, 0) == 1:
            self.final[layer] = value

    def _match_view(self, number: int, call: RecordedCall, source: ValueRef) -> bool:
        """Follow a view that leaves rows and columns as they are, or that flattens images for linear layers."""
        before, after = self.values[source][1], call.shapes[0]
        pixels = [size for size in before[2:] if size != 1] if len(before) == 4 else []
        if len(before) == 4 and len(after) == 2 and after[0] == before[0] and pixels:
            if self._is_read_by_linear_layers_only(ValueRef(number)):
                self.values[ValueRef(number)] = self.values[source][0], after
                self.flattened[ValueRef(number)] = source, (before[1], before[2], before[3])
                return True
            return False
        same_rows = _strip_ones(before) == _strip_ones(after) and (len(before) != 4 or not pixels)
        if same_rows and (len(after) != 4 or after[2:] == (1, 1)) and _get_columns(before) == _get_columns(after):
            self._alias(ValueRef(number), source, after)
            return True
        return False

    def _is_read_by_linear_layers_only(self, value: ValueRef) -> bool:
        for number, call in enumerate(self.calls):
            if value not in call.list_references(ValueRef):
                continue
            if call.name in NO_OP_OPERATIONS:
                if not self._is_read_by_linear_layers_only(ValueRef(number)):
                    return False
            elif call.name not in ("addmm", "mm") or call.args[1 if call.name == "addmm" else 0] != value:
                return False
        return value not in self.recording.outputs

    def _fold_norm(self, number: int, call: RecordedCall, source: ValueRef) -> bool:
        layer = self._get_fusable(source, ("conv",))
        if layer is None or layer.norm is not None or layer.activation or call.get_argument("training"):
            return False
        self._replace(source, number, replace(layer, norm=number, calls=(*layer.calls, number)))
        return True

    def _fuse_activation(self, number: int, source: ValueRef, activation: str) -> bool:
        layer = self._get_fusable(source, ("conv", "linear", "conv_transpose", "add"))
        if layer is None or layer.activation:
            return False
        self._replace(source, number, replace(layer, activation=activation, calls=(*layer.calls, number)))
        return True

    def _get_fusable(self, source: ValueRef, kinds: tuple[LayerKind, ...]) -> GridLayer | None:
        """Return the layer that computes `source`, if only the present call reads `source`."""
        number = self.values[source][0]
        if number < 0 or self.readers.get(source) != 1 or self.final.get(number) != source:
            return None
        return self.layers[number] if self.layers[number].kind in kinds else None

    def _replace(self, source: ValueRef, call: int, layer: GridLayer) -> None:
        number = self.values[source][0]
        self.layers[number] = layer
        self.values[ValueRef(call)] = number, self.calls[call].shapes[0]
        self.final[number] = ValueRef(call)

    def add_layer(
        self,
        number: int,
        call: RecordedCall,
        kind: LayerKind,
        sources: list[ValueRef],
        *,
        output: int = 0,
        **fields: Any,
    ) -> bool:
        """Append a layer for one output of a call."""
        name = call.module or call.name
        if (
            kind not in ("conv", "conv_transpose", "linear", "max_pool", "avg_pool", "global_pool")
            or name in self.taken
        ):
            name = f"{call.module}.{call.name}" if call.module else call.name
        count = self.taken[name] = self.taken.get(name, 0) + 1
        self.layers.append(
            GridLayer(
                name=name if count == 1 else f"{name}_{count}",
                kind=kind,
                inputs=tuple(self.values[source][0] for source in sources)
                if fields.get("folding", 1) == 1
                else (len(self.layers) - 1,),
                shape=call.shapes[output],
                calls=(number,),
                **fields,
            )
        )
        self.values[ValueRef(number, output)] = len(self.layers) - 1, call.shapes[output]
        self.final[len(self.layers) - 1] = ValueRef(number, output)
        return True

    def fold_input(self, conv: Convolution, folding: int) -> None:
        """Append a layer that folds the input images before a convolution, which reads the folded images."""
        folded = fold_convolution(conv, folding)
        self.layers.append(
            GridLayer(
                name="fold" if "fold" not in self.taken else f"fold_{len(self.layers)}",
                kind="fold",
                shape=(folded.batch, folded.in_channels, folded.height, folded.width),
                conv=conv,
                folding=folding,
            )
        )
        self.taken["fold"] = 1

    def _add_general_layer(self, number: int, call: RecordedCall) -> None:
        references = [each for each in call.list_references(ValueRef) if each in self.values]
        if any(each in self.flattened for each in references):
            raise TesseraError("the flattened images of a network must be read by linear layers", got=call.name)
        used = [output for output in range(len(call.shapes)) if ValueRef(number, output) in self.readers]
        if any(output > 0 for output in used):
            # several outputs (split, chunk, unbind): one layer for each
            for output in used:
                self.add_layer(number, call, "other", references, output=output)
            return
        shapes = {self.values[reference][1] for reference in references}
        largest = max(shapes, key=_count)
        pointwise = torch.Tag.pointwise in call.function.tags and call.shapes[0] == largest
        if pointwise and all(_is_broadcast_along_pixels(shape, largest) for shape in shapes):
            references.sort(key=lambda reference: -_count(self.values[reference][1]))
            self.add_layer(number, call, "elementwise", references)
        else:
            self.add_layer(number, call, "other", references)

    def get_shape(self, value: Any) -> tuple[int, ...]:
        """Return the shape of a recorded value."""
        return self.values[value][1]

    def is_value(self, argument: Any) -> bool:
        """Return whether an argument is an activation, i.e. depends on the network's input and is not flattened."""
        return isinstance(argument, ValueRef) and argument in self.values and argument not in self.flattened


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _strip_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def _get_columns(shape: tuple[int, ...]) -> int:
    return shape[1] if len(shape) == 4 else shape[-1]


def _is_broadcast_along_pixels(shape: tuple[int, ...], largest: tuple[int, ...]) -> bool:
    """Return whether a tensor has the shape of the largest, or one value per image and channel."""
    return shape == largest or (len(largest) == 4 and shape == (*largest[:2], 1, 1))


def _find_activation(operation: str, call: RecordedCall) -> str:
    if operation in ACTIVATION_OPERATIONS:
        return operation
    if operation == "gelu" and call.get_argument("approximate") == "none":
        return operation
    if operation == "hardtanh" and (call.get_argument("min_val"), call.get_argument("max_val")) == (0, 6):
        return "relu6"
    return ""


def _match_convolution(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    image, weight, bias, stride, padding, dilation, transposed, extra, groups = call.args[:9]
    shape = call.shapes[0]
    if (
        len(shape) != 4
        or not matcher.is_value(image)
        or not all(_is_constant(matcher, each) for each in (weight, bias))
    ):
        return False
    batch, channels, height, width = matcher.get_shape(image)
    kernel = _get_weight_shape(matcher, weight)[2:]
    stride, padding, dilation = (_expand_pair(each) for each in (stride, padding, dilation))
    kind: LayerKind = "conv"
    sides = tuple((side, side) for side in padding)
    if transposed:
        kind = "conv_transpose"
        extra = _expand_pair(extra)
        reaches = [apart * (size - 1) for apart, size in zip(dilation, kernel, strict=True)]
        sides = tuple(
            (reach - pad, reach - pad + more) for reach, pad, more in zip(reaches, padding, extra, strict=True)
        )
        if min(side for pair in sides for side in pair) < 0:
            return False
        height, width = ((size - 1) * step + 1 for size, step in zip((height, width), stride, strict=True))
        stride = (1, 1)
    conv = Convolution(
        batch=batch,
        height=height,
        width=width,
        in_channels=channels,
        out_channels=shape[1],
        kernel=(kernel[0], kernel[1]),
        stride=stride,
        padding=(sides[0], sides[1]),
        dilation=dilation,
        groups=groups,
    )
    folding = _find_folding(conv) if kind == "conv" and matcher.values[image][0] == NETWORK_INPUT else 1
    if folding > 1:
        matcher.fold_input(conv, folding)
        conv = fold_convolution(conv, folding)
    return matcher.add_layer(number, call, kind, [image], conv=conv, weight=weight, bias=bias, folding=folding)


MAX_FOLDED_CHANNELS = 16  # folded images of more channels do not read faster


def _find_folding(conv: Convolution) -> int:
    """Return the stride by which images of few channels are folded, so that the convolution has stride 1; or 1."""
    step = conv.stride[0]
    foldable = conv.stride[0] == conv.stride[1] and conv.dilation == (1, 1) and conv.groups == 1
    overlapping = min(conv.kernel) > step > 1
    return step if foldable and overlapping and conv.in_channels * step**2 <= MAX_FOLDED_CHANNELS else 1


def fold_convolution(conv: Convolution, step: int) -> Convolution:
    """Return the convolution of stride 1 over padded images whose blocks of `step` x `step` pixels are one pixel."""
    kernel = -(-conv.kernel[0] // step), -(-conv.kernel[1] // step)
    height, width = (size + taps - 1 for size, taps in zip(conv.output_size, kernel, strict=True))
    return Convolution(
        batch=conv.batch,
        height=height,
        width=width,
        in_channels=conv.in_channels * step**2,
        out_channels=conv.out_channels,
        kernel=kernel,
    )


def _match_linear(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    bias, rows, weight = call.args[:3] if call.name == "addmm" else (None, *call.args[:2])
    if call.kwargs or not isinstance(rows, ValueRef) or rows not in matcher.values:
        return False
    if not all(_is_constant(matcher, each) for each in (weight, bias)) or len(call.args) > (
        3 if bias is not None else 2
    ):
        return False
    if bias is not None and _get_weight_shape(matcher, bias) != call.shapes[0][1:]:
        return False
    batch, features = matcher.get_shape(rows)
    flattened = matcher.flattened.get(rows)
    conv = Convolution(
        batch=batch, height=1, width=1, in_channels=features, out_channels=call.shapes[0][1], kernel=(1, 1)
    )
    source, image = flattened if flattened else (rows, None)
    return matcher.add_layer(number, call, "linear", [source], conv=conv, weight=weight, bias=bias, flattened=image)


def _match_pool(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    image = call.args[0]
    if not matcher.is_value(image) or ValueRef(number, 1) in matcher.readers or len(call.shapes[0]) != 4:
        return False
    batch, channels, height, width = matcher.get_shape(image)
    kernel = _expand_pair(call.get_argument("kernel_size"))
    stride = _expand_pair(call.get_argument("stride") or kernel)
    padding = _expand_pair(call.get_argument("padding"))
    is_max = call.name.startswith("max")
    dilation = _expand_pair(call.get_argument("dilation")) if is_max else (1, 1)
    ordinary = is_max or (call.get_argument("count_include_pad") and call.get_argument("divisor_override") is None)
    if call.get_argument("ceil_mode") or not ordinary:
        return False
    conv = _make_pool(batch, channels, (height, width), kernel, stride, padding, dilation)
    return matcher.add_layer(number, call, "max_pool" if is_max else "avg_pool", [image], conv=conv)


def _match_mean(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    image = call.args[0]
    if not matcher.is_value(image) or len(matcher.get_shape(image)) != 4:
        return False
    batch, channels, height, width = matcher.get_shape(image)
    if call.name == "mean":
        dims = call.get_argument("dim")
        if not isinstance(dims, list | tuple) or sorted(dim % 4 for dim in dims) != [2, 3]:
            return False
    elif call.shapes[0][2:] == (height, width):
        matcher.values[ValueRef(number)] = matcher.values[image][0], call.shapes[0]
        return True
    elif call.shapes[0][2:] != (1, 1):
        return False
    conv = _make_pool(batch, channels, (height, width), (height, width), (1, 1), (0, 0), (1, 1))
    return matcher.add_layer(number, call, "global_pool", [image], conv=conv)


def _make_pool(
    batch: int, channels: int, image: Any, kernel: Any, stride: Any, padding: Any, dilation: Any
) -> Convolution:
    return Convolution(
        batch=batch,
        height=image[0],
        width=image[1],
        in_channels=channels,
        out_channels=channels,
        kernel=kernel,
        stride=stride,
        padding=((padding[0], padding[0]), (padding[1], padding[1])),
        dilation=dilation,
        groups=channels,
    )


def _match_sum_or_product(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    left, right = call.args[:2]
    if not matcher.is_value(left) or not matcher.is_value(right) or call.kwargs.get("alpha", 1) != 1:
        return False
    if matcher.get_shape(left) != matcher.get_shape(right) or len(call.shapes[0]) != 4:
        return False
    return matcher.add_layer(number, call, "add" if call.name.startswith("add") else "mul", [left, right])


def _match_concat(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    values = call.args[0]
    dim = call.get_argument("dim")
    if len(call.shapes[0]) != 4 or dim % 4 != 1 or not all(matcher.is_value(value) for value in values):
        return False
    return matcher.add_layer(number, call, "concat", list(values))


def _match_upsample(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    image = call.args[0]
    if not matcher.is_value(image) or (
        call.name.startswith("upsample_bilinear") and call.get_argument("align_corners")
    ):
        return False
    before, after = matcher.get_shape(image)[2:], call.shapes[0][2:]
    if any(large % small for large, small in zip(after, before, strict=True)):
        return False
    return matcher.add_layer(number, call, "upsample", [image])


def _match_norm(matcher: _Matcher, number: int, call: RecordedCall) -> bool:
    if not matcher.is_value(call.args[0]) or any(ValueRef(number, output) in matcher.readers for output in (1, 2)):
        return False
    if call.name in BATCH_NORM_OPERATIONS and call.get_argument("training"):
        return False
    return matcher.add_layer(number, call, "norm", [call.args[0]])


def _is_constant(matcher: _Matcher, argument: Any) -> bool:
    """Return whether an argument does not depend on the network's input."""
    return argument is None or isinstance(argument, WeightRef) or argument not in matcher.values


def _get_weight_shape(matcher: _Matcher, argument: Any) -> tuple[int, ...]:
    if isinstance(argument, ValueRef):
        return matcher.calls[argument.call].shapes[argument.output]
    assert isinstance(argument, WeightRef)
    return matcher.recording.weight_shapes[argument.name]


def _expand_pair(value: Any) -> tuple[int, int]:
    """Return (height, width) from a list of one or two numbers, or a number."""
    numbers = [value] if isinstance(value, int) else list(value)
    return (numbers[0], numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


_MATCHERS: dict[str, Callable[[_Matcher, int, RecordedCall], bool]] = {
    "convolution": _match_convolution,
    "addmm": _match_linear,
    "mm": _match_linear,
    "max_pool2d_with_indices": _match_pool,
    "avg_pool2d": _match_pool,
    "mean": _match_mean,
    "_adaptive_avg_pool2d": _match_mean,
    "add": _match_sum_or_product,
    "mul": _match_sum_or_product,
    "cat": _match_concat,
    "upsample_nearest2d": _match_upsample,
    "upsample_bilinear2d": _match_upsample,
    "native_group_norm": _match_norm,
    "native_layer_norm": _match_norm,
    **dict.fromkeys(BATCH_NORM_OPERATIONS, _match_norm),
}
