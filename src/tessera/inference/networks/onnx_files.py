"""Networks in ONNX files: check their input, and give dynamic dimensions a fixed size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from tessera.errors import Refused, TesseraError, get_first_line
from tessera.inference.networks.loading import BATCH_DIM, DEFAULT_CHANNELS, InferenceNetwork, NetworkSettings

IMAGE_DTYPES = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16", TensorProto.UINT8: "uint8"}


def load_onnx_network(settings: NetworkSettings) -> InferenceNetwork:
    """Load the network of an ONNX file; dynamic dimensions come from the settings.

    Raises:
        Refused: the settings lack the size of a dynamic dimension, or their batch size differs from the file's.
    """
    path = Path(settings.model)
    for name in ("weights", "norm_type", "group_dim", "expand_ratio"):
        if getattr(settings, name):
            raise TesseraError(f"--{name.replace('_', '-')} does not apply to an ONNX file", do="omit the option")
    model = read_onnx(path)
    shape = get_image_input(model).type.tensor_type.shape
    batch, *sizes = (dim.dim_value for dim in shape.dim)  # 0 where the dim is dynamic
    if batch and batch != settings.batch_size:
        raise Refused(
            f"{path.name} has a fixed batch size of {batch}",
            got=settings.batch_size,
            do=f"use --batch-size {batch}, or export the file with a dynamic batch size",
        )
    wanted_sizes = (DEFAULT_CHANNELS, settings.image_size, settings.image_size)
    for name, fixed, wanted in zip(("channels", "height", "width"), sizes, wanted_sizes, strict=True):
        if not fixed and not wanted:
            raise Refused(f"the {name} of the images is dynamic in {path.name}", do="set --image-size")
        if fixed and wanted and fixed != wanted and name != "channels":
            raise TesseraError(
                f"{path.name} has a fixed image size of {sizes[1]} x {sizes[2]}", got=settings.image_size
            )
    channels, height, width = (fixed or wanted for fixed, wanted in zip(sizes, wanted_sizes, strict=True))
    status = path.stat()
    return InferenceNetwork(
        name=path.name,
        image_shape=(channels, height, width),
        identity=f"{path.resolve()}:{status.st_size}:{status.st_mtime_ns}:{channels}x{height}x{width}",
        file=path,
        dtype=get_image_dtype(model),
    )


def read_onnx(path: Path) -> Any:
    """Read an ONNX file and check its model."""
    if not path.is_file():
        raise TesseraError("ONNX file not found", got=str(path))
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf, the checker and missing external files raise different types
        raise TesseraError(f"{path} is not a valid ONNX file: {get_first_line(error)}") from None
    return model


def get_image_input(model: Any) -> Any:
    """Return the only input of a model, which must be a batch of images."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(value.name for value in inputs)
        raise Refused("an ONNX file must have exactly one input, the images", got=f"{len(inputs)}: {names}")
    (images,) = inputs
    dims = len(images.type.tensor_type.shape.dim)
    if dims != 4:
        raise Refused(
            "the input of an ONNX file must have 4 dimensions: batch, channels, height and width",
            got=f"{images.name} with {dims} dimensions",
        )
    return images


def get_image_dtype(model: Any) -> str:
    """Return the NumPy dtype of the model's image input."""
    element = get_image_input(model).type.tensor_type.elem_type
    if element not in IMAGE_DTYPES:
        raise Refused(
            "the images of the ONNX file have an unsupported dtype",
            got=TensorProto.DataType.Name(element),
            allowed=IMAGE_DTYPES.values(),
        )
    return IMAGE_DTYPES[element]


def write_with_fixed_size(source: Path, target: Path, image_shape: tuple[int, int, int]) -> None:
    """Copy an ONNX file with a fixed image size. A dynamic batch dimension is renamed to `BATCH_DIM`."""
    model = read_onnx(source)
    batch, *sizes = get_image_input(model).type.tensor_type.shape.dim
    if not batch.dim_value:
        batch.dim_param = BATCH_DIM
    for dim, size in zip(sizes, image_shape, strict=True):
        dim.dim_value = size
    del model.graph.value_info[:]  # stored intermediate shapes may no longer be correct
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    onnx.save(model, target)
