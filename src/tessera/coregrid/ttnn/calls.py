"""Functions and types of ttnn whose arguments or defaults differ from those of `tessera.coregrid`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from tessera.coregrid import config as settings
from tessera.coregrid import formats
from tessera.coregrid.activations import UnaryOpType, UnaryWithParam, normalise_activation
from tessera.coregrid.cores import CoreCoord, CoreRange, CoreRangeSet
from tessera.coregrid.device import device as devices
from tessera.coregrid.device.storage import read_values, write_values
from tessera.coregrid.device.tensors import Tensor, from_torch, to_memory_config, to_torch
from tessera.coregrid.device.tensors import from_device as copy_to_host
from tessera.coregrid.execution.weights import PreparedTensor
from tessera.coregrid.formats import Layout
from tessera.coregrid.memory_config import (
    MemoryConfig,
    ShardOrientation,
    ShardStrategy,
    TensorMemoryLayout,
    create_sharded_memory_config,
)
from tessera.coregrid.operations import conv2d as convolutions
from tessera.coregrid.operations.add import add_ as add_shards
from tessera.coregrid.operations.shapes import move
from tessera.coregrid.operations.values import refuse_unsupported
from tessera.errors import TesseraError
from tessera.geometry import Mesh

MACHINE_VARIABLE = "TESSERA_TTNN_MACHINE"
MeshDevice = devices.Device
# Formats that programs name and that tensors of the model cannot have.
uint8, uint16, uint32, int8, int32 = (
    formats.DataType(name, size * 1024, dtype)
    for name, size, dtype in (
        ("uint8", 1, torch.uint8),
        ("uint16", 2, torch.uint16),
        ("uint32", 4, torch.uint32),
        ("int8", 1, torch.int8),
        ("int32", 4, torch.int32),
    )
)
fp8_e4m3 = formats.DataType("fp8_e4m3", 1024, torch.float8_e4m3fn)


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class TtnnConvConfig(settings.Conv2dConfig):
    """`Conv2dConfig` with ttnn's defaults: formats of the tensors, and a haloed input that is moved."""

    dtype: formats.DataType = formats.tensor_dtype
    weights_dtype: formats.DataType = formats.tensor_dtype
    reallocate_halo_output: bool = True
    padding_mode: Any = None

    def __post_init__(self) -> None:
        settings.Conv2dConfig.__post_init__(self)
        if self.padding_mode not in (None, PaddingMode.Zeros):
            raise TesseraError("unsupported padding_mode", got=self.padding_mode, allowed="PaddingMode.Zeros")


Conv2dConfig = Conv1dConfig = TtnnConvConfig
Conv2dL1FullSliceConfig = settings.SliceConfig(in_local_memory=True)


class PaddingMode(Enum):
    """Values of the padding. The model pads with zeros."""

    Zeros = "zeros"
    Replicate = "replicate"


class ThrottleLevel(Enum):
    """Throttling of the chip, which the model does not have."""

    NO_THROTTLE = 0
    LEVEL_1 = 1
    LEVEL_2 = 2
    LEVEL_3 = 3
    LEVEL_4 = 4
    LEVEL_5 = 5


class StorageType(Enum):
    """Place of a tensor."""

    HOST = "host"
    DEVICE = "device"


class NamedFormats:
    """Number formats under their ttnn names."""

    BFLOAT16, FLOAT32 = formats.bfloat16, formats.float32
    BFLOAT8_B, BFLOAT4_B = formats.bfloat8_b, formats.bfloat4_b

    def __new__(cls, value: formats.DataType | str) -> formats.DataType:  # type: ignore[misc]
        """Return a format, given as itself or by name."""
        if isinstance(value, formats.DataType):
            return value
        if value.lower() not in formats.DTYPES:
            raise TesseraError("unknown dtype", got=value, allowed=formats.DTYPES)
        return formats.DTYPES[value.lower()]


DataType = NamedFormats


class Shape(tuple[int, ...]):
    """A shape, as a tuple."""

    def to_rank(self, rank: int) -> Shape:
        """Return the shape with leading dims of size 1, up to `rank` dims."""
        return Shape((1,) * (rank - len(self)) + tuple(self))


@dataclass(frozen=True, slots=True, init=False)
class MatmulProgram:
    """Settings of a matrix product on the chip. The model applies the activation; it does not need the others."""

    fused_activation: str

    def __init__(self, *, fused_activation: Any = None, **_: Any) -> None:
        if isinstance(fused_activation, list | tuple):  # a function and its parameters
            name, *parameters = fused_activation
            fused_activation = UnaryWithParam(name, *([] if name == UnaryOpType.GELU else parameters))
        object.__setattr__(self, "fused_activation", normalise_activation(fused_activation))


MatmulMultiCoreReuseMultiCast1DProgramConfig = MatmulMultiCoreReuseMultiCastProgramConfig = MatmulProgram


def CoreGrid(*, y: int, x: int) -> CoreRangeSet:
    """Return `y` rows of `x` cores at the top left of a grid."""
    return CoreRangeSet.of_rectangle(y, x)


def open_device(*, device_id: int = 0, l1_small_size: int = 0, **_: Any) -> devices.Device:
    """Open the device of the machine that TESSERA_TTNN_MACHINE names (default: wormhole-n150)."""
    name = os.environ.get(MACHINE_VARIABLE, devices.DEFAULT_MACHINE)
    return devices.open_device(name, device_id=device_id, l1_small_size=l1_small_size)


def get_arch_name() -> str:
    """Return the name of the chip's architecture."""
    name = os.environ.get(MACHINE_VARIABLE, devices.DEFAULT_MACHINE)
    return "wormhole_b0" if name.startswith("wormhole") else name.partition("-")[0]


def get_num_devices() -> int:
    """Return 1: a machine has one device."""
    return 1


def num_cores_to_corerangeset(target: int, grid_size: CoreCoord, row_wise: bool = False) -> CoreRangeSet:
    """Return the first `target` cores of a grid, row by row or column by column."""
    if row_wise:
        return CoreRangeSet.of_first(target, Mesh(grid_size.y, grid_size.x))
    full, rest = divmod(target, grid_size.y)
    parts = [CoreRange(CoreCoord(0, 0), CoreCoord(full - 1, grid_size.y - 1))] if full else []
    if rest:
        parts.append(CoreRange(CoreCoord(full, 0), CoreCoord(full, rest - 1)))
    return CoreRangeSet(parts)


def conv2d(*, input_tensor: Tensor, weight_tensor: Tensor, **arguments: Any) -> Any:
    """Convolve images, as `tessera.coregrid.conv2d`, with ttnn's defaults."""
    arguments.setdefault("conv_config", None)
    arguments["conv_config"] = arguments["conv_config"] or TtnnConvConfig()
    _rename_arguments(arguments)
    return convolutions.conv2d(input_tensor=input_tensor, weight_tensor=weight_tensor, **arguments)


def conv_transpose2d(
    *, input_tensor: Tensor, weight_tensor: Tensor, mirror_kernel: bool = True, **arguments: Any
) -> Any:
    """Compute a transposed convolution, as `tessera.coregrid.conv_transpose2d`, with ttnn's defaults."""
    arguments["conv_config"] = arguments.get("conv_config") or TtnnConvConfig()
    _rename_arguments(arguments)
    if not isinstance(weight_tensor, convolutions.MatmulWeights | PreparedTensor):
        weight_tensor = prepare_conv_transpose2d_weights(weight_tensor=weight_tensor, mirror_kernel=mirror_kernel)
    return convolutions.conv_transpose2d(input_tensor=input_tensor, weight_tensor=weight_tensor, **arguments)


def _rename_arguments(arguments: dict[str, Any]) -> None:
    """Rename ttnn's `dram_slice_config`, and drop arguments without effect."""
    arguments.pop("queue_id", None)
    slices = arguments.pop("dram_slice_config", None)
    if slices is not None:
        arguments["slice_config"] = slices


def conv1d(
    *,
    input_tensor: Tensor,
    weight_tensor: Tensor,
    kernel_size: int,
    input_length: int,
    in_channels: int,
    batch_size: int,
    stride: int = 1,
    padding: int | Sequence[int] = 0,
    dilation: int = 1,
    return_output_dim: bool = False,
    **arguments: Any,
) -> Any:
    """Convolve sequences `(N, L, C)` with weights `(Co, Ci / groups, K)`; the output size is one number."""
    sides = (padding, padding) if isinstance(padding, int) else tuple(padding)
    if not weight_tensor.is_on_device and len(weight_tensor.shape) == 3:
        weight_tensor = from_torch(to_torch(weight_tensor)[:, :, None], weight_tensor.dtype)
    results = conv2d(
        input_tensor=input_tensor.reshape((batch_size, 1, input_length, in_channels)),
        weight_tensor=weight_tensor,
        in_channels=in_channels,
        kernel_size=(1, kernel_size),
        stride=(1, stride),
        padding=(0, 0, *sides),
        dilation=(1, dilation),
        batch_size=batch_size,
        input_height=1,
        input_width=input_length,
        return_output_dim=True,
        **arguments,
    )
    output, (_, length), *rest = results
    if return_output_dim:
        return [output, length, *rest]
    return [output, *rest] if rest else output


def prepare_conv_weights(*, weight_tensor: Tensor, **_: Any) -> Tensor:
    """Return the weights unchanged. The model lays them out when the convolution is called."""
    return weight_tensor


def prepare_conv_bias(*, bias_tensor: Tensor, **_: Any) -> Tensor:
    """Return the bias unchanged. The model lays it out when the convolution is called."""
    return bias_tensor


prepare_conv_transpose2d_bias = prepare_conv_bias


class MirroredWeights(Tensor):
    """Host weights of a transposed convolution that were flipped, or left, as `mirror_kernel` requires."""


def prepare_conv_transpose2d_weights(*, weight_tensor: Tensor, mirror_kernel: bool = True, **_: Any) -> Tensor:
    """Return the weights unchanged, flipped without `mirror_kernel`. Prepared weights are not flipped again."""
    if isinstance(weight_tensor, MirroredWeights) or (mirror_kernel and weight_tensor.is_on_device):
        return weight_tensor
    host = weight_tensor.host if mirror_kernel else weight_tensor.host.flip(-1, -2)
    return MirroredWeights(weight_tensor.shape, weight_tensor.dtype, weight_tensor.layout, host=host)


def add_(
    input_tensor_a: Tensor, input_tensor_b: Tensor, *, activations: Sequence[Any] | None = (), **options: Any
) -> Tensor:
    """Add the second tensor to the first in place."""
    refuse_unsupported("add_", options, ("use_legacy",))
    allocation = input_tensor_a.allocation
    traces = allocation.device.traces
    if traces and traces[-1] is None and allocation.trace_count < len(traces):
        raise TesseraError(
            "a trace cannot rewrite a tensor that was created before it", got=input_tensor_a, do="use `add`"
        )
    allocation.device.count_rewrite()
    return add_shards(input_tensor_a, input_tensor_b, activations=[str(name) for name in activations or ()])


def _make_tensor(values: torch.Tensor, options: dict[str, Any]) -> Tensor:
    return from_torch(
        values,
        options.get("dtype") or formats.bfloat16,
        layout=options.get("layout"),
        device=options.get("device"),
        memory_config=options.get("memory_config"),
    )


def zeros(shape: Sequence[int], dtype: Any = None, layout: Layout | None = None, **options: Any) -> Tensor:
    """Return a tensor of zeros, on the host unless `device` is set."""
    return full(shape, 0.0, dtype, layout, **options)


def ones(shape: Sequence[int], dtype: Any = None, layout: Layout | None = None, **options: Any) -> Tensor:
    """Return a tensor of ones, on the host unless `device` is set."""
    return full(shape, 1.0, dtype, layout, **options)


empty = zeros


def full(
    shape: Sequence[int], fill_value: float, dtype: Any = None, layout: Layout | None = None, **options: Any
) -> Tensor:
    """Return a tensor of one value, on the host unless `device` is set."""
    return _make_tensor(torch.full(tuple(shape), float(fill_value)), options | {"dtype": dtype, "layout": layout})


def allocate_tensor_on_device(
    shape: Sequence[int], dtype: Any, layout: Layout, device: devices.Device, memory_config: MemoryConfig | None = None
) -> Tensor:
    """Return a tensor of zeros on a device."""
    return zeros(shape, dtype, layout, device=device, memory_config=memory_config)


def copy_host_to_device_tensor(host_tensor: Tensor, device_tensor: Tensor, *_: Any, **__: Any) -> None:
    """Copy the values of a host tensor to an allocated device tensor."""
    matrix = device_tensor.matrix
    values = host_tensor.host.reshape(matrix.rows, matrix.columns)
    before = read_values(device_tensor.storage)
    write_values(device_tensor.storage, values)
    if not torch.equal(before, read_values(device_tensor.storage)):
        device_tensor.allocation.device.count_rewrite()


def from_device(tensor: Tensor, *_: Any, **__: Any) -> Tensor:
    """Copy a device tensor to the host."""
    return copy_to_host(tensor)


def get_memory_config(tensor: Tensor) -> MemoryConfig:
    """Return the memory config of a device tensor."""
    return tensor.memory_config()


def is_tensor_storage_on_device(tensor: Tensor) -> bool:
    """Return whether a tensor is on a device."""
    return tensor.is_on_device


def reallocate(tensor: Tensor, memory_config: MemoryConfig | None = None) -> Tensor:
    """Move a tensor to the highest free address."""
    return move(tensor, memory_config=memory_config)


def reshard(tensor: Tensor, memory_config: MemoryConfig, output_tensor: Tensor | None = None) -> Tensor:
    """Copy a sharded tensor to other shards."""
    refuse_unsupported("reshard", {"output_tensor": output_tensor})
    return to_memory_config(tensor, memory_config)


def create_sharded_memory_config_(
    shape: Sequence[int],
    core_grid: CoreRangeSet,
    strategy: TensorMemoryLayout | ShardStrategy,
    orientation: ShardOrientation = ShardOrientation.ROW_MAJOR,
    *,
    use_height_and_width_as_shard_shape: bool = False,
    tile_layout: bool = False,
) -> MemoryConfig:
    """Build the memory config of a tensor, split evenly over all cores of a grid; `tile_layout` has no effect."""
    if isinstance(strategy, TensorMemoryLayout):
        strategy = ShardStrategy(strategy)
    return create_sharded_memory_config(
        shape,
        core_grid,
        strategy,
        orientation,
        use_height_and_width_as_shard_shape=use_height_and_width_as_shard_shape,
    )


def synchronize_device(*_: Any, **__: Any) -> None:
    """Do nothing: operations of the model are finished when they return."""


def dump_device_memory_state(*_: Any, **__: Any) -> None:
    """Do nothing."""


def record_event(*_: Any, **__: Any) -> int:
    """Return an event that has happened: the model has one queue."""
    return 0


wait_for_event = synchronize_device


def begin_trace_capture(device: devices.Device, *_: Any, **__: Any) -> int:
    """Return the number of a new trace. The calls of a trace are executed at once, and are not recorded."""
    device.traces.append(None)
    return len(device.traces) - 1


def end_trace_capture(device: devices.Device, trace_id: int, *_: Any, **__: Any) -> None:
    """End a trace. Its outputs are the outputs of the calls since `begin_trace_capture`."""
    device.traces[trace_id] = device.rewrites


def execute_trace(device: devices.Device, trace_id: int, *_: Any, **__: Any) -> None:
    """Keep the outputs of a trace. Raises an error if a tensor was rewritten since: the calls are not recorded."""
    if device.traces[trace_id] != device.rewrites:
        raise TesseraError(
            "execute_trace does not repeat the calls of a trace",
            got="a tensor rewritten after end_trace_capture",
            do="call the operations again",
        )


release_trace = synchronize_device
