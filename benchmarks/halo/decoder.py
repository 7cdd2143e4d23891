"""A decoder of the shape of image VAEs in plain torch: residual blocks of convolutions between upsamplings."""

from __future__ import annotations

from torch import Tensor, nn

CHANNELS = (512, 512, 256, 128)


class Block(nn.Module):
    """A residual block: group norm, SiLU and a 3x3 convolution, twice."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(32, before),
            nn.SiLU(),
            nn.Conv2d(before, after, 3, padding=1),
            nn.GroupNorm(32, after),
            nn.SiLU(),
            nn.Conv2d(after, after, 3, padding=1),
        )
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.skip(x) + self.body(x)
        return result


def make_decoder() -> nn.Module:
    """Return a decoder that makes images of eight times the size of its input with four channels."""
    layers: list[nn.Module] = [nn.Conv2d(4, CHANNELS[0], 3, padding=1)]
    before = CHANNELS[0]
    for number, after in enumerate(CHANNELS):
        layers += [Block(before, after), Block(after, after), Block(after, after)]
        if number < len(CHANNELS) - 1:
            layers += [nn.Upsample(scale_factor=2), nn.Conv2d(after, after, 3, padding=1)]
        before = after
    return nn.Sequential(*layers, nn.GroupNorm(32, before), nn.SiLU(), nn.Conv2d(before, 3, 3, padding=1))
