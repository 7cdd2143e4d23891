"""Decode an image tile by tile with a budget of a quarter of the weights: all tiles pass through a phase together.

The decoder is a VAE decoder in plain torch with random weights. Its weights are loaded once for the first tile, which
is observed alone, and once for all other tiles. Tiles overlap, and the middle of each is kept.
"""

import torch
from torch import Tensor, nn

from tessera import PhasedModel

LATENT, TILE, MARGIN, SCALE = 32, 16, 4, 4


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.body(x)
        return y


def build_decoder() -> nn.Module:
    up = [layer for _ in range(2) for layer in (nn.Upsample(scale_factor=2), *(Block(64) for _ in range(3)))]
    return nn.Sequential(nn.Conv2d(4, 64, 3, padding=1), *(Block(64) for _ in range(4)), *up, nn.Conv2d(64, 3, 1))


def cut_tiles(latent: Tensor) -> list[Tensor]:
    starts = range(0, LATENT, TILE)
    padded = nn.functional.pad(latent, (MARGIN,) * 4, mode="reflect")
    width = TILE + 2 * MARGIN
    return [padded[:, :, y : y + width, x : x + width] for y in starts for x in starts]


def join_tiles(tiles: list[Tensor]) -> Tensor:
    border, size = MARGIN * SCALE, TILE * SCALE
    middles = [tile[:, :, border : border + size, border : border + size] for tile in tiles]
    count = LATENT // TILE
    return torch.cat([torch.cat(middles[row * count : (row + 1) * count], -1) for row in range(count)], -2)


if __name__ == "__main__":
    torch.manual_seed(0)
    decoder = build_decoder().eval()
    size = sum(weight.nbytes for weight in decoder.parameters())
    tiles = cut_tiles(torch.randn(1, 4, LATENT, LATENT))
    with torch.no_grad(), PhasedModel(decoder, budget=size // 4, threads=1) as phased:
        phased(tiles[0])  # the order of the layers is learnt
        image = join_tiles(phased.run_many(tiles))
        loaded = sum(event.bytes for event in phased.events)
        expected = join_tiles([decoder(tile) for tile in tiles])
    error = (image - expected).abs().max().item()
    print(f"image {tuple(image.shape)} from {len(tiles)} tiles: largest difference from the plain decoder {error:.1e}")
    print(f"{loaded / 1e6:.1f} MB loaded for all tiles; the weights have {size / 1e6:.1f} MB")
    assert error < 1e-4
    assert loaded < 2.5 * size
