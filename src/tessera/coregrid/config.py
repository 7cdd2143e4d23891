"""What a user says about a convolution on the grid besides its shape: buffers, blocks, sharding, arithmetic, slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import TypeVar

from tessera.coregrid.device.grids import CoreRangeSet
from tessera.coregrid.execution.activations import ACTIVATIONS
from tessera.coregrid.formats import DTYPES, TILE, DataType, Layout, bfloat16
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.sticks import Mode
from tessera.errors import TesseraError
from tessera.geometry import Mesh

NO_ACTIVATION = ""
CHANNELS_ALIGNMENTS = (8, 16, 32)
Member = TypeVar("Member", bound=Enum)


class MathFidelity(Enum):
    """How many passes the matrix engine makes over the bits of its operands; the value is their number."""

    LoFi = 1
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4


class SliceAxis(StrEnum):
    """Along which dim of the image a convolution goes through global memory in slices."""

    HEIGHT = "height"
    WIDTH = "width"


# Programs for ttnn make a config and then assign to its fields; it is checked when it is made, and again when it is
# used, which takes a copy of it.
@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class ComputeConfig:
    """The settings of a core's arithmetic.

    `dst_full_sync_en` gives all registers to one side at a time, so that packing waits for the arithmetic;
    `fp32_dest_acc_en` accumulates in 32 bits and halves the registers; `packer_l1_acc` adds partial sums in the
    core's memory, in 32 bits if those of the registers are, in 16 otherwise.
    """

    math_fidelity: MathFidelity = MathFidelity.HiFi4
    math_approx_mode: bool = True
    dst_full_sync_en: bool = False
    fp32_dest_acc_en: bool = False
    packer_l1_acc: bool = False

    def __post_init__(self) -> None:
        self.math_fidelity = _member(MathFidelity, self.math_fidelity, "math_fidelity")


@dataclass(slots=True, kw_only=True, unsafe_hash=True)
class Conv2dConfig:
    """The parameters of `conv2d`: every field with its default; those without meaning for a layout are not read.

    `act_block_h_override` counts sticks, 0 is the whole shard; WIDTH does not read it, and WIDTH alone reads
    `act_block_w_div`. `transpose_shards` is for BLOCK: sticks over the rows of the grid and channels over its columns,
    or the other way round. `full_inner_dim` takes all rows of the kernel in one block of BLOCK. `halo_mode` is `span`,
    one range of sticks per core as the chip moves them, or `exact`, only those that a window touches.

    Without a `shard_layout` that of the input is taken, or with `reshard_if_not_optimal` the chip's own choice. In
    either case an input that lies on other cores than those of the plan is resharded to them.
    """

    dtype: DataType = bfloat16
    weights_dtype: DataType = bfloat16
    activation: str = NO_ACTIVATION
    input_channels_alignment: int = TILE
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
    halo_mode: Mode = "span"

    def __post_init__(self) -> None:
        self._normalise()
        if self.activation != NO_ACTIVATION and self.activation not in ACTIVATIONS:
            raise TesseraError("unknown activation", got=self.activation, allowed=[*ACTIVATIONS, "'' for none"])
        if self.input_channels_alignment not in CHANNELS_ALIGNMENTS:
            got = self.input_channels_alignment
            raise TesseraError("input_channels_alignment", got=got, allowed=CHANNELS_ALIGNMENTS)
        if self.act_block_h_override < 0 or self.act_block_h_override % TILE:
            raise TesseraError("act_block_h_override is a multiple of 32", got=self.act_block_h_override)
        if self.act_block_w_div < 1:
            raise TesseraError("act_block_w_div divides a block", got=self.act_block_w_div, allowed="1 or more")
        if self.reshard_if_not_optimal and self.override_sharding_config:
            raise TesseraError(
                "reshard_if_not_optimal and override_sharding_config contradict each other",
                do="set one: reshard to what is best, or to what shard_layout and core_grid say",
            )
        if self.override_sharding_config and (self.shard_layout is None or self.core_grid is None):
            raise TesseraError(
                "override_sharding_config needs the sharding",
                got=f"shard_layout={self.shard_layout}, core_grid={self.core_grid}",
                do="set shard_layout and core_grid",
            )
        if self.output_layout is Layout.ROW_MAJOR and self.dtype.is_block:
            raise TesseraError(
                "a block format exists in tiles only", got=self.dtype, do="use output_layout=TILE_LAYOUT or bfloat16"
            )
        if self.halo_mode not in ("span", "exact"):
            raise TesseraError("unknown halo_mode", got=self.halo_mode, allowed=("span", "exact"))

    def _normalise(self) -> None:
        """Take the names of tensor memory layouts and sets of cores as well: a rectangle of them is a grid."""
        self.activation = self.activation or NO_ACTIVATION
        if self.shard_layout is not None:
            self.shard_layout = _member(ShardLayout, self.shard_layout, "shard_layout")
        self.output_layout = _member(Layout, self.output_layout, "output_layout")
        for dtype in (self.dtype, self.weights_dtype):
            if not isinstance(dtype, DataType):
                raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
        if isinstance(self.core_grid, CoreRangeSet):
            self.core_grid = self.core_grid.as_mesh()

    @property
    def grid(self) -> Mesh | None:
        """The cores that the user chose, if they override the sharding."""
        assert not isinstance(self.core_grid, CoreRangeSet)
        return self.core_grid if self.override_sharding_config else None

    def on(self, grid: Mesh) -> Conv2dConfig:
        """The same on these cores, which are insisted on; it needs a layout."""
        return replace(self, override_sharding_config=True, reshard_if_not_optimal=False, core_grid=grid)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceConfig:
    """How a convolution goes through global memory: `axis` None is guessed, `num_slices` 0 counts up till it fits."""

    axis: SliceAxis | None = None
    num_slices: int = 0

    def __post_init__(self) -> None:
        if self.axis is not None:
            object.__setattr__(self, "axis", _member(SliceAxis, self.axis, "axis of slices"))
        if self.num_slices < 0:
            raise TesseraError("num_slices is 0 (as many as it takes) or more", got=self.num_slices)


def Conv2dSliceConfig(*, slice_type: SliceAxis | None = None, num_slices: int = 0) -> SliceConfig:
    """The same by the names that ttnn has for it."""
    return SliceConfig(axis=slice_type, num_slices=num_slices)


def _member(kind: type[Member], given: object, what: str) -> Member:
    """One of an enumeration, given as itself, by its name or by its value: what is compared by identity later on."""
    if isinstance(given, kind):
        return given
    for member in kind:
        if given in (member.name, member.value):
            return member
    raise TesseraError(f"unknown {what}", got=given, allowed=[member.name for member in kind])
