"""Plan convolutions on a core grid (many cores with small local memories), and execute them in a model of the chip.

Terms: a *stick* is one pixel with all its channels, a *tile* is 32 x 32 values, a *shard* is the part of a tensor on
one core, and a *haloed shard* also contains the padding and the sticks of other cores that the core's output reads. A
core computes its output in *height blocks* (ranges of output sticks); each is a sum of products over *inner blocks*
(ranges of the inner dim of the matrix product). *Global memory* is the memory that all cores share. A *plan* determines
shards, blocks and buffers. The *chip's default rule* is the choice that ttnn makes on a real chip.

`import tessera.coregrid as ttnn` runs programs that were written for ttnn's `conv2d`. Names are imported lazily, on
first access, because most of them import torch.
"""

from __future__ import annotations

import importlib
import typing

_NAMES_BY_MODULE = {
    "activations": ("UnaryOpType", "UnaryWithParam"),
    "config": (
        "ComputeConfig",
        "Conv2dConfig",
        "Conv2dL1Full",
        "Conv2dSliceConfig",
        "MathFidelity",
        "ShardLayout",
        "SliceAxis",
        "SliceConfig",
    ),
    "convolution": ("Convolution",),
    "device.device": ("Device", "close_device", "init_device_compute_kernel_config", "manage_device", "open_device"),
    "cores": ("CoreCoord", "CoreGrid", "CoreRange", "CoreRangeSet"),
    "memory_config": (
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
    "formats": ("DataType", "Layout", "bfloat16", "bfloat4_b", "bfloat8_b", "float32"),
    "operations.add": ("add", "add_"),
    "operations.conv2d": ("conv2d", "conv_transpose2d"),
    "operations.matmul": ("linear", "matmul"),
    "operations.pools": ("avg_pool2d", "global_avg_pool2d", "max_pool2d"),
    "operations.resample": ("upsample",),
    "planning.memory": ("OutOfMemory",),
    "planning.plan": ("ConvPlan", "plan_one"),
    "search": ("plan_conv2d",),
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}

# ttnn names that differ from the names in this package: (module, attribute, member of the attribute).
_TTNN_ALIASES = {
    "BLOCK_SHARDED": ("memory_config", "TensorMemoryLayout", "BLOCK_SHARDED"),
    "BlackholeComputeKernelConfig": ("config", "ComputeConfig", ""),
    "Conv2dDRAMSliceHeight": ("config", "SliceAxis", "HEIGHT"),
    "Conv2dDRAMSliceWidth": ("config", "SliceAxis", "WIDTH"),
    "DeviceComputeKernelConfig": ("config", "ComputeConfig", ""),
    "GrayskullComputeKernelConfig": ("config", "ComputeConfig", ""),
    "HEIGHT_SHARDED": ("memory_config", "TensorMemoryLayout", "HEIGHT_SHARDED"),
    "ROW_MAJOR_LAYOUT": ("formats", "Layout", "ROW_MAJOR"),
    "TILE_LAYOUT": ("formats", "Layout", "TILE"),
    "WIDTH_SHARDED": ("memory_config", "TensorMemoryLayout", "WIDTH_SHARDED"),
    "WormholeComputeKernelConfig": ("config", "ComputeConfig", ""),
}


def __getattr__(name: str) -> typing.Any:
    if name in _MODULE_BY_NAME:
        module, attribute, member = _MODULE_BY_NAME[name], name, ""
    elif name in _TTNN_ALIASES:
        module, attribute, member = _TTNN_ALIASES[name]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), attribute)
    return getattr(value, member) if member else value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULE_BY_NAME, *_TTNN_ALIASES])
