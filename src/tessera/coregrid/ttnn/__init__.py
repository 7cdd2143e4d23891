"""The API of ttnn that programs of convolutional networks call, executed by the device model of this package.

    import sys
    import tessera.coregrid.ttnn
    sys.modules["ttnn"] = tessera.coregrid.ttnn

Afterwards `import ttnn` imports this package, and so do the modules that ttnn's programs import. The machine is
`wormhole-n150`, or the one that the environment variable TESSERA_TTNN_MACHINE names. A missing name raises an
error that says so.
"""

from __future__ import annotations

import importlib
import typing

_PACKAGE = "tessera.coregrid"
_NAMES_BY_MODULE = {
    "operations.elementwise": ("batch_norm", "group_norm", "layer_norm", "mean", "softmax", "sum"),
    "operations.shapes": (
        "clone",
        "concat",
        "fold",
        "interleaved_to_sharded",
        "move",
        "pad",
        "permute",
        "sharded_to_interleaved",
        "slice",
        "split",
        "squeeze",
        "tilize",
        "transpose",
        "unsqueeze",
        "untilize",
        "untilize_with_unpadding",
    ),
    "ttnn.calls": (
        "Conv1dConfig",
        "Conv2dConfig",
        "Conv2dL1FullSliceConfig",
        "CoreGrid",
        "DataType",
        "MatmulMultiCoreReuseMultiCast1DProgramConfig",
        "MatmulMultiCoreReuseMultiCastProgramConfig",
        "MeshDevice",
        "PaddingMode",
        "Shape",
        "StorageType",
        "ThrottleLevel",
        "add_",
        "allocate_tensor_on_device",
        "begin_trace_capture",
        "conv1d",
        "conv2d",
        "conv_transpose2d",
        "copy_host_to_device_tensor",
        "create_sharded_memory_config_",
        "dump_device_memory_state",
        "empty",
        "end_trace_capture",
        "execute_trace",
        "fp8_e4m3",
        "from_device",
        "full",
        "get_arch_name",
        "get_memory_config",
        "get_num_devices",
        "int32",
        "int8",
        "is_tensor_storage_on_device",
        "num_cores_to_corerangeset",
        "ones",
        "open_device",
        "prepare_conv_bias",
        "prepare_conv_transpose2d_bias",
        "prepare_conv_transpose2d_weights",
        "prepare_conv_weights",
        "reallocate",
        "record_event",
        "release_trace",
        "reshard",
        "synchronize_device",
        "uint16",
        "uint32",
        "uint8",
        "wait_for_event",
        "zeros",
    ),
}
_MODULE_BY_NAME = {name: module for module, names in _NAMES_BY_MODULE.items() for name in names}
_ALIASES = {
    "Op2DDRAMSliceHeight": "Conv2dDRAMSliceHeight",
    "Op2DDRAMSliceWidth": "Conv2dDRAMSliceWidth",
    "Conv2dConfigSlice": "Conv2dSliceConfig",
    "Op2DSliceConfig": "Conv2dSliceConfig",
}


def __getattr__(name: str) -> typing.Any:
    name = _ALIASES.get(name, name)
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _MODULE_BY_NAME:
        return getattr(importlib.import_module(f"{_PACKAGE}.{_MODULE_BY_NAME[name]}"), name)
    if name in ("device", "types", "operations", "model_preprocessing"):
        return importlib.import_module(f"{__name__}.{name}")
    elementwise = importlib.import_module(f"{_PACKAGE}.operations.elementwise")
    if name in elementwise.UNARY_OPERATIONS:
        return elementwise.make_unary(name)
    if name in elementwise.BINARY_OPERATIONS:
        return elementwise.make_binary(name)
    try:
        return getattr(importlib.import_module(_PACKAGE), name)
    except AttributeError:
        raise AttributeError(
            f"ttnn.{name} is not modelled by tessera.coregrid.ttnn; see 'Add a core-grid operation' in CONTRIBUTING.md"
        ) from None
