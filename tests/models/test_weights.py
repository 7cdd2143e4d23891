"""Tests of weight files: exact values, checks of names and shapes, and no code execution."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tessera.errors import TesseraError
from tessera.models import build
from tessera.models.weights import read_weights

NAME = "resnet18"
OPTIONS = {"num_classes": 5}


@pytest.fixture(scope="module")
def trained() -> torch.nn.Module:
    net = build(NAME, seed=torch.seed() % 2**32, **OPTIONS)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            assert module.num_batches_tracked is not None
            module.num_batches_tracked.fill_(17)
    return net


def save(net: torch.nn.Module, path: Path) -> Path:
    if path.suffix == ".safetensors":
        save_file(net.state_dict(), path)
    else:
        torch.save(net.state_dict(), path)
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_saved_model_loads_bit_for_bit(tmp_path: Path, suffix: str) -> None:
    net = build("resnet50", seed=torch.seed() % 2**32)
    path = save(net, tmp_path / f"w{suffix}")
    again = build("resnet50", weights=path, seed=1)
    image = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(net(image), again(image))
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))
    assert all(p.requires_grad for p in again.parameters())


def test_loaded_weights_do_not_change_with_the_file(trained: torch.nn.Module, tmp_path: Path) -> None:
    path = save(trained, tmp_path / "w.safetensors")
    net = build(NAME, weights=path, **OPTIONS)
    path.write_bytes(b"\0" * path.stat().st_size)
    assert torch.equal(net.state_dict()["fc.weight"], trained.state_dict()["fc.weight"])


def test_the_file_format_is_detected_from_its_content(trained: torch.nn.Module, tmp_path: Path) -> None:
    path = save(trained, tmp_path / "w.safetensors")
    path.rename(tmp_path / "w.bin")
    assert read_weights(tmp_path / "w.bin").keys() == trained.state_dict().keys()
    legacy = tmp_path / "legacy.pth"
    torch.save(trained.state_dict(), legacy, _use_new_zipfile_serialization=False)
    assert read_weights(legacy).keys() == trained.state_dict().keys()


def test_half_precision_files_load_into_the_precision_of_the_model(trained: torch.nn.Module, tmp_path: Path) -> None:
    half = {k: v.half() if v.is_floating_point() else v for k, v in trained.state_dict().items()}
    save_file(half, tmp_path / "half.safetensors")
    net = build(NAME, weights=tmp_path / "half.safetensors", **OPTIONS)
    weight = net.state_dict()["conv1.weight"]
    assert weight.dtype == torch.float32
    assert torch.equal(weight, half["conv1.weight"].float())


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_files_without_batch_counts_load(trained: torch.nn.Module, tmp_path: Path, suffix: str) -> None:
    state = {k: v for k, v in trained.state_dict().items() if not k.endswith("num_batches_tracked")}
    path = tmp_path / f"old{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    net = build(NAME, weights=path, **OPTIONS)
    assert net.state_dict()["bn1.num_batches_tracked"] == 0
    assert not any(t.is_meta for t in net.state_dict().values())


def test_weights_load_into_a_user_defined_model(tmp_path: Path) -> None:
    layer = torch.nn.Conv2d(3, 4, 3)
    torch.save(layer.state_dict(), tmp_path / "w.pt")
    options = {"in_channels": 3, "out_channels": 4, "kernel_size": 3}
    net = build("torch.nn:Conv2d", weights=tmp_path / "w.pt", **options)
    assert torch.equal(net.state_dict()["bias"], layer.bias)


class Harmful:
    def __reduce__(self) -> tuple[object, ...]:
        return print, ("code was run",)


def test_files_that_are_not_weights_of_this_model_are_errors(
    trained: torch.nn.Module, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = trained.state_dict()
    files: dict[str, tuple[str, object]] = {
        "missing.pt": (
            "missing bn1.weight, bn1.bias, layer1.0.bn1.weight and",
            {k: v for k, v in good.items() if ".bn1.weight" not in f".{k}" and k != "bn1.bias"},
        ),
        "more.pt": (
            "unexpected extra, head.bias",
            good | {"extra": torch.ones(1), "head.bias": torch.ones(1)},
        ),
        "shape.pt": (
            r"wrong shape of fc.weight: got \(7, 512\)",
            good | {"fc.weight": torch.ones(7, 512)},
        ),
        "wrapped.pt": ("not a plain state_dict: got 'model, epoch'", {"model": good, "epoch": 3}),
        "list.pt": ("not a plain state_dict: got 'list'", [torch.ones(1)]),
        "code.pt": ("contains pickled code", {"a": Harmful()}),
        "module.pt": ("contains pickled code", trained),
    }
    for name, (word, content) in files.items():
        torch.save(content, tmp_path / name)
        with pytest.raises(TesseraError, match=word) as caught:
            build(NAME, weights=tmp_path / name, **OPTIONS)
        assert "\n" not in str(caught.value), name
    (tmp_path / "code.pkl").write_bytes(pickle.dumps({"a": Harmful()}, protocol=2))
    with pytest.raises(TesseraError, match="contains pickled code"):
        build(NAME, weights=tmp_path / "code.pkl", **OPTIONS)
    assert "code was run" not in capsys.readouterr().out
    with pytest.raises(TesseraError, match="weights file not found"):
        build(NAME, weights=tmp_path / "absent.pt", **OPTIONS)
    with pytest.raises(TesseraError, match="an ONNX file is a network with its weights"):
        build(NAME, weights=tmp_path / "network.onnx", **OPTIONS)
    with pytest.raises(TesseraError, match="cannot read weights"):
        build(NAME, weights=tmp_path, **OPTIONS)


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
@pytest.mark.parametrize("keep", [0, 1, 8, 9, 100, 5_000, 1_000_000, -1])
def test_truncated_files_are_a_one_line_error(trained: torch.nn.Module, tmp_path: Path, suffix: str, keep: int) -> None:
    path = save(trained, tmp_path / f"w{suffix}")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TesseraError, match="truncated") as caught:
        build(NAME, weights=path, **OPTIONS)
    assert "\n" not in str(caught.value)
