"""A convolution case in full: its shape, where it is planned, and who chooses how it lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from tessera.coregrid.cases import AUTO, SEARCH
from tessera.coregrid.config import ComputeConfig, Conv2dConfig, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import DTYPES, DataType, Layout
from tessera.coregrid.machines import machine_of
from tessera.coregrid.planning.autoshard import auto_shard
from tessera.coregrid.planning.plan import ConvPlan, Setup, planned
from tessera.coregrid.planning.search import Search, plan_conv2d
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.errors import TesseraError
from tessera.geometry import Mesh

KNOBS = {field.name for field in fields(Conv2dConfig)} - {"shard_layout", "core_grid", "override_sharding_config"}
COMPUTE = {field.name for field in fields(ComputeConfig)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is asked for; `choice` is a layout, or who chooses one: the search, or the chip's own rule."""

    conv: Convolution
    setup: Setup
    choice: str
    slices: SliceConfig | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Problem:
        """From the plain values of a case."""
        machine = machine_of(str(params["machine"]))
        choice = str(params.get("shard_layout", SEARCH))
        config, grid = _config(params, None if choice in (SEARCH, AUTO) else _layout(choice)), _mesh(params.get("grid"))
        if config.shard_layout is not None and grid is not None:  # together they are insisted on
            config, grid = config.on(grid), None
        setup = Setup(
            machine=machine,
            config=config,
            compute=_compute(params),
            grid=grid,
            input_layout=Layout.TILE if config.dtype.is_block else Layout.ROW_MAJOR,
            bias=bool(params.get("bias", True)),
        )
        return cls(conv=_convolution(params), setup=setup, choice=choice, slices=_slices(params))

    def search(self) -> Search:
        """Every way that was tried."""
        setup = self.setup
        return plan_conv2d(
            self.conv,
            setup.machine,
            setup.config,
            setup.compute,
            grid=setup.grid,
            input_layout=setup.input_layout,
            bias=setup.bias,
            slices=self.slices,
        )

    def plan(self) -> ConvPlan:
        """The plan that was chosen; a layout that was asked for may turn out not to fit, in one piece at least."""
        if self.choice == SEARCH:
            return self.search().best.plan
        plan = self._planned(self.setup)
        # a grid alone bounds the choice of a layout; what is chosen has to be said, so that it is executed there
        return plan if self.setup.grid is None else self._planned(self.setup.laid(plan.layout))

    def _planned(self, setup: Setup) -> ConvPlan:
        """The plan in the layout that is set, or that the chip itself chooses."""
        layout = setup.config.shard_layout
        if self.slices is not None:
            return plan_sliced(self.conv, setup, self.slices)
        return planned(self.conv, layout, setup) if layout else auto_shard(self.conv, setup)


def _convolution(params: Mapping[str, Any]) -> Convolution:
    height, width = _pair(params["image_size"], "image_size")
    return Convolution(
        batch=int(params.get("batch_size", 1)),
        height=height,
        width=width,
        in_channels=int(params["in_channels"]),
        out_channels=int(params["out_channels"]),
        kernel=_pair(params["kernel"], "kernel"),
        stride=_pair(params.get("stride", 1), "stride"),
        padding=padding_of(params.get("padding", 0)),
        dilation=_pair(params.get("dilation", 1), "dilation"),
        groups=int(params.get("groups", 1)),
    )


def padding_of(value: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """One number, (height, width), or (top, bottom, left, right).

    >>> padding_of(1), padding_of([0, 1, 2, 3])
    (((1, 1), (1, 1)), ((0, 1), (2, 3)))
    """
    if isinstance(value, Sequence) and len(value) == 4:
        top, bottom, left, right = map(int, value)
        return (top, bottom), (left, right)
    down, right = _pair(value, "padding")
    return (down, down), (right, right)


def _pair(value: Any, what: str) -> tuple[int, int]:
    found = [value, value] if isinstance(value, int) else list(value)
    if len(found) != 2 or not all(isinstance(number, int) for number in found):
        raise TesseraError(f"{what} is a number, or a height and a width", got=value)
    return found[0], found[1]


def _config(params: Mapping[str, Any], layout: ShardLayout | None) -> Conv2dConfig:
    given = {name: params[name] for name in KNOBS if name in params}
    for name in ("dtype", "weights_dtype"):
        if name in given:
            given[name] = _dtype(given[name])
    return Conv2dConfig(**given, shard_layout=layout)


def _mesh(grid: Any) -> Mesh | None:
    if not grid:
        return None
    try:
        return Mesh.parse(str(grid))
    except ValueError as error:
        raise TesseraError(str(error)) from None


def _dtype(name: Any) -> DataType:
    if name not in DTYPES:
        raise TesseraError("unknown format", got=name, allowed=DTYPES)
    return DTYPES[name]


def _layout(name: str) -> ShardLayout:
    try:
        return ShardLayout(name.upper().removesuffix("_SHARDED"))
    except ValueError:
        raise TesseraError("unknown layout", got=name, allowed=[SEARCH, AUTO, *ShardLayout]) from None


def _compute(params: Mapping[str, Any]) -> ComputeConfig:
    return ComputeConfig(**{name: params[name] for name in COMPUTE if name in params})


def _slices(params: Mapping[str, Any]) -> SliceConfig | None:
    axis, count = params.get("slice_axis") or None, int(params.get("num_slices", 0))
    if axis is None and not count:
        return None
    return SliceConfig(axis=axis, num_slices=count)
