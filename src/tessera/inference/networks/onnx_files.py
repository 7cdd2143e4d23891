"""Networks that come as ONNX files: what they take, and the dynamic dims that have to be settled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto

from tessera.errors import Refused, TesseraError, first_line
from tessera.inference.networks.loading import CHANNELS, Network
from tessera.inference.settings import Settings

BATCH = "batch"  # what the batch dim is called in every file that is given to an engine
ELEMENTS = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16", TensorProto.UINT8: "uint8"}


def network_of_file(settings: Settings) -> Network:
    """The network of an ONNX file; what the file leaves open is taken from the settings, or asked for."""
    path = Path(settings.model)
    for name in ("weights", "norm_type", "group_dim", "expand_ratio"):
        if getattr(settings, name):
            raise TesseraError(
                f"--{name.replace('_', '-')} has no meaning for an ONNX file", do="the file holds the network as it is"
            )
    model = read_onnx(path)
    shape = image_input(model).type.tensor_type.shape
    batch, *sizes = (dim.dim_value for dim in shape.dim)  # 0 where the dim is dynamic
    if batch and batch != settings.batch_size:
        raise Refused(
            f"{path.name} has a batch of {batch} built in",
            got=settings.batch_size,
            do=f"give --batch-size {batch}, or export it with a dynamic batch",
        )
    given = (CHANNELS, settings.image_size, settings.image_size)
    for name, fixed, wanted in zip(("channels", "height", "width"), sizes, given, strict=True):
        if not fixed and not wanted:
            raise Refused(f"the {name} of {path.name} is dynamic", do="give --image-size")
        if fixed and wanted and fixed != wanted and name != "channels":
            raise TesseraError(f"{path.name} has images of {sizes[1]} x {sizes[2]} built in", got=settings.image_size)
    channels, height, width = (fixed or wanted for fixed, wanted in zip(sizes, given, strict=True))
    found = path.stat()
    return Network(
        name=path.name,
        image_shape=(channels, height, width),
        identity=f"{path.resolve()}:{found.st_size}:{found.st_mtime_ns}:{channels}x{height}x{width}",
        file=path,
        element=element_of(model),
    )


def read_onnx(path: Path) -> Any:
    """The checked model of a file, with its weights."""
    if not path.is_file():
        raise TesseraError("no such ONNX file", got=str(path))
    try:
        model = onnx.load(path)
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf, the checker and missing external files all raise their own
        raise TesseraError(f"{path} is not a sound ONNX file: {first_line(error)}") from None
    return model


def image_input(model: Any) -> Any:
    """The one input of a model, which has to be a batch of images."""
    weights = {one.name for one in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in weights]
    if len(inputs) != 1:
        names = ", ".join(one.name for one in inputs)
        raise Refused("a network takes one input, the images", got=f"{len(inputs)}: {names}")
    (found,) = inputs
    if len(found.type.tensor_type.shape.dim) != 4:
        raise Refused("images are batch x channels x height x width", got=f"an input {found.name} of other dims")
    return found


def element_of(model: Any) -> str:
    """The type of a model's images, by its name in NumPy."""
    kind = image_input(model).type.tensor_type.elem_type
    if kind not in ELEMENTS:
        raise Refused(
            "images are numbers of 8, 16 or 32 bits", got=TensorProto.DataType.Name(kind), allowed=ELEMENTS.values()
        )
    return ELEMENTS[kind]


def write_settled(source: Path, target: Path, image_shape: tuple[int, int, int]) -> None:
    """Copy a file with the size of its images settled and its batch dim, where it is dynamic, under one name."""
    model = read_onnx(source)
    batch, *sizes = image_input(model).type.tensor_type.shape.dim
    if not batch.dim_value:
        batch.dim_param = BATCH
    for dim, size in zip(sizes, image_shape, strict=True):
        dim.dim_value = size
    del model.graph.value_info[:]  # shapes that were inferred from dims that may now be others
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    onnx.save(model, target)
