"""Tests of the analysis that decides whether the samples of a mini-batch are independent."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tessera.phased import PhasedModel
from tessera.phased.paging.sample_tracking import SampleTracker

SAMPLES = 6


def find_obstacle(function, *inputs: Tensor, inference: bool = False) -> str:
    tracker = SampleTracker(inputs, SAMPLES)
    with torch.inference_mode() if inference else torch.no_grad(), tracker.watch():
        output = function(*inputs)
    return tracker.find_obstacle(output)


def split_windows(x: Tensor) -> Tensor:
    """Attention in windows of 4 x 4 pixels, as in Swin."""
    n, c, h, w = x.shape
    windows = x.view(n, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
    attended = F.softmax(windows @ windows.transpose(1, 2), -1) @ windows
    return attended.view(n, h // 4, w // 4, 4, 4, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)


def pool_last(x: Tensor) -> Tensor:
    return x[torch.arange(len(x)), x.sum(-1).argmax(1)]


def fill(x: Tensor) -> Tensor:
    buffer = torch.empty_like(x)
    buffer.copy_(x)
    return buffer.mul_(2)


TABLE, BIAS = torch.randn(5, 8), torch.randn(8)
IMAGE, TOKENS, ROWS = (SAMPLES, 4, 8, 8), (SAMPLES, 5, 8), (SAMPLES, 8)
INDEPENDENT = {
    "softmax": (lambda x: F.softmax(x, -1), TOKENS),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), (SAMPLES, 2, 5, 8)),
    "attention by hand": (lambda x: F.softmax(x @ x.mT, -1) @ x, TOKENS),
    "windows": (split_windows, IMAGE),
    "multi-head": (nn.MultiheadAttention(8, 2, batch_first=True).eval(), TOKENS, TOKENS, TOKENS),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), TOKENS),
    "instance norm": (nn.InstanceNorm2d(4, affine=True), IMAGE),
    "group norm": (nn.GroupNorm(2, 4), IMAGE),
    "batch norm": (nn.BatchNorm2d(4).eval(), IMAGE),
    "convolution": (nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten()), IMAGE),
    "channels last norm": (lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2), IMAGE),
    "class token": (lambda x: torch.cat([TABLE[:1].expand(len(x), 1, -1), x + TABLE], 1)[:, 0], TOKENS),
    "last token": (pool_last, TOKENS),
    "mask by index": (lambda x: x[torch.arange(len(x))[:, None, None], torch.arange(5)[None, :, None]], TOKENS),
    "hardswish": (lambda x: F.hardswish(x, inplace=True), ROWS),
    "channels last pool": (lambda x: F.adaptive_avg_pool2d(x.contiguous(memory_format=torch.channels_last), 1), IMAGE),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", x, x), TOKENS),
    "linear": (nn.Linear(8, 3), TOKENS),
    "chunk and stack": (lambda x: torch.stack(x.chunk(2, -1), 1), ROWS),
    "sequence first": (lambda x: (x.transpose(0, 1) * 2 + TABLE[:, None]).transpose(0, 1), TOKENS),
    "buffer": (fill, ROWS),
    "reduction": (lambda x: (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True), TOKENS),
    "fft": (lambda x: torch.fft.rfft(x, dim=-1).abs(), ROWS),
    "pads": (lambda x: F.pad(F.pad(x, (1, 1)), (1, 0, 1, 0), mode="reflect"), IMAGE),
    "resize": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), IMAGE),
}
DEPENDENT = {
    "softmax over samples": (lambda x: F.softmax(x, 0), ROWS),
    "mean of samples": (lambda x: x - x.mean(0), ROWS),
    "mean of all": (lambda x: x / x.norm(), ROWS),
    "attention of samples": (lambda x: F.softmax(x @ x.T, -1) @ x, ROWS),
    "batch statistics": (lambda x: F.batch_norm(x, None, None, training=True), IMAGE),
    "branch": (lambda x: x if x.sum() > 0 else -x, ROWS),
    "branch of a list": (lambda x: x * len(x.tolist()), ROWS),
    "array": (lambda x: x + torch.from_numpy(x.numpy()), ROWS),
    "flip": (lambda x: x.flip(0), ROWS),
    "shift": (lambda x: torch.roll(x, 1, 0), ROWS),
    "sorted samples": (lambda x: x.sort(0).values, ROWS),
    "first sample": (lambda x: x + x[0], ROWS),
    "half of the samples": (lambda x: torch.cat([x[3:], x[:3]]), ROWS),
    "number of a sample": (lambda x: x + torch.arange(len(x))[:, None], ROWS),
    "samples merged with tokens": (lambda x: x.transpose(0, 1).reshape(-1, 8).view(SAMPLES, 5, 8), TOKENS),
    "random": (lambda x: x + torch.rand_like(x), ROWS),
    "constant": (lambda x: torch.ones(len(x), 8), ROWS),
    "unknown": (lambda x: torch.linalg.qr(x)[0], ROWS),
    "earlier view": (lambda x: (lambda base: (base[0], base.copy_(x))[0] + x)(torch.zeros(ROWS)), ROWS),
    "weights per sample": (lambda x: x * torch.randn(SAMPLES, 1), ROWS),
    "aligned with features": (lambda x, y: x + y, (SAMPLES, SAMPLES), (SAMPLES,)),
    "unsplit mask": (lambda x, y: x * y.mT, ROWS, (1, SAMPLES)),
    "branch of an unsplit input": (lambda x, y: x if y.sum() > 0 else -x, ROWS, (3,)),
    "expanded samples": (lambda x: (x[:, None] - x[None]).sum(1), ROWS),
    "picked samples": (lambda x: x[torch.arange(len(x)).flip(0)], ROWS),
    "samples of other rows": (lambda x: x[torch.arange(len(x))[:, None], x.argsort(0)], ROWS[:1] * 2),
    "rows of a matrix": (lambda x: x.as_strided((SAMPLES, 8), (1, SAMPLES)), ROWS),
    "scattered samples": (lambda x: x.index_put((torch.tensor([0]),), x[1:2]), ROWS),
    "cumulative": (lambda x: x.cumsum(0), ROWS),
}


@pytest.mark.parametrize("inference", [False, True], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize(("function", "shapes"), [(f, s) for f, *s in INDEPENDENT.values()], ids=list(INDEPENDENT))
def test_independent_samples_are_recognised(function, shapes, inference):
    inputs = [torch.randn(shape) for shape in shapes]
    assert find_obstacle(function, *inputs, inference=inference) == ""


@pytest.mark.parametrize("inference", [False, True], ids=["no_grad", "inference_mode"])
@pytest.mark.parametrize(("function", "shapes"), [(f, s) for f, *s in DEPENDENT.values()], ids=list(DEPENDENT))
def test_samples_that_may_be_mixed_are_an_obstacle(function, shapes, inference):
    inputs = [torch.randn(shape) for shape in shapes]
    assert find_obstacle(function, *inputs, inference=inference) != ""


class Classifier(nn.Module):
    """A transformer that torch.fx cannot trace: its loop depends on a shape, and it has a positional embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(20, 8), nn.Parameter(torch.randn(16, 8))
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        length = tokens.shape[1]
        x = self.embed(tokens) + self.positions[:length]
        for layer in self.layers if length > 1 else self.layers[:1]:
            x = layer(x, src_key_padding_mask=mask)
        return {"logits": self.head(x[:, 0]), "states": x}


def test_a_transformer_is_split_over_two_devices():
    model, tokens = Classifier().eval(), torch.randint(20, (SAMPLES, 7))
    sizes = []
    settings = {"schedule": "data-parallel", "devices": 2, "threads": 1, "pin": False}
    with PhasedModel(model, budget="1MB", **settings) as phased, torch.no_grad():
        phased.network.head.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
        for _ in range(3):
            outputs, expected = phased(tokens), model(tokens)
            for name, value in expected.items():
                torch.testing.assert_close(outputs[name], value)
        assert "not split" not in phased.explain()
    assert sizes[-2:] == [SAMPLES // 2, SAMPLES // 2]


class DividesByBatchSize(nn.Module):
    """Depends on the number of samples, but on no value of another sample."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) / len(x)


def test_a_result_that_depends_on_the_number_of_samples_is_not_split():
    model, x = DividesByBatchSize().eval(), torch.randn(ROWS)
    with PhasedModel(model, schedule="data-parallel", devices=2, threads=1, pin=False) as phased, torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(phased(x), model(x))
        assert "the results of the parts differ" in phased.explain()
