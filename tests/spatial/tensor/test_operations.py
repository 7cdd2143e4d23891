"""Tests of functions and tensor methods on split tensors of every layout: results equal torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.spatial.tensor.boundary import join_parts
from tests.spatial.tensor.agreement import Applied, check_agreement, run_on_ranks, split

torch.set_num_threads(1)
SHAPE = (2, 4, 6, 7)


def attend(x: Tensor) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2)
    return F.scaled_dot_product_attention(tokens, tokens * 0.5, tokens.tanh())


def attend_by_hand(x: Tensor) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2)
    return torch.softmax(tokens @ tokens.transpose(-2, -1) / 2, -1) @ tokens


def select_by_mask(x: Tensor) -> Tensor:
    return x[x > 0]


def write_by_mask(x: Tensor) -> Tensor:
    x = x * 1
    x[x > 0.5] = 0.25
    return x


def write_pixels(x: Tensor) -> Tensor:
    x = x * 1
    x[:, :, 1:3] = 0
    x[:, :2] += 1
    x[..., -1].mul_(3)
    x[0, 1, 2, 3] = 7
    return x


def write_by_index(x: Tensor) -> Tensor:
    x = x * 1
    x[:, :, torch.tensor([0, 4]), 2] = -1.0
    return x.index_add(3, torch.tensor([0, 0, 2]), x[..., :3])


def write_to_a_copy(x: Tensor) -> Tensor:
    """Write to a reshaped tensor that is a copy in torch: the base does not change."""
    y = x * 1
    copy = y.transpose(1, 2).reshape(2, -1)
    copy.add_(1)
    return y + copy.view(2, 6, 4, 7).transpose(1, 2)


def write_to_a_view(x: Tensor) -> Tensor:
    y = x * 1
    view = y.view(2, 4, -1)
    view[:, 1:3].mul_(2)
    y[..., 3] += 1
    return y.tanh() + view.view_as(y)


def change_shape_in_place(x: Tensor) -> Tensor:
    y = (x * 1)[:, :1].clone().squeeze_(1).unsqueeze_(2).transpose_(0, 1)
    y[2, :, :, 1] = 3
    return y.swapaxes_(0, 3) * 2


def write_to_a_plain_tensor(x: Tensor) -> Tensor:
    target = torch.zeros(SHAPE, dtype=torch.float64)
    target[:, :2] = x[:, :2]
    target += x.flip(2)
    return target * 2


def write_to_a_new_tensor(x: Tensor) -> Tensor:
    target = x.new_zeros(2, 8, 6, 7)
    target[:, ::2], target[:, 1::2] = x, -x
    return target


def attend_with_a_mask(x: Tensor) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2)[:, None]
    mask = torch.ones(42, 42, dtype=torch.bool).tril()
    return F.scaled_dot_product_attention(tokens, tokens, tokens, attn_mask=mask)


def attend_to_the_past(x: Tensor) -> Tensor:
    tokens = x.flatten(2).transpose(1, 2)[:, None]
    return F.scaled_dot_product_attention(tokens, tokens, tokens, is_causal=True)


def convolve_with_a_kernel_of_each_sample(x: Tensor) -> Tensor:
    kernels = x.mean((2, 3)).reshape(8, 1, 1, 1) * torch.ones(8, 1, 3, 3, dtype=torch.float64)
    return F.conv2d(x.reshape(1, 8, 6, 7), kernels, groups=8, padding=1).view_as(x)


OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    # pixels
    "softmax over columns": lambda x: x.softmax(-1),
    "softmax over all pixels": lambda x: x.flatten(2).softmax(-1).view(x.shape),
    "log_softmax over rows": lambda x: F.log_softmax(x, 2),
    "logsumexp": lambda x: x.logsumexp((2, 3)) + x.logsumexp(3).sum(2),
    "cumsum over columns": lambda x: x.cumsum(-1),
    "cumsum over samples": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(2),
    "sort over columns": lambda x: x.sort(-1).values,
    "sort over channels": lambda x: x.sort(1, descending=True)[0],
    "topk": lambda x: x.topk(3, dim=2).values,
    "median": lambda x: x.median(-1).values,
    "kthvalue": lambda x: x.kthvalue(2, 2).values,
    "fft": lambda x: torch.fft.fft2(x).abs(),
    "real fft": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * 0.5, s=x.shape[-2:]),
    "roll": lambda x: torch.roll(x, (2, -3), (2, 3)),
    "flip": lambda x: x.flip(2, 3) + x.flip(1),
    "rotation": lambda x: torch.rot90(x, 1, (2, 3)),
    "diff": lambda x: x.diff(dim=3),
    "unfold method": lambda x: x.unfold(2, 3, 2).unfold(3, 2, 1).sum((-1, -2)),
    "F.unfold": lambda x: F.unfold(x, 3, padding=1),
    "F.fold": lambda x: F.fold(F.unfold(x, 3, padding=1), (6, 7), 3, padding=1),
    "tril": lambda x: x.tril() + x.triu(1),
    "diagonal": lambda x: x.diagonal(dim1=2, dim2=3),
    # reductions
    "sum": lambda x: x.sum(),
    "sum of rows": lambda x: x.sum(2),
    "sum of columns": lambda x: x.sum(3, keepdim=True),
    "sum of samples": lambda x: x.sum(0),
    "sum of channels": lambda x: x.sum(1),
    "mean": lambda x: x.mean(),
    "mean of rows": lambda x: x.mean(2, keepdim=True) * x,
    "maximum": lambda x: x.max(),
    "maximum of rows": lambda x: x.amax(2) + x.amin((0, 2)),
    "maximum with indices": lambda x: x.max(3).values,
    "product": lambda x: x.prod(3),
    "standard deviation": lambda x: x.std((1, 2)),
    "variance": lambda x: x.var(dim=(2, 3), unbiased=False),
    "norm": lambda x: x.norm() + x.norm(p=1, dim=(2, 3)).sum(),
    "vector norm": lambda x: torch.linalg.vector_norm(x, dim=(1, 2, 3), keepdim=True) * x,
    "number of elements": lambda x: (x > 0).sum() * x,
    "any and all": lambda x: (x > 0).any(3, keepdim=True) * x + (x > -9).all() * x,
    "argmax": lambda x: x * x.argmax(2, keepdim=True),
    # views
    "flatten": lambda x: x.flatten(1) * 2,
    "flatten all": lambda x: x.flatten().relu(),
    "view of everything": lambda x: x.view(-1) * 2,
    "reshape of rows": lambda x: x.reshape(2, 4, 3, 2, 7).sum(3),
    "permute": lambda x: x.permute(0, 2, 3, 1) * torch.arange(4.0, dtype=torch.float64),
    "transpose and reshape": lambda x: x.transpose(1, 3).reshape(2, -1).sin(),
    "rows picked": lambda x: x[:, :, ::2],
    "one row": lambda x: x[:, :, 2] * x[..., 1, :],
    "negative indices": lambda x: x[:, :, -3:-1, -1],
    "list of rows": lambda x: x[:, :, [0, 3, 3]],
    "two lists": lambda x: x[:, :, [0, 3, 3], [1, 2, 2]],
    "two distant lists": lambda x: x[[0, 1], :, [2, 3]],
    "ellipsis and None": lambda x: x[..., None, :, 1:].squeeze(-3) * x[:, None, :, :, :1].squeeze(1),
    "index_select": lambda x: x.index_select(3, torch.tensor([2, 0])),
    "gather": lambda x: x.gather(3, torch.arange(7).flip(0).expand(2, 4, 6, 7)),
    "scatter": lambda x: x.scatter(2, torch.zeros(2, 4, 1, 7, dtype=torch.int64), 0.5),
    "take": lambda x: x.take(torch.tensor([0, 100, 100])),
    "narrow": lambda x: x.narrow(2, 1, 4) + x.narrow(2, 2, 4),
    "unbind": lambda x: torch.stack(x.unbind(2)[::2], 1),
    "chunks of rows": lambda x: torch.cat([part * n for n, part in enumerate(x.chunk(3, 2))], 3),
    "split of columns": lambda x: x.split([2, 4, 1], 3)[1],
    "as windows": lambda x: x[:, :, :, :6].reshape(2, 4, 3, 2, 2, 3).permute(0, 2, 4, 3, 5, 1).reshape(-1, 6, 4).tanh(),
    "expand": lambda x: x.mean((2, 3), keepdim=True).expand_as(x) * x,
    "repeat": lambda x: x.repeat(1, 2, 1, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 2).repeat_interleave(3, dim=1),
    "movedim": lambda x: x.movedim(1, -1).swapaxes(0, 1).contiguous(),
    "complex view": lambda x: torch.view_as_real(torch.complex(x, x * 2)).sum(-1),
    "conjugate": lambda x: (torch.fft.rfft(x).conj() * torch.fft.rfft(x * 2)).real,
    "imaginary part of the conjugate": lambda x: torch.fft.fft(x).conj().imag * 2,
    "diagonal of an expanded tensor": lambda x: x.mean((2, 3), keepdim=True).expand_as(x).diagonal(dim1=2, dim2=3),
    "shape changed in place": change_shape_in_place,
    # joins
    "concatenation of rows": lambda x: torch.cat([x, x * 2], 2),
    "concatenation of columns": lambda x: torch.cat([x, x[..., :2]], 3),
    "concatenation of samples": lambda x: torch.cat([x, x[:1]]),
    "stack": lambda x: torch.stack([x, x * 2], 2).sum(3),
    # masks and choices
    "boolean mask": select_by_mask,
    "masked_select": lambda x: x.masked_select(x > 0.3),
    "masked_fill": lambda x: x.masked_fill(x > 0.5, -1),
    "write by mask": write_by_mask,
    "where": lambda x: torch.where(x > 0, x, x * 0.1),
    "where with a plain mask": lambda x: torch.where(torch.arange(42).view(6, 7) % 3 > 0, x, 0.0),
    "nonzero": lambda x: x[(x > 0).nonzero(as_tuple=True)],
    "write pixels": write_pixels,
    "write to a copy": write_to_a_copy,
    "write to a view": write_to_a_view,
    "write to a plain tensor": write_to_a_plain_tensor,
    "write to a new tensor": write_to_a_new_tensor,
    "scatter_add": lambda x: x.new_zeros(2, 4, 6, 3).scatter_add(3, (torch.arange(7) % 3).expand(2, 4, 6, 7), x),
    "write by index": write_by_index,
    # products
    "einsum over channels": lambda x: torch.einsum("nchw,ndhw->ncd", x, x * 2),
    "einsum over pixels": lambda x: torch.einsum("nchw,nchv->nhwv", x, x),
    "matmul": lambda x: x @ x.transpose(2, 3),
    "bmm": lambda x: torch.bmm(x.flatten(2), x.flatten(2).transpose(1, 2)),
    "attention": attend,
    "attention by hand": attend_by_hand,
    "attention with a mask": attend_with_a_mask,
    "attention to the past": attend_to_the_past,
    "attention with few heads": lambda x: F.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True),
    "convolution with kernels of each sample": convolve_with_a_kernel_of_each_sample,
    "convolution of one sample": lambda x: F.conv2d(x[0], torch.ones(3, 4, 3, 3, dtype=torch.float64)),
    "convolution of rows": lambda x: F.conv1d(x.flatten(0, 1), torch.ones(3, 6, 3, dtype=torch.float64)),
    "pool of one sample": lambda x: F.max_pool2d(x[0], 2),
    "cdist": lambda x: torch.cdist(x.flatten(2), x.flatten(2).flip(1) + 1),
    "outer": lambda x: torch.outer(x[0, 0, 0], x[1, 1, :, 1]),
    "determinant": lambda x: torch.linalg.det(x[..., :6]),
    # values of another dtype, and Python values
    "item": lambda x: x * x.detach().max().item(),
    "control flow": lambda x: x * 2 if x.sum() > 0 else x * 3,
    "loop over rows": lambda x: sum(row * n for n, row in enumerate(x[0, 0])),
    "list of values": lambda x: x * sum(x.detach()[0, 0, 0].tolist()),
    "histogram": lambda x: x * torch.histc(x.detach(), 4).double().sum(),
    "bincount": lambda x: x * torch.bincount((x.detach().flatten() > 0).long()).double()[0],
    "float32 and back": lambda x: x.float().double(),
    "like": lambda x: x * torch.ones_like(x) + torch.zeros_like(x[:, :1]) + x.new_full((1,), 2.0),
    "quantile": lambda x: torch.quantile(x.flatten(2), 0.3, dim=-1),
    "bucketize": lambda x: x * torch.bucketize(x.detach(), torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)),
    "unique": lambda x: x * len(x.detach().round().unique()),
    "local response": lambda x: F.local_response_norm(x, 3),
    "cosine similarity": lambda x: (
        F.cosine_similarity(x, x.flip(2), dim=2).sum(2) + F.cosine_similarity(x, x * 2 + 1, dim=3).mean(2)
    ),
    "normalised rows": lambda x: F.normalize(x, dim=2),
    "addcmul and lerp": lambda x: torch.lerp(torch.addcmul(x, x, x, value=0.5), x * 3, 0.2),
    "clamp by tensors": lambda x: x.clamp(x.flip(2) - 1, x.flip(2) + 1),
    "losses": lambda x: F.mse_loss(x, x.flip(3)) + F.smooth_l1_loss(x, x * 0.3, reduction="sum"),
    "cross entropy of pixels": lambda x: F.cross_entropy(x, (torch.arange(84).view(2, 6, 7) % 4)),
    "nll loss": lambda x: F.nll_loss(F.log_softmax(x, 1), torch.ones(2, 6, 7, dtype=torch.int64), reduction="none"),
    "binary cross entropy": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(SHAPE, dtype=torch.float64)),
    "kl divergence": lambda x: F.kl_div(F.log_softmax(x, 1), F.softmax(x * 2, 1), reduction="batchmean"),
}


@pytest.mark.parametrize("kind", ["tiles", "samples", "channels", "whole"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation(name: str, kind: Any) -> None:
    check_agreement(Applied(OPERATIONS[name]), SHAPE, (2, 2), 3, kind=kind)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_with_empty_tiles(name: str) -> None:
    check_agreement(Applied(OPERATIONS[name]), SHAPE, (1, 8), 4, rounds=1)


@pytest.mark.parametrize("mesh", [(1, 7), (1, 8), (6, 1), (3, 3)])
@pytest.mark.parametrize("kind", ["tiles", "samples", "channels"])
@pytest.mark.parametrize("channels_last", [False, True])
def test_layers_on_thin_and_empty_parts(mesh: tuple[int, int], kind: Any, channels_last: bool) -> None:
    """Check that ranks with one pixel or none call the same operators as the others."""
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 8, 1),
        nn.PixelShuffle(2),
        nn.Flatten(2),
    )
    check_agreement(model, SHAPE, mesh, 1, kind=kind, channels_last=channels_last)


@pytest.mark.parametrize("shape", [(4, 1, 1), (1, 4, 6, 7), (6, 7), (7,), (2, 4, 6, 7), (1,), ()])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x * w,
        lambda x, w: (w - x).square(),
        lambda x, w: torch.where(x > w, x, w),
        lambda x, w: x + w.exp().expand(*x.shape),
        lambda x, w: torch.maximum(x, w),
    ],
    ids=["product", "difference", "where", "expanded", "maximum"],
)
def test_a_weight_of_any_shape(function: Any, shape: tuple[int, ...]) -> None:
    check_agreement(Applied(function, shape), SHAPE, (2, 2), 5)


@pytest.mark.parametrize("kind", ["tiles", "samples", "channels", "whole"])
@pytest.mark.parametrize("layers", [1, 2])
def test_recurrent_layers_after_a_pool(kind: Any, layers: int) -> None:
    class Recurrent(nn.Module):
        def __init__(self, kind: Any) -> None:
            super().__init__()
            self.cell = kind(4, 3, num_layers=layers, batch_first=True, bidirectional=layers == 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.cell(F.adaptive_avg_pool2d(x, (3, 2)).flatten(2).transpose(1, 2))[0]

    for recurrent in (nn.LSTM, nn.GRU, nn.RNN):
        check_agreement(Recurrent(recurrent), SHAPE, (1, 3), 1, kind=kind)


@pytest.mark.parametrize("kind", ["tiles", "samples"])
@pytest.mark.parametrize("training", [False, True])
def test_attention_layers_on_pixels(kind: Any, training: bool) -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            tokens = x.flatten(2).transpose(1, 2)
            return self.layer(tokens + self.attention(tokens, tokens, tokens)[0]).transpose(1, 2).view_as(x)

    check_agreement(Tokens().train(training), SHAPE, (2, 2), 2, kind=kind)


def test_an_embedding_of_rounded_pixels() -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.table(x.detach().abs().long().clamp(0, 4)) * x.unsqueeze(-1)

    check_agreement(Embedded(), SHAPE, (2, 2), 2)


@pytest.mark.parametrize("name", ["argmax", "argsort", "comparison", "isnan", "nonzero", "one hot", "count"])
def test_results_without_gradients(name: str) -> None:
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "argmax": lambda x: x.argmax(1) + x.argmax(),
        "argsort": lambda x: x.argsort(3),
        "comparison": lambda x: (x > 0) & (x < 1) | ~(x.abs() < 2),
        "isnan": lambda x: (x / (x - x)).isnan(),
        "nonzero": lambda x: (x > 0).nonzero(),
        "one hot": lambda x: F.one_hot(x.argmax(1), 4).permute(0, 3, 1, 2),
        "count": lambda x: (x > 0).count_nonzero((2, 3)),
    }
    torch.manual_seed(6)
    image = torch.randn(SHAPE)
    expected = functions[name](image)
    for kind in ("tiles", "samples", "channels", "whole"):
        for result in run_on_ranks(
            (2, 2), lambda group, kind=kind: join_parts(functions[name](split(image, group, kind)))
        ):
            assert result.dtype == expected.dtype
            assert torch.equal(result, expected)


def test_python_values_of_a_split_tensor() -> None:
    torch.manual_seed(7)
    image = torch.randn(2, 1, 3, 4)

    def run(group: Any) -> Any:
        x = split(image, group)
        return x.tolist(), x.sum().item(), bool((x > 9).any()), len(x), x.numpy().shape, str(x.dtype), x.numel()

    for values in run_on_ranks((2, 2), run):
        assert values[0] == image.tolist()
        assert values[1] == pytest.approx(image.sum().item(), rel=1e-5)
        assert values[2:] == (False, 2, (2, 1, 3, 4), "torch.float32", 24)
