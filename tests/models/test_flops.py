"""Tests of FLOP and byte counts on the meta device, compared with published and hand-computed values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tessera.errors import TesseraError
from tessera.models import MODELS, build, compute_model_info, model_info
from tessera.models.activations import ActivationBytes

# torchvision's published parameters and GMACs, at the default image size of each model
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
    assert set(MODELS) - set(PUBLISHED) == {"unet"}  # nothing is published for the padded variant


@pytest.mark.parametrize("name", PUBLISHED)
def test_counts_equal_the_published_ones(name: str) -> None:
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
def test_the_counts_of_a_convolution_are_exact(
    batch: int, channels: int, groups: int, stride: int, size: int, dtype: str
) -> None:
    conv = nn.Conv2d(channels * groups, 2 * groups, 3, stride, padding=1, groups=groups)
    info = compute_model_info(conv, (batch, channels * groups, size, size), dtype=dtype)
    side = (size - 1) // stride + 1
    width = {"float32": 4, "float64": 8, "bfloat16": 2}[dtype]
    assert info.params == 2 * groups * channels * 9 + 2 * groups
    assert info.macs == batch * 2 * groups * side * side * channels * 9
    assert info.weight_bytes == info.params * width
    assert info.activation_bytes == batch * 2 * groups * side * side * width
    assert info.output_shape == (batch, 2 * groups, side, side)


def test_views_and_in_place_calls_have_no_activations() -> None:
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.ReLU(), nn.Unflatten(1, (2, 3)))
    assert compute_model_info(net, (5, 6)).activation_bytes == 5 * 6 * 4


def test_counts_scale_with_the_batch_and_leave_the_model_unchanged() -> None:
    net = build("resnet18", seed=5)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    single, four = compute_model_info(net, (1, 3, 96, 64)), compute_model_info(net, (4, 3, 96, 64))
    assert four.flops == 4 * single.flops
    assert four.activation_bytes == 4 * single.activation_bytes
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert compute_model_info(net.double(), (1, 3, 96, 64), dtype="bfloat16").weight_bytes == pytest.approx(
        single.weight_bytes / 2, rel=1e-3
    )


@pytest.mark.parametrize("name", ["resnet18", "resnext50_32x4d"])
def test_counted_activations_equal_those_of_a_real_pass(name: str) -> None:
    net, shape = build(name), (2, 3, 64, 48)
    activations = ActivationBytes()
    with torch.no_grad(), activations:
        net(torch.randn(shape))
    # The input is created inside the block, but it is not an activation of the network.
    assert activations.total - 2 * 3 * 64 * 48 * 4 == compute_model_info(net, shape).activation_bytes


def test_a_user_defined_model_is_counted() -> None:
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
def test_bad_input_is_a_one_line_error(options: dict[str, int], word: str) -> None:
    with pytest.raises(TesseraError, match=word):
        model_info("resnet18", **options)
    with pytest.raises(TesseraError, match="forward pass of the model failed"):
        compute_model_info(build("resnet18"), (1, 4, 32, 32))
