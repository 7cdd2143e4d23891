"""Tests of blocks of known architectures, written in plain torch: results equal the unsplit network's."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.spatial import ParallelModel
from tests.spatial.comparison import check_agreement, run_on_ranks

torch.set_num_threads(1)
pytestmark = pytest.mark.timeout(120)


class Functional(nn.Module):
    """A network without layers: functions with plain weights and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel, self.bias = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(4))
        self.up = nn.Parameter(torch.randn(4, 2, 2, 2))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("variance", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = F.conv2d(x, self.kernel, self.bias, padding=1)
        x = F.batch_norm(x, self.mean, self.variance, training=self.training)
        x = F.relu(F.max_pool2d(x, 2))
        x = F.conv_transpose2d(x, self.up, stride=2)
        return F.group_norm(F.layer_norm(x, x.shape[-2:]), 2)


class ConvNeXt(nn.Module):
    """Depthwise convolution, layer norm and linear layers with the channels last, and a scaled residual."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 2, 2)
        self.depthwise, self.norm = nn.Conv2d(4, 4, 7, padding=3, groups=4), nn.LayerNorm(4)
        self.grow, self.shrink = nn.Linear(4, 16), nn.Linear(16, 4)
        self.gamma = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.shrink(F.gelu(self.grow(y)))
        return x + y.permute(0, 3, 1, 2)


class Swin(nn.Module):
    """Attention in shifted windows, with a relative position bias and a mask."""

    window = 4

    def __init__(self, shift: int) -> None:
        super().__init__()
        self.shift, self.embed, self.norm = shift, nn.Conv2d(3, 8, 1), nn.LayerNorm(8)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(2, 16, 16))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).permute(0, 2, 3, 1)
        samples, height, width, channels = x.shape
        w = self.window
        x = F.pad(x, (0, 0, 0, -width % w, 0, -height % w))
        rows, cols = x.shape[1:3]
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(samples, rows // w, w, cols // w, w, channels).permute(0, 1, 3, 2, 4, 5).reshape(-1, w * w, channels)
        q, k, v = self.qkv(y).reshape(-1, w * w, 3, 2, channels // 2).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-2, -1) + self.bias
        if self.shift:
            region = torch.zeros(rows, cols)
            region[-self.shift :], region[:, -self.shift :] = region[-self.shift :] + 1, region[:, -self.shift :] + 2
            region = region.view(rows // w, w, cols // w, w).permute(0, 2, 1, 3).reshape(-1, w * w)
            mask = (region[:, None] != region[:, :, None]).double() * -100.0
            scores = scores.view(samples, -1, 2, w * w, w * w) + mask[None, :, None]
            scores = scores.view(-1, 2, w * w, w * w)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, w * w, channels)
        y = self.out(y).view(samples, rows // w, cols // w, w, w, channels).permute(0, 1, 3, 2, 4, 5)
        y = torch.roll(y.reshape(samples, rows, cols, channels), (self.shift, self.shift), (1, 2))
        return (x + y)[:, :height, :width].permute(0, 3, 1, 2)


class ViT(nn.Module):
    """A vision transformer: patches, class token, positional embedding, pre-norm blocks."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 8, 2, 2), nn.Parameter(torch.randn(1, 1, 8))
        self.position = nn.Parameter(torch.randn(1, size[0] // 2 * (size[1] // 2) + 1, 8))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0]) + self.head(x[:, 1:].mean(1))


class SqueezeExcite(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.down, self.up = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))


class PositionAdded(nn.Module):
    """An embedding of positions, resized to the image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.position = nn.Conv2d(3, 4, 3, padding=1), nn.Parameter(torch.randn(1, 4, 5, 6))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return x + F.interpolate(self.position, size=x.shape[2:], mode="bicubic") + self.position[:, :, :1, :1]


class Coordinates(nn.Module):
    """Coordinates made inside of forward, as channels and as factors."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(5, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        rows = torch.linspace(-1, 1, height, dtype=x.dtype, device=x.device)
        cols = torch.arange(width, dtype=x.dtype, device=x.device) / width
        grid = torch.stack(torch.meshgrid(rows, cols, indexing="ij"))
        x = self.conv(torch.cat([x, grid.expand(x.shape[0], -1, -1, -1)], 1))
        return x * rows[:, None] + x.new_ones(height, width).cumsum(1) * grid[0] + torch.ones_like(x)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.token = nn.Conv2d(3, 4, 3, padding=1), nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        rows, cols = (torch.arange(size) for size in x.shape[2:])
        mask = (rows[:, None] + cols) % 3 == 0
        x = torch.where(mask, self.token[:, None, None], x)
        return torch.where(x > 0, x, torch.zeros_like(x)) + x.masked_fill(mask, 0.0)


class Shapes(nn.Module):
    """stack, repeat, expand_as, None indexing and in-place writes to slices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.scale = nn.Conv2d(3, 4, 3, padding=1), nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        x = torch.stack([x, x.flip(3)]).sum(0) * self.scale[None, :, None, None].expand_as(x)
        x = x * 1
        x[:, :2] += 1
        x[:, :, 1:3] = 0
        return x.repeat(1, 2, 1, 1) + x[:, None].expand(-1, 2, -1, -1, -1).flatten(1, 2)


class Both(nn.Module):
    """One weight on split and on whole activations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.conv(x).mean((2, 3), keepdim=True)) + self.conv(x)


class Pyramid(nn.Module):
    """Pooling at several scales, resized and concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.merge = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        levels = [F.adaptive_avg_pool2d(x, size) for size in (1, 2, 3)]
        resized = [F.interpolate(level, size=x.shape[2:], mode="bilinear", align_corners=True) for level in levels]
        return self.merge(torch.cat([x, *resized], 1))


class DataDependent(nn.Module):
    """Control flow that depends on data: early exits, loops and choices."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.other = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        steps = 0
        while x.abs().max() < 20 and steps < 4:
            x, steps = self.conv(x) * 2, steps + 1
        if x.mean() > 0:
            return self.other(x)
        return x - x.amax((2, 3), keepdim=True)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "functional": Functional,
    "functional in evaluation": lambda: Functional().eval(),
    "ConvNeXt": ConvNeXt,
    "Swin": lambda: Swin(0),
    "Swin shifted": lambda: Swin(2),
    "ViT": lambda: ViT((10, 12)),
    "squeeze and excite": SqueezeExcite,
    "position": PositionAdded,
    "coordinates": Coordinates,
    "mask": Masked,
    "shapes": Shapes,
    "one weight on tiles and whole": Both,
    "pyramid": Pyramid,
    "data-dependent": DataDependent,
    "linear on columns": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.Linear(12, 2)),
    "flatten": lambda: nn.Sequential(nn.Conv2d(3, 3, 1), nn.Flatten(), nn.Linear(360, 2)),
}


@pytest.mark.parametrize("mesh", ["1x2", "2x2", "1x3"])
@pytest.mark.parametrize("name", NETWORKS)
def test_an_architecture(name: str, mesh: str) -> None:
    torch.manual_seed(13)
    check_agreement(NETWORKS[name]().double(), mesh, torch.randn(2, 3, 10, 12, dtype=torch.float64))


def test_a_mesh_of_one_dim_and_of_three() -> None:
    torch.manual_seed(14)
    model = nn.Sequential(nn.Conv3d(2, 3, 3, padding=1), nn.BatchNorm3d(3), nn.MaxPool3d(2)).double()
    check_agreement(model, "1x2x2", torch.randn(1, 2, 4, 6, 7, dtype=torch.float64))
    check_agreement(model, "2x1x2", torch.randn(1, 2, 5, 6, 7, dtype=torch.float64))
    check_agreement(model, "3", torch.randn(1, 2, 4, 6, 7, dtype=torch.float64))
    signal = nn.Sequential(nn.Conv1d(2, 3, 3, padding=1), nn.BatchNorm1d(3), nn.MaxPool1d(2)).double()
    check_agreement(signal, "3", torch.randn(2, 2, 17, dtype=torch.float64))
    check_agreement(signal, "2x2", torch.randn(2, 2, 17, dtype=torch.float64))


@pytest.mark.parametrize(
    ("module", "received"),
    [
        (nn.ReflectionPad2d(2), 0),
        (nn.ReplicationPad2d(3), 0),
        (nn.CircularPad2d(2), 2 * 4 * 4 * 144),  # a tile has 256 pixels
        (nn.Upsample(scale_factor=2, mode="nearest-exact"), 0),
    ],
    ids=str,
)
def test_padding_and_upsampling_stay_on_tiles(module: nn.Module, received: int) -> None:
    """Check that only pixels near the edges of tiles move: the tiles of a padded image begin a few pixels earlier."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), module)
    check_agreement(deepcopy(model).double(), "2x2", torch.randn(2, 3, 32, 32, dtype=torch.float64))

    def run(parallel: ParallelModel) -> tuple[int, int]:
        explanation = parallel.explain(torch.ones(2, 3, 32, 32))
        return explanation.count("moved") + explanation.count("whole"), explanation.received_bytes

    for elsewhere, own_bytes in run_on_ranks(model, "2x2", None, run):
        assert elsewhere == 0
        assert own_bytes <= received


def test_an_explanation_tells_tiles_from_whole_operations() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.conv(x))
            return torch.linalg.svdvals(x).sum()

    image = torch.randn(2, 3, 8, 8)

    def run(parallel: ParallelModel) -> tuple[list[dict[str, str]], str, int]:
        explanation = parallel.explain(image)
        assert not parallel.group.log.active
        return explanation.to_rows(), str(explanation), explanation.count("whole")

    for rows, text, whole in run_on_ranks(Mixed(), "2x2", None, run):
        ways = {(row["module"], row["operator"]): row["computed"] for row in rows}
        assert ways["conv", "convolution"] == "split"
        assert ways["norm", "native_batch_norm"] == "split"
        assert ways["", "_linalg_svd"] == "whole"
        assert whole == 1
        (conv,) = (row for row in rows if row["operator"] == "convolution")
        # The busiest rank receives a row, a column and a corner of its 4x4 tile from its neighbours.
        assert conv["received_bytes"] == 2 * 3 * (4 + 4 + 1) * 4
        assert "convolution" in text
        assert "1 whole" in text
