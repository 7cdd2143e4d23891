"""Decode an image with a VAE on two ranks, and compare with the unsplit decoder.

The decoder is diffusers' AutoencoderKL if diffusers is installed, and a network of the same kind in plain torch
otherwise: residual blocks with group norm, attention over all pixels in the middle, and upsampling. Weights are random.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera import parallelize
from tessera.launch import LaunchConfig, Worker, Workers

LATENT_SIZE = 16


class Block(nn.Module):
    def __init__(self, channels: int, results: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, channels), nn.GroupNorm(8, results)])
        self.convolutions = nn.ModuleList([nn.Conv2d(c, results, 3, padding=1) for c in (channels, results)])
        self.shortcut = nn.Conv2d(channels, results, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for norm, convolution in zip(self.norms, self.convolutions, strict=True):
            y = convolution(F.silu(norm(y)))
        return self.shortcut(x) + y


class Attention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.project = nn.GroupNorm(8, channels), nn.Linear(channels, 3 * channels)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(x).flatten(2).transpose(1, 2)  # samples, pixels, channels
        query, key, value = self.project(tokens).unsqueeze(1).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(query, key, value).squeeze(1)
        return x + y.transpose(1, 2).reshape(x.shape)


def build_decoder() -> nn.Module:
    torch.manual_seed(0)
    try:
        from diffusers import AutoencoderKL
    except ImportError:
        layers: list[nn.Module] = [nn.Conv2d(4, 64, 3, padding=1), Block(64, 64), Attention(64)]
        for channels, results in ((64, 64), (64, 32)):
            layers += [Block(channels, results), nn.Upsample(scale_factor=2), nn.Conv2d(results, results, 3, padding=1)]
        return nn.Sequential(*layers, nn.GroupNorm(8, 32), nn.SiLU(), nn.Conv2d(32, 3, 3, padding=1))
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 3, "up_block_types": ("UpDecoderBlock2D",) * 3}
    decoder: nn.Module = AutoencoderKL(**blocks, block_out_channels=(32, 64, 64), latent_channels=4).decoder
    return decoder


def make_latent() -> Tensor:
    return torch.randn(1, 4, LATENT_SIZE, LATENT_SIZE, generator=torch.Generator().manual_seed(1))


def decode_split(worker: Worker) -> Tensor:
    worker.connect()  # torch.distributed is initialised; under your own torchrun, call init_process_group("gloo")
    decoder = parallelize(build_decoder().eval(), "1x2")
    with torch.inference_mode():
        image: Tensor = decoder.gather(decoder(make_latent()))  # the whole image, on every rank
    return image.clone()


if __name__ == "__main__":
    with torch.inference_mode():
        expected = build_decoder().eval()(make_latent())
    with Workers(LaunchConfig(spawn="torchrun", workers=2)) as workers:
        image, _ = workers.run("vae_decode:decode_split")
    error = (image - expected).abs().max().item()
    print(f"image {tuple(image.shape)}: largest difference between unsplit and two ranks {error:.1e}")
    assert error < 1e-4
