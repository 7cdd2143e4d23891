"""Linear layer as a 1x1 convolution: every row of the input is a pixel."""

from __future__ import annotations

from tessera.coregrid.config import ComputeConfig, Conv2dConfig
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import MemoryConfig
from tessera.coregrid.device.tensors import Tensor, from_torch, reshape
from tessera.coregrid.operations.conv2d import conv2d
from tessera.coregrid.operations.inputs import choose_device
from tessera.errors import TesseraError


def linear(
    input_tensor: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    transpose_b: bool = False,
    device: Device | None = None,
    conv_config: Conv2dConfig | None = None,
    compute_config: ComputeConfig | None = None,
    memory_config: MemoryConfig | None = None,
) -> Tensor:
    """Multiply the rows of the input by a matrix `(in, out)` and add a bias.

    With `transpose_b`, the matrix is `(out, in)`, as in torch. `conv_config` sets sharding, formats and activation. The
    weights must be on the host.
    """
    rows, features = input_tensor.matrix.rows, input_tensor.shape[-1]
    matrix = weight.host if transpose_b else weight.host.transpose(-1, -2)
    matrix = matrix.reshape(matrix.shape[-2:])
    if matrix.shape[1] != features:
        raise TesseraError(
            "the weights do not match the input features", got=weight.shape, allowed=f"{features} inputs"
        )
    output: Tensor = conv2d(
        input_tensor=reshape(input_tensor, (1, 1, rows, features)),
        weight_tensor=from_torch(matrix[:, :, None, None], weight.dtype, layout=weight.layout),
        in_channels=features,
        out_channels=matrix.shape[0],
        device=choose_device(input_tensor, device),
        bias_tensor=bias,
        input_height=rows,
        conv_config=conv_config,
        compute_config=compute_config,
        memory_config=memory_config,
    )
    return reshape(output, (*input_tensor.shape[:-1], matrix.shape[0]))
