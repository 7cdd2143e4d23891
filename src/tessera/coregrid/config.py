"""User settings of a convolution on the core grid: activation, buffers, blocks, sharding, arithmetic and slices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Literal, TypeVar

from torch import Tensor
from torch.nn import functional as F

from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.formats import DTYPES, TILE_SIZE, DataType, Layout, bfloat16
from tessera.errors import TesseraError
from tessera.geometry import Mesh

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.relu_(),
    "relu6": lambda x: x.clamp_(0, 6),
    "silu": lambda x: F.silu(x, inplace=True),
    "gelu": lambda x: x.copy_(F.gelu(x)),
    "sigmoid": lambda x: x.sigmoid_(),
    "tanh": lambda x: x.tanh_(),
    "hardswish": lambda x: F.hardswish(x, inplace=True),
}


def apply_activation(values: Tensor, name: str, *, approximate: bool = False) -> None:
    """Apply an activation to `values` in place; an empty name is a no-op. `approximate` uses the tanh form of gelu."""
    if name == "gelu" and approximate:
        values.copy_(F.gelu(values, approximate="tanh"))
    elif name:
        ACTIVATIONS[name](values)


class UnaryOpType(StrEnum):
    """Activations under their ttnn names."""

    RELU = "relu"
    RELU6 = "relu6"
    SILU = "silu"
    GELU = "gelu"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    HARDSWISH = "hardswish"


def UnaryWithParam(op_type: UnaryOpType) -> UnaryOpType:
    """Return `op_type` unchanged. Named after ttnn's class; the activations of this package have no parameters."""
    return op_type


NO_ACTIVATION = ""
CHANNEL_ALIGNMENTS = (8, 16, 32)
HaloMode = Literal["span", "exact"]
EnumMember = TypeVar("EnumMember", bound=Enum)


class MathFidelity(Enum):
    """Precision of the matrix engine. The value is the number of passes over the mantissa bits of the operands."""

    LoFi = 1
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4


class ShardLayout(StrEnum):
    """Sharded dimension of a tensor: sticks, i.e. pixels (HEIGHT), channels (WIDTH), or both (BLOCK)."""

    HEIGHT = "HEIGHT"
    BLOCK = "BLOCK"
    WIDTH = "WIDTH"


class SliceAxis(StrEnum):
    """Image dimension along which a convolution is split into slices that are loaded from global memory one by one."""

    HEIGHT = "height"
    WIDTH = "width"


# Configs are mutable, because ttnn programs assign to their fields. A config is checked when it is created, and again
# when an operation copies it.
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class ComputeConfig:
    """Arithmetic settings of a core.

    `dst_full_sync_en` gives all destination registers either to the matrix engine or to the packer, so arithmetic and
    packing do not overlap. `fp32_dest_acc_en` accumulates in 32 bits and halves the number of registers.
    `packer_l1_acc` adds partial sums in the core's memory, in the precision of the registers (32 or 16 bits).
    """

    math_fidelity: MathFidelity = MathFidelity.HiFi4
    math_approx_mode: bool = True
    dst_full_sync_en: bool = False
    fp32_dest_acc_en: bool = False
    packer_l1_acc: bool = False

    def __post_init__(self) -> None:
        self.math_fidelity = _coerce_member(MathFidelity, self.math_fidelity, "math_fidelity")


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Conv2dConfig:
    """Settings of `conv2d`. Fields that do not apply to the shard layout are ignored.

    `act_block_h_override` is the block height in sticks; 0 uses the whole shard. WIDTH ignores it. Only WIDTH reads
    `act_block_w_div`. `transpose_shards` applies to BLOCK: if true, sticks are split over the rows of the grid and
    channels over its columns; if false, vice versa. `full_inner_dim` puts all kernel rows into one inner
    block (BLOCK). `halo_mode` is `span` (one range of sticks per core, as on the chip) or `exact` (only the sticks
    that a window reads).

    If `shard_layout` is None, the layout of the input is used, or the chip's default rule with
    `reshard_if_not_optimal`. An input that is not on the planned cores is resharded.
    """

    dtype: DataType = bfloat16
    weights_dtype: DataType = bfloat16
    activation: str = NO_ACTIVATION
    input_channels_alignment: int = TILE_SIZE
    deallocate_activation: bool = False
    reallocate_halo_output: bool = False
    act_block_h_override: int = 0
    act_block_w_div: int = 1
    reshard_if_not_optimal: bool = False
    override_sharding_config: bool = False
    shard_layout: ShardLayout | None = None
    core_grid: Mesh | CoreRangeSet | None = None
    transpose_shards: bool = True
    output_layout: Layout = Layout.TILE
    enable_act_double_buffer: bool = False
    enable_weights_double_buffer: bool = False
    enable_split_reader: bool = False
    full_inner_dim: bool = False
    halo_mode: HaloMode = "span"

    def __post_init__(self) -> None:
        self._normalise_fields()
        if self.activation != NO_ACTIVATION and self.activation not in ACTIVATIONS:
            raise TesseraError("unknown activation", got=self.activation, allowed=[*ACTIVATIONS, "'' for none"])
        if self.input_channels_alignment not in CHANNEL_ALIGNMENTS:
            got = self.input_channels_alignment
            raise TesseraError("unsupported input_channels_alignment", got=got, allowed=CHANNEL_ALIGNMENTS)
        if self.act_block_h_override < 0 or self.act_block_h_override % TILE_SIZE:
            raise TesseraError("act_block_h_override must be a multiple of 32", got=self.act_block_h_override)
        if self.act_block_w_div < 1:
            raise TesseraError("act_block_w_div must be positive", got=self.act_block_w_div, allowed="1 or more")
        if self.reshard_if_not_optimal and self.override_sharding_config:
            raise TesseraError(
                "reshard_if_not_optimal and override_sharding_config are mutually exclusive",
                do="set one of them: reshard to the best layout, or to shard_layout and core_grid",
            )
        if self.override_sharding_config and (self.shard_layout is None or self.core_grid is None):
            raise TesseraError(
                "override_sharding_config requires shard_layout and core_grid",
                got=f"shard_layout={self.shard_layout}, core_grid={self.core_grid}",
                do="set shard_layout and core_grid",
            )
        if self.output_layout is Layout.ROW_MAJOR and self.dtype.is_block:
            raise TesseraError(
                "block formats require the tile layout", got=self.dtype, do="use output_layout=TILE_LAYOUT or bfloat16"
            )
        if self.halo_mode not in ("span", "exact"):
            raise TesseraError("unknown halo_mode", got=self.halo_mode, allowed=("span", "exact"))

    def _normalise_fields(self) -> None:
        """Coerce layouts to enum members and a rectangular `CoreRangeSet` to a mesh, and check the number formats."""
        self.activation = self.activation or NO_ACTIVATION
        if self.shard_layout is not None:
            self.shard_layout = _coerce_member(ShardLayout, self.shard_layout, "shard_layout")
        self.output_layout = _coerce_member(Layout, self.output_layout, "output_layout")
        for dtype in (self.dtype, self.weights_dtype):
            if not isinstance(dtype, DataType):
                raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
        if isinstance(self.core_grid, CoreRangeSet):
            self.core_grid = self.core_grid.to_mesh()

    @property
    def grid(self) -> Mesh | None:
        """Grid of cores that the user requires, or None if the config does not override the sharding."""
        assert not isinstance(self.core_grid, CoreRangeSet)
        return self.core_grid if self.override_sharding_config else None

    def with_grid(self, grid: Mesh) -> Conv2dConfig:
        """Return a copy of the config that requires the cores of `grid`. The config must have a shard layout."""
        return replace(self, override_sharding_config=True, reshard_if_not_optimal=False, core_grid=grid)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceConfig:
    """Settings of slicing. If `axis` is None, it is chosen automatically; `num_slices` 0 uses the fewest that fit."""

    axis: SliceAxis | None = None
    num_slices: int = 0

    def __post_init__(self) -> None:
        if self.axis is not None:
            object.__setattr__(self, "axis", _coerce_member(SliceAxis, self.axis, "slice axis"))
        if self.num_slices < 0:
            raise TesseraError(
                "num_slices must not be negative", got=self.num_slices, allowed="0 (fewest that fit) or more"
            )


def Conv2dSliceConfig(*, slice_type: SliceAxis | None = None, num_slices: int = 0) -> SliceConfig:
    """Build a `SliceConfig` from ttnn's parameter names."""
    return SliceConfig(axis=slice_type, num_slices=num_slices)


def _coerce_member(enum: type[EnumMember], value: object, name: str) -> EnumMember:
    """Coerce a member, name or value to an enum member."""
    if isinstance(value, enum):
        return value
    for member in enum:
        if value in (member.name, member.value):
            return member
    raise TesseraError(f"unknown {name}", got=value, allowed=[member.name for member in enum])
