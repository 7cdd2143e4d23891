"""User settings of a convolution on the core grid: activation, buffers, blocks, sharding, arithmetic and slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Literal, TypeVar

from tessera.coregrid.activations import NO_ACTIVATION, normalise_activation
from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.formats import DTYPES, TILE_SIZE, DataType, Layout, bfloat16, float32, tensor_dtype
from tessera.errors import TesseraError
from tessera.geometry import Mesh

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

    `act_block_h_override` is the block height in sticks; 0 uses the whole shard. Only WIDTH reads
    `act_block_w_div`. `transpose_shards` applies to BLOCK: if false, sticks are split over the rows of the grid and
    channels over its columns; if true, vice versa. `full_inner_dim` puts all kernel rows into one inner
    block (BLOCK). `halo_mode` is `span` (one range of sticks per core, as on the chip) or `exact` (only the sticks
    that a window reads). `dtype` and `weights_dtype` None use the formats of the input and of the weights.

    A sharded input stays on its cores. It is resharded only with `reshard_if_not_optimal` or
    `override_sharding_config`, or if the convolution cannot read its shards. For other inputs, a `shard_layout` of
    None is the chip's default rule.

    `enable_kernel_stride_folding` computes a convolution whose windows do not overlap as a matmul of folded images;
    None folds patches as the chip does. `config_tensors_in_dram`, `force_split_reader` and
    `override_output_sharding_config` are accepted for ttnn's programs and do not change the result.
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
    transpose_shards: bool = False
    output_layout: Layout = Layout.TILE
    enable_act_double_buffer: bool = False
    enable_weights_double_buffer: bool = False
    enable_split_reader: bool = False
    full_inner_dim: bool = False
    halo_mode: HaloMode = "span"
    enable_kernel_stride_folding: bool | None = None
    enable_activation_reuse: bool = False
    config_tensors_in_dram: bool = False
    force_split_reader: bool | None = None
    override_output_sharding_config: bool = False

    def __post_init__(self) -> None:
        self._normalise_fields()
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
        """Coerce layouts to enum members, None to placeholders, and a grid at core (0, 0) to a mesh; check formats."""
        self.activation = normalise_activation(self.activation)
        if self.shard_layout is not None:
            self.shard_layout = _coerce_member(ShardLayout, self.shard_layout, "shard_layout")
        self.output_layout = _coerce_member(Layout, self.output_layout, "output_layout")
        self.dtype, self.weights_dtype = self.dtype or tensor_dtype, self.weights_dtype or tensor_dtype
        for dtype in (self.dtype, self.weights_dtype):
            if not isinstance(dtype, DataType):
                raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
        if isinstance(self.core_grid, CoreRangeSet) and self.core_grid.is_mesh:
            self.core_grid = self.core_grid.to_mesh()

    @property
    def grid(self) -> Mesh | None:
        """Grid of cores that the user requires, or None if the config does not override the sharding.

        Cores that are no rectangle are a grid of one row; `cores` has their places.
        """
        if not self.override_sharding_config or not isinstance(self.core_grid, CoreRangeSet):
            return self.core_grid if self.override_sharding_config else None  # type: ignore[return-value]
        bounds = self.core_grid.bounds
        if bounds.size == self.core_grid.size:
            return Mesh(bounds.rows, bounds.columns)
        return Mesh(1, self.core_grid.size)

    @property
    def cores(self) -> CoreRangeSet | None:
        """The cores that the user requires, if they do not begin at core (0, 0) or are no rectangle."""
        return self.core_grid if self.override_sharding_config and isinstance(self.core_grid, CoreRangeSet) else None

    def with_grid(self, grid: Mesh) -> Conv2dConfig:
        """Return a copy of the config that requires the cores of `grid`. The config must have a shard layout."""
        return replace(self, override_sharding_config=True, reshard_if_not_optimal=False, core_grid=grid)


def choose_default_compute(input_dtype: DataType, weights_dtype: DataType) -> ComputeConfig:
    """Return the arithmetic of a call without a compute config: 32-bit accumulation for float32 operands."""
    return ComputeConfig(fp32_dest_acc_en=input_dtype is weights_dtype is float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceConfig:
    """Settings of slicing. If `axis` is None, it is chosen automatically; `num_slices` 0 uses the fewest that fit.

    With `in_local_memory`, the convolution is not sliced, even if its shards do not fit.
    """

    axis: SliceAxis | None = None
    num_slices: int = 0
    in_local_memory: bool = False

    def __post_init__(self) -> None:
        if self.axis is not None:
            object.__setattr__(self, "axis", _coerce_member(SliceAxis, self.axis, "slice axis"))
        if self.num_slices < 0:
            raise TesseraError(
                "num_slices must not be negative", got=self.num_slices, allowed="0 (fewest that fit) or more"
            )


class Conv2dL1Full(Enum):
    """Slice type of a convolution that is not sliced."""

    L1_FULL = "l1_full"


def Conv2dSliceConfig(*, slice_type: SliceAxis | Conv2dL1Full | None = None, num_slices: int = 0) -> SliceConfig:
    """Build a `SliceConfig` from ttnn's parameter names."""
    if isinstance(slice_type, Conv2dL1Full):
        return SliceConfig(in_local_memory=True)
    return SliceConfig(axis=slice_type, num_slices=num_slices)


def _coerce_member(enum: type[EnumMember], value: object, name: str) -> EnumMember:
    """Coerce a member, name or value to an enum member."""
    if isinstance(value, enum):
        return value
    for member in enum:
        if value in (member.name, member.value):
            return member
    raise TesseraError(f"unknown {name}", got=value, allowed=[member.name for member in enum])
