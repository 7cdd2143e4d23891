"""Counts on the meta device against published figures and against plain arithmetic."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tessera.errors import TesseraError
from tessera.models import MODELS, build, count, model_info
from tessera.models.activations import ActivationBytes

# torchvision's published parameters and GMACs at the image size that each was made for
PUBLISHED = {
    "resnet18": (11_689_512, 1.81),
    "resnet34": (21_797_672, 3.66),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "resnext50_32x4d": (25_028_904, 4.23),
    "resnext101_32x8d": (88_791_336, 16.41),
    "efficientnet_b0": (5_288_548, 0.39),
    "efficientnet_b1": (7_794_184, 0.69),
    "efficientnet_b2": (9_109_994, 1.09),
    "efficientnet_b3": (12_233_232, 1.83),
    "efficientnet_b4": (19_341_616, 4.39),
    "efficientnet_b5": (30_389_784, 10.27),
    "efficientnet_b6": (43_040_704, 19.07),
    "efficientnet_b7": (66_347_960, 37.75),
    "mobilenet_v2": (3_504_872, 0.30),
    "mobilenet_v3_large": (5_483_032, 0.22),
    "mobilenet_v3_small": (2_542_856, 0.06),
    "vgg11": (132_863_336, 7.61),
    "vgg13": (133_047_848, 11.31),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.63),
    "vgg11_bn": (132_868_840, 7.61),
    "vgg13_bn": (133_053_736, 11.31),
    "vgg16_bn": (138_365_992, 15.47),
    "vgg19_bn": (143_678_248, 19.63),
}


def test_every_model_has_a_published_count_or_a_reason() -> None:
    assert set(MODELS) - set(PUBLISHED) == {"unet"}  # the padded variant has none


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_are_the_published_ones(name: str) -> None:
    info = model_info(name)
    params, gmacs = PUBLISHED[name]
    assert info.params == params
    assert round(info.macs / 1e9, 2) == gmacs
    assert info.flops == 2 * info.macs
    assert info.output_shape == (1, 1000)
    millions, gigaflops = f"{params / 1e6:.1f} M parameters", f"{info.flops / 1e9:.1f} GFLOP"
    assert millions in MODELS[name].description
    assert gigaflops in MODELS[name].description


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(7, 20),
    st.sampled_from(["float32", "float64", "bfloat16"]),
)
def test_counts_of_a_convolution(batch: int, channels: int, groups: int, stride: int, size: int, dtype: str) -> None:
    conv = nn.Conv2d(channels * groups, 2 * groups, 3, stride, padding=1, groups=groups)
    info = count(conv, (batch, channels * groups, size, size), dtype=dtype)
    side = (size - 1) // stride + 1
    width = {"float32": 4, "float64": 8, "bfloat16": 2}[dtype]
    assert info.params == 2 * groups * channels * 9 + 2 * groups
    assert info.macs == batch * 2 * groups * side * side * channels * 9
    assert info.weight_bytes == info.params * width
    assert info.activation_bytes == batch * 2 * groups * side * side * width
    assert info.output_shape == (batch, 2 * groups, side, side)


def test_views_and_changes_in_place_make_no_activations() -> None:
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.ReLU(), nn.Unflatten(1, (2, 3)))
    assert count(net, (5, 6)).activation_bytes == 5 * 6 * 4


def test_a_count_scales_with_the_batch_and_touches_nothing() -> None:
    net = build("resnet18", seed=5)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    one, four = count(net, (1, 3, 96, 64)), count(net, (4, 3, 96, 64))
    assert four.flops == 4 * one.flops
    assert four.activation_bytes == 4 * one.activation_bytes
    assert four.intensity == pytest.approx(4 * one.intensity)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert count(net.double(), (1, 3, 96, 64), dtype="bfloat16").weight_bytes == pytest.approx(
        one.weight_bytes / 2, rel=1e-3
    )


@pytest.mark.parametrize("name", ["resnet18", "resnext50_32x4d"])
def test_activations_on_paper_are_those_of_a_real_pass(name: str) -> None:
    net, shape = build(name), (2, 3, 64, 48)
    made = ActivationBytes()
    with torch.no_grad(), made:
        net(torch.randn(shape))
    # The input was made inside; it is not an activation of the network.
    assert made.total - 2 * 3 * 64 * 48 * 4 == count(net, shape).activation_bytes


def test_a_model_of_your_own_is_counted_too() -> None:
    info = model_info("torch.nn:Conv2d", image_size=10, in_channels=3, out_channels=2, kernel_size=1)
    assert info.macs == 100 * 6


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"image_size": 0}, "1 or more"),
        ({"batch_size": -1}, "1 or more"),
        ({"dtype": "int8"}, "unknown dtype"),
        ({"dtype": "float31"}, "unknown dtype"),
    ],
)
def test_bad_input_is_one_line(options: dict[str, int], word: str) -> None:
    with pytest.raises(TesseraError, match=word):
        model_info("resnet18", **options)
    with pytest.raises(TesseraError, match="does not take this input"):
        count(build("resnet18"), (1, 4, 32, 32))
