"""Machine and settings of a planned convolution."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout, bfloat16, tensor_dtype
from tessera.coregrid.memory_config import ShardSpec
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine.machine import Machine

ROW_MAJOR_CHANNEL_ALIGNMENT = 8  # 8 channels in bfloat16 are 16 bytes, one transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvSetup:
    """Machine and settings of a planned convolution: everything except the shape and the shard layout.

    `grid` defaults to the machine's grid, `input_dtype` to the format of the config. `input_layout` is the memory
    layout of the input. `input_shards` are the shards of an input that stays on its cores. With `copies_input`, the
    shards are a copy of the input, which is freed after the halo exchange.
    """

    machine: Machine
    config: Conv2dConfig = field(default_factory=Conv2dConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    grid: Mesh | None = None
    input_dtype: DataType | None = None
    input_layout: Layout = Layout.TILE
    bias: bool = False
    input_shards: ShardSpec | None = None
    copies_input: bool = False

    def __post_init__(self) -> None:
        config = self.config
        if tensor_dtype in (config.dtype, config.weights_dtype):
            dtype = config.dtype if config.dtype is not tensor_dtype else self.input_dtype or bfloat16
            weights = config.weights_dtype if config.weights_dtype is not tensor_dtype else bfloat16
            object.__setattr__(self, "config", replace(config, dtype=dtype, weights_dtype=weights))

    @property
    def dtype(self) -> DataType:
        """Number format of the input."""
        return self.input_dtype or self.config.dtype

    @property
    def cores(self) -> Mesh:
        """The available cores: the grid of the setup, else the grid that the config requires, else all cores."""
        device, grid = self.machine.workers, self.grid or self.config.grid or self.machine.workers
        placed = self.config.cores if self.grid is None else None
        used = grid if placed is None else Mesh(placed.bounds.end.y + 1, placed.bounds.end.x + 1)
        if used.rows > device.rows or used.cols > device.cols:
            raise TesseraError(
                f"the grid is larger than {self.machine.name}",
                got=f"{used.rows}x{used.cols}",
                allowed=f"up to {device.rows}x{device.cols}",
            )
        return grid

    def get_alignment(self, conv: Convolution, layout: ShardLayout) -> int:
        """Return the multiple to which input channels are padded: 32 for tiles, WIDTH and matmuls, else 8 (default)."""
        if layout == ShardLayout.WIDTH or self.input_layout is Layout.TILE:
            return TILE_SIZE
        if self.config.input_channels_alignment != TILE_SIZE:
            return self.config.input_channels_alignment
        return TILE_SIZE if conv.is_matmul else ROW_MAJOR_CHANNEL_ALIGNMENT

    def with_layout(self, layout: ShardLayout) -> ConvSetup:
        """Return a copy whose config requires the layout and the cores, so that `conv2d` makes an equal plan."""
        config = replace(self.config, shard_layout=layout)
        return replace(
            self, grid=None, config=config if self.cores == self.machine.workers else config.with_grid(self.cores)
        )
