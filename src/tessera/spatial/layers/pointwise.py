"""Layers that compute every pixel from its own channels alone: the module itself, on whatever a rank has."""

from __future__ import annotations

from torch import nn

from tessera.errors import TesseraError
from tessera.spatial.layers.layer import AsItIs, Layer, makes
from tessera.spatial.placed import Placed, Settings


@makes(
    nn.CELU,
    nn.ChannelShuffle,
    nn.ELU,
    nn.GELU,
    nn.Hardshrink,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Identity,
    nn.LeakyReLU,
    nn.LocalResponseNorm,
    nn.LogSigmoid,
    nn.Mish,
    nn.PReLU,
    nn.ReLU,
    nn.ReLU6,
    nn.SELU,
    nn.Sigmoid,
    nn.SiLU,
    nn.Softmax2d,
    nn.Softplus,
    nn.Softshrink,
    nn.Softsign,
    nn.Tanh,
    nn.Tanhshrink,
    nn.Threshold,
)
def pointwise(module: nn.Module, placed: Placed, settings: Settings) -> Layer:
    return AsItIs(module, placed, placed)


@makes(nn.GLU, nn.LogSoftmax, nn.Softmax, nn.Softmin)
def over_one_dim(module: nn.GLU | nn.Softmax | nn.LogSoftmax, placed: Placed, settings: Settings) -> Layer:
    """Channels are all on one rank wherever their pixel is; the other dims are there only with whole images."""
    dim = None if module.dim is None else module.dim % (len(placed.sizes) + 1)
    whole = placed.kind != "tiles" and bool(dim) and not isinstance(module, nn.GLU)
    if dim != 1 and not whole:
        raise TesseraError(
            "a rank has all channels of its pixels, but not all pixels of its images",
            got=f"dim={module.dim}",
            allowed="dim=1",
            do="go over channels, or gather before it (gather_at=)",
        )
    return AsItIs(module, placed, placed)
