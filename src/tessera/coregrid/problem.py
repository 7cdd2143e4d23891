"""Typed form of a convolution case: shape, setup, and shard layout or search mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout, SliceConfig
from tessera.coregrid.convolution import AUTO_LAYOUT, SEARCH_LAYOUT, Convolution, parse_padding, parse_pair
from tessera.coregrid.device.device import find_machine
from tessera.coregrid.formats import DTYPES, DataType, Layout
from tessera.coregrid.planning.plan import ConvPlan, plan_layout_or_default
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.coregrid.search import ConvSearch, search_plans
from tessera.errors import TesseraError
from tessera.geometry import Mesh

SHARDING_FIELDS = {"shard_layout", "core_grid", "override_sharding_config"}
CONFIG_FIELDS = {field.name for field in fields(Conv2dConfig)} - SHARDING_FIELDS
COMPUTE_FIELDS = {field.name for field in fields(ComputeConfig)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvProblem:
    """A convolution to plan. `choice` is a layout, `search` (fastest that fits) or `auto` (the chip's default rule)."""

    conv: Convolution
    setup: ConvSetup
    choice: str
    slices: SliceConfig | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> ConvProblem:
        """Build a problem from the parameters of a benchmark case."""
        machine = find_machine(str(params["machine"]))
        choice = str(params.get("shard_layout", SEARCH_LAYOUT))
        layout = None if choice in (SEARCH_LAYOUT, AUTO_LAYOUT) else _parse_layout(choice)
        config, grid = _parse_config(params, layout), _parse_mesh(params.get("grid"))
        if config.shard_layout is not None and grid is not None:  # layout and grid together override the sharding
            config, grid = config.with_grid(grid), None
        setup = ConvSetup(
            machine=machine,
            config=config,
            compute=ComputeConfig(**{name: params[name] for name in COMPUTE_FIELDS if name in params}),
            grid=grid,
            input_layout=Layout.TILE if config.dtype.is_block else Layout.ROW_MAJOR,
            bias=bool(params.get("bias", True)),
        )
        return cls(conv=_parse_convolution(params), setup=setup, choice=choice, slices=_parse_slices(params))

    def search(self) -> ConvSearch:
        """Search all layouts, grids, block sizes and buffers for the fastest plan."""
        return search_plans(self.conv, self.setup, self.slices)

    def plan(self) -> ConvPlan:
        """Return the chosen plan. A plan with a requested layout may not fit."""
        if self.choice == SEARCH_LAYOUT:
            return self.search().best.plan
        plan = self._plan_layout(self.setup)
        # a grid without a layout is put into the config together with the chosen layout, so that conv2d uses it
        return plan if self.setup.grid is None else self._plan_layout(self.setup.with_layout(plan.layout))

    def _plan_layout(self, setup: ConvSetup) -> ConvPlan:
        """Plan the convolution in the setup's shard layout, or by the chip's default rule if no layout is set."""
        if self.slices is not None:
            return plan_sliced(self.conv, setup, self.slices)
        return plan_layout_or_default(self.conv, setup.config.shard_layout, setup)


def _parse_convolution(params: Mapping[str, Any]) -> Convolution:
    height, width = parse_pair("image_size", params["image_size"])
    return Convolution(
        batch=int(params.get("batch_size", 1)),
        height=height,
        width=width,
        in_channels=int(params["in_channels"]),
        out_channels=int(params["out_channels"]),
        kernel=parse_pair("kernel", params["kernel"]),
        stride=parse_pair("stride", params.get("stride", 1)),
        padding=parse_padding(params.get("padding", 0)),
        dilation=parse_pair("dilation", params.get("dilation", 1)),
        groups=int(params.get("groups", 1)),
    )


def _parse_config(params: Mapping[str, Any], layout: ShardLayout | None) -> Conv2dConfig:
    settings = {name: params[name] for name in CONFIG_FIELDS if name in params}
    for name in ("dtype", "weights_dtype"):
        if name in settings:
            settings[name] = _parse_dtype(settings[name])
    return Conv2dConfig(**settings, shard_layout=layout)


def _parse_mesh(grid: Any) -> Mesh | None:
    if not grid:
        return None
    try:
        return Mesh.parse(str(grid))
    except ValueError as error:
        raise TesseraError(str(error)) from None


def _parse_dtype(name: Any) -> DataType:
    if name not in DTYPES:
        raise TesseraError("unknown dtype", got=name, allowed=DTYPES)
    return DTYPES[name]


def _parse_layout(name: str) -> ShardLayout:
    try:
        return ShardLayout(name.upper().removesuffix("_SHARDED"))
    except ValueError:
        raise TesseraError(
            "unknown shard_layout", got=name, allowed=[SEARCH_LAYOUT, AUTO_LAYOUT, *ShardLayout]
        ) from None


def _parse_slices(params: Mapping[str, Any]) -> SliceConfig | None:
    axis, count = params.get("slice_axis") or None, int(params.get("num_slices", 0))
    return SliceConfig(axis=axis, num_slices=count) if axis or count else None
