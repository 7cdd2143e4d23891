"""Convolution on a grid of cores with a small memory each: planned, executed and counted under a model of the chip.

`import tessera.coregrid as ttnn` runs programs that were written for ttnn's conv2d. Names are imported when they are
asked for; most of them bring torch along.
"""

from __future__ import annotations

import importlib
import typing

_NAMES = {
    "config": ("ComputeConfig", "Conv2dConfig", "Conv2dSliceConfig", "MathFidelity", "SliceAxis", "SliceConfig"),
    "convolution": ("Convolution",),
    "device.arena": ("OutOfMemory",),
    "device.device": ("Device", "close_device", "init_device_compute_kernel_config", "manage_device", "open_device"),
    "device.grids": ("CoreCoord", "CoreGrid", "CoreRange", "CoreRangeSet"),
    "device.memory_config": (
        "BufferType",
        "DRAM_MEMORY_CONFIG",
        "L1_BLOCK_SHARDED_MEMORY_CONFIG",
        "L1_HEIGHT_SHARDED_MEMORY_CONFIG",
        "L1_MEMORY_CONFIG",
        "L1_WIDTH_SHARDED_MEMORY_CONFIG",
        "MemoryConfig",
        "ShardOrientation",
        "ShardSpec",
        "ShardStrategy",
        "TensorMemoryLayout",
        "create_sharded_memory_config",
    ),
    "device.tensors": (
        "Tensor",
        "deallocate",
        "from_device",
        "from_torch",
        "reshape",
        "to_device",
        "to_layout",
        "to_memory_config",
        "to_torch",
        "typecast",
    ),
    "execution.activations": ("UnaryOpType", "UnaryWithParam"),
    "formats": ("DataType", "Layout", "bfloat16", "bfloat4_b", "bfloat8_b", "float32"),
    "operations.add": ("add", "add_"),
    "operations.conv2d": ("conv2d",),
    "operations.conv_transpose2d": ("conv_transpose2d",),
    "operations.global_pool": ("global_avg_pool2d",),
    "operations.linear": ("linear",),
    "operations.pools": ("avg_pool2d", "max_pool2d"),
    "operations.resample": ("upsample",),
    "planning.plan": ("ConvPlan", "plan_one"),
    "planning.search": ("plan_conv2d",),
    "planning.sharding": ("ShardLayout",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

# The chip's own names for what has another name here: the module, the object in it, and a part of that.
_ALSO = {
    "BLOCK_SHARDED": ("device.memory_config", "TensorMemoryLayout", "BLOCK_SHARDED"),
    "BlackholeComputeKernelConfig": ("config", "ComputeConfig", ""),
    "Conv2dDRAMSliceHeight": ("config", "SliceAxis", "HEIGHT"),
    "Conv2dDRAMSliceWidth": ("config", "SliceAxis", "WIDTH"),
    "DeviceComputeKernelConfig": ("config", "ComputeConfig", ""),
    "GrayskullComputeKernelConfig": ("config", "ComputeConfig", ""),
    "HEIGHT_SHARDED": ("device.memory_config", "TensorMemoryLayout", "HEIGHT_SHARDED"),
    "ROW_MAJOR_LAYOUT": ("formats", "Layout", "ROW_MAJOR"),
    "TILE_LAYOUT": ("formats", "Layout", "TILE"),
    "WIDTH_SHARDED": ("device.memory_config", "TensorMemoryLayout", "WIDTH_SHARDED"),
    "WormholeComputeKernelConfig": ("config", "ComputeConfig", ""),
}


def __getattr__(name: str) -> typing.Any:
    if name in _MODULE_OF:
        module, what, part = _MODULE_OF[name], name, ""
    elif name in _ALSO:
        module, what, part = _ALSO[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{module}"), what)
    return getattr(found, part) if part else found


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_OF, *_ALSO])
