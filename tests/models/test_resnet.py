"""Tests of the ResNet family: published counts, parameter names of torchvision, and tracing by torch.fx."""

from __future__ import annotations

import pytest
import torch
from torch import fx

from tessera.models import MODELS, build, build_layers
from tessera.models.resnet import Bottleneck


@pytest.mark.parametrize("name", list(MODELS))
def test_torch_fx_traces_every_model_to_the_same_numbers(name: str) -> None:
    net = build_layers(name).eval()
    traced = fx.symbolic_trace(net)
    assert sum(n.op == "call_module" for n in traced.graph.nodes) > 25
    expected = (1, 2, 64, 96) if name == "unet" else (1, 1000)
    assert traced(torch.empty(1, 3, 64, 96, device="meta")).shape == expected


def test_a_traced_model_gives_equal_results() -> None:
    net = build("resnext50_32x4d", seed=torch.seed() % 2**32, num_classes=11)
    image = torch.randn(2, 3, 48, 64)
    with torch.no_grad():
        assert torch.equal(fx.symbolic_trace(net)(image), net(image))


def test_names_and_shapes_equal_torchvision() -> None:
    """Compare with entries of torchvision's published resnet50 file."""
    state = build_layers("resnet50").state_dict()
    assert len(state) == 320
    assert list(state)[:6] == [
        "conv1.weight",
        "bn1.weight",
        "bn1.bias",
        "bn1.running_mean",
        "bn1.running_var",
        "bn1.num_batches_tracked",
    ]
    assert list(state)[-2:] == ["fc.weight", "fc.bias"]
    for key, shape in {
        "conv1.weight": (64, 3, 7, 7),
        "layer1.0.conv1.weight": (64, 64, 1, 1),
        "layer1.0.conv3.weight": (256, 64, 1, 1),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer1.0.downsample.1.running_var": (256,),
        "layer2.0.conv2.weight": (128, 128, 3, 3),
        "layer4.2.bn3.bias": (2048,),
        "fc.weight": (1000, 2048),
    }.items():
        assert tuple(state[key].shape) == shape, key
    assert "layer1.1.downsample.0.weight" not in state
    assert len(build_layers("resnet18").state_dict()) == 122
    assert tuple(build_layers("resnext101_32x8d").state_dict()["layer1.0.conv2.weight"].shape) == (256, 8, 3, 3)
    assert "layer1.0.downsample.0.weight" not in build_layers("resnet34").state_dict()


def test_the_stride_is_in_the_3x3_of_a_bottleneck() -> None:
    first = build_layers("resnet50").get_submodule("layer2.0")
    assert isinstance(first, Bottleneck)
    assert (first.conv1.stride, first.conv2.stride, first.conv3.stride) == ((1, 1), (2, 2), (1, 1))


@pytest.mark.parametrize("name", ["resnet50", "resnet152", "efficientnet_b4", "mobilenet_v2"])
def test_random_weights_stay_within_the_range_of_float16(name: str) -> None:
    net = build(name, seed=torch.seed() % 2**32)
    largest = 0.0

    def record_largest(_module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> None:
        nonlocal largest
        largest = max(largest, float(output.abs().max()))

    for module in net.modules():
        module.register_forward_hook(record_largest)
    with torch.no_grad():
        logits = net(torch.randn(16, 3, 64, 64))  # with only two images, logits might be similar by chance
    assert largest < 20_000
    # The logits must depend on the images: otherwise the network would hide errors.
    assert float((logits.amax(0) - logits.amin(0)).max()) > 0.05 * float(logits.abs().max())


def test_gradients_reach_the_first_layer() -> None:
    net = build("resnet18", num_classes=4)
    net(torch.randn(2, 3, 32, 32)).sum().backward()
    gradient = net.get_parameter("conv1.weight").grad
    assert gradient is not None
    assert float(gradient.abs().max()) > 0


@pytest.mark.parametrize("name", ["efficientnet_b0", "mobilenet_v2", "mobilenet_v3_small", "vgg11_bn", "unet"])
def test_random_weights_give_outputs_of_moderate_size(name: str) -> None:
    net = build(name, seed=torch.seed() % 2**32)
    with torch.no_grad():
        output = net(torch.randn(1, 3, 64, 64))
    assert torch.isfinite(output).all()
    assert 1e-3 < float(output.abs().mean()) < 1e3


def test_efficientnet_variants_have_the_expected_layers() -> None:
    net = build_layers("efficientnet_b0", group_dim=16, expand_ratio=4, norm="group")
    grouped = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d) and m.groups > 1]
    assert grouped
    assert all(m.in_channels // m.groups == 16 for m in grouped)
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in net.modules())
