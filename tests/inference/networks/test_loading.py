"""Tests of loading networks by name, from a user's module and from files, and of error messages."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import MissingExtra, Refused, TesseraError
from tessera.inference.networks import build_network, compute_network_info, load_network
from tessera.inference.settings import Settings
from tessera.operators.sources.capture import capture_calls
from tests.inference.sessions import export_small_network, make_small_settings
from tests.inference.small_networks import IMAGE

onnx = pytest.importorskip("onnx")


def test_a_registered_network_is_built_on_first_use(monkeypatch):
    network = load_network(Settings(model="efficientnet_b4"))
    assert network.image_shape == (3, 380, 380)
    assert network.random_weights
    assert "module" not in vars(network)


def test_identity_depends_on_settings_and_weights(tmp_path):
    one, other = (build_network(make_small_settings(seed=seed)).state_dict() for seed in (5, 6))
    again = build_network(make_small_settings(seed=5)).state_dict()
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)
    identities = {
        load_network(make_small_settings(seed=seed, batch_size=size)).identity for seed in (5, 6) for size in (1, 2)
    }
    assert len(identities) == 2
    path = tmp_path / "weights.safetensors"
    save_file(other, path)
    with_file = make_small_settings(seed=5, weights=str(path))
    assert all(torch.equal(other[key], value) for key, value in build_network(with_file).state_dict().items())
    before = load_network(with_file).identity
    save_file(one, path)
    assert load_network(with_file).identity != before


def test_flops_and_bytes_are_counted_for_the_batch_size():
    one, eight = (compute_network_info(make_small_settings(batch_size=size)) for size in (1, 8))
    assert one is not None
    assert eight is not None
    assert eight.flops == 8 * one.flops
    assert eight.params == one.params


@pytest.mark.parametrize(
    ("model", "norm", "holds"),
    [
        ("efficientnet_b0", "group", True),
        ("efficientnet_b0", "batch", True),
        ("efficientnet_b0", "none", False),
        ("resnet18", "batch", True),
        ("resnet18", "group", False),
        ("vgg11", "none", True),
        ("vgg11", "batch", False),
    ],
)
def test_a_network_has_the_requested_norm_or_is_refused(model, norm, holds):
    settings = Settings(model=model, norm_type=norm)
    if holds:
        build_network(settings)
    else:
        with pytest.raises(TesseraError):
            build_network(settings)


def test_unsupported_options_of_a_network_are_refused():
    with pytest.raises(TesseraError, match="group_dim"):
        build_network(Settings(model="resnet18", group_dim=16))


def test_an_image_size_that_does_not_fit_is_an_error_before_the_run():
    with pytest.raises(TesseraError, match="forward pass of the model failed"):
        load_network(Settings(model="unet", image_size=7))


def test_input_channels_come_from_the_first_convolution(tmp_path, monkeypatch):
    (tmp_path / "grey_net.py").write_text(
        "from tests.inference.small_networks import build_classifier\n"
        "def make():\n    return build_classifier(channels=1)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert load_network(Settings(model="grey_net:make", image_size=32)).image_shape == (1, 32, 32)


@pytest.mark.parametrize("network", ["build_centring_network", "build_value_checker"])
def test_a_network_that_cannot_run_on_the_meta_device_is_accepted(network):
    settings = make_small_settings(network)
    assert load_network(settings).image_shape == (3, IMAGE, IMAGE)
    assert compute_network_info(settings) is None


def test_any_exception_of_a_network_is_an_error_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "odd_net.py").write_text(
        "from torch import nn\n"
        "class Odd(nn.Module):\n"
        "    def forward(self, x):\n"
        "        raise TypeError('not these\\nno')\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TesseraError, match="forward pass of the model failed: not these") as caught:
        load_network(Settings(model="odd_net:Odd", image_size=32))
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(find_spec("timm") is not None, reason="timm is installed")
def test_without_timm_the_error_names_the_extra():
    with pytest.raises(MissingExtra, match=r"tessera\[timm\]"):
        load_network(Settings(model="timm/resnet18"))


def test_dims_of_an_onnx_file_come_from_it_or_from_the_settings(tmp_path):
    path = export_small_network(tmp_path / "net.onnx", size="side")
    with pytest.raises(Refused, match="set --image-size"):
        load_network(Settings(model=path))
    network = load_network(Settings(model=path, image_size=48))
    assert (network.image_shape, network.dtype) == ((3, 48, 48), "float32")
    fixed = export_small_network(tmp_path / "fixed.onnx", batch="")
    assert load_network(Settings(model=fixed, batch_size=4)).image_shape == (3, IMAGE, IMAGE)
    with pytest.raises(Refused, match="use --batch-size 4"):
        load_network(Settings(model=fixed, batch_size=2))
    with pytest.raises(TesseraError, match="fixed image size of 32 x 32"):
        load_network(Settings(model=fixed, batch_size=4, image_size=64))


@pytest.mark.parametrize("option", [{"weights": "w.pt"}, {"norm_type": "batch"}, {"group_dim": 16}])
def test_options_that_an_onnx_file_determines_are_refused(tmp_path, option):
    with pytest.raises(TesseraError, match="does not apply to an ONNX file"):
        load_network(Settings(model=export_small_network(tmp_path / "net.onnx"), **option))


def test_broken_and_missing_onnx_files_have_different_errors(tmp_path):
    with pytest.raises(TesseraError, match="ONNX file not found"):
        load_network(Settings(model=str(tmp_path / "none.onnx")))
    torn = Path(export_small_network(tmp_path / "net.onnx"))
    torn.write_bytes(torn.read_bytes()[: torn.stat().st_size // 2])
    with pytest.raises(TesseraError, match="not a valid ONNX file"):
        load_network(Settings(model=str(torn)))


def test_an_onnx_file_with_two_inputs_is_refused(tmp_path):
    float32 = onnx.TensorProto.FLOAT
    values = [onnx.helper.make_tensor_value_info(name, float32, [1, 3, 8, 8]) for name in ("a", "b", "c")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["a", "b"], ["c"])], "g", values[:2], values[2:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)]), tmp_path / "two.onnx")
    with pytest.raises(Refused, match="2: a, b"):
        load_network(Settings(model=str(tmp_path / "two.onnx")))


def test_a_failing_import_of_timm_is_an_error_in_one_line(tmp_path, monkeypatch):
    """A torchvision built for a different torch version raises errors other than ImportError when it is imported."""
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist\\nand so on')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(TesseraError, match="timm cannot be imported: operator torchvision::nms") as caught:
        load_network(Settings(model="timm/resnet18"))
    assert "\n" not in str(caught.value)


@pytest.fixture
def timm_stand_in(tmp_path, monkeypatch):
    """Write a stand-in for timm with the functions that Tessera calls; timm itself requires torchvision."""
    (tmp_path / "timm.py").write_text(
        "from tests.inference.small_networks import Classifier\n"
        "def is_model(model_name): return model_name.split('.')[0] == 'small'\n"
        "def list_models(filter=''): return ['small']\n"
        "def create_model(model_name, pretrained=False, **kwargs):\n"
        "    model = Classifier()\n"
        "    model.pretrained_cfg = {'input_size': (3, 48, 48)}\n"
        "    return model\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)


def test_a_timm_network_has_its_own_image_size_and_weights_from_seed_or_file(timm_stand_in, tmp_path):
    network = load_network(Settings(model="timm/small.a1_in1k", seed=3))
    assert (network.image_shape, network.random_weights) == ((3, 48, 48), True)
    one, again, other = (build_network(Settings(model="timm/small", seed=seed)).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not torch.equal(one["head.weight"], other["head.weight"])
    save_file(other, tmp_path / "w.safetensors")
    loaded = build_network(Settings(model="timm/small", weights=str(tmp_path / "w.safetensors"))).state_dict()
    assert all(torch.equal(other[key], loaded[key]) for key in other)
    with pytest.raises(TesseraError, match="did you mean small"):
        load_network(Settings(model="timm/smal"))
    with pytest.raises(TesseraError, match="apply only to registered EfficientNets"):
        load_network(Settings(model="timm/small", group_dim=16))


def test_counting_flops_leaves_no_cached_tensors_in_the_network():
    network = load_network(settings := make_small_settings("build_caching_network"))
    assert compute_network_info(settings).flops > 0
    with torch.no_grad():
        assert network.module(torch.zeros(1, 3, IMAGE, IMAGE)).shape == (1, 10)
    for dtype in ("float32", "float64"):
        calls = capture_calls(network.module, (1, 3, IMAGE, IMAGE), getattr(torch, dtype))
        assert any("conv" in call.name for call in calls)
