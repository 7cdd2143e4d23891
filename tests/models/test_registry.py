"""Tests of the model registry: listing without torch, building by name and by module:callable, and error messages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.models import MODELS, build, list_models, model


def has_equal_state(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    state_a, state_b = a.state_dict(), b.state_dict()
    return state_a.keys() == state_b.keys() and all(torch.equal(state_a[k], state_b[k]) for k in state_a)


@pytest.fixture
def _restored_registry() -> Iterator[None]:
    before = dict(MODELS)
    yield
    MODELS.clear()
    MODELS.update(before)


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys, tessera.models as m\n"
        "assert len(m.list_models('resnet*')) == 5 and all(e.description for e in m.list_models())\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_names_match_globs() -> None:
    assert [e.name for e in list_models("resnet?8")] == ["resnet18"]
    assert list_models("*nothing*") == []
    assert len(list_models()) == len(MODELS)


@pytest.mark.usefixtures("_restored_registry")
def test_a_name_is_registered_once() -> None:
    @model("tiny", "one convolution")
    def tiny(width: int = 2) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Conv2d(3, width, 3), torch.nn.BatchNorm2d(width))

    assert build("tiny", width=5)(torch.randn(1, 3, 8, 8)).shape == (1, 5, 6, 6)
    with pytest.raises(TesseraError, match="already registered: got 'tiny'"):
        model("tiny", "again")(tiny)
    with pytest.raises(TesseraError, match="colon"):
        model("a:b", "")(tiny)


@pytest.mark.usefixtures("_restored_registry")
def test_a_layer_without_an_initialisation_rule_is_an_error() -> None:
    model("odd", "")(lambda: torch.nn.Sequential(torch.nn.LayerNorm(4)))
    with pytest.raises(TesseraError, match="no initialisation rule for the random weights of 0: got 'LayerNorm'"):
        build("odd")


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**63 - 1))
def test_a_seed_gives_the_same_weights_and_leaves_the_global_state_alone(seed: int) -> None:
    before = torch.get_rng_state()
    first = build("resnet18", seed=seed, num_classes=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(7)  # the seed must override the global random state
    assert has_equal_state(first, build("resnet18", seed=seed, num_classes=3))
    assert not has_equal_state(first, build("resnet18", seed=seed ^ 1, num_classes=3))


def test_models_are_in_evaluation_mode() -> None:
    net = build("resnet18", num_classes=7, in_channels=1)
    assert not any(m.training for m in net.modules())
    assert not any(p.is_meta for p in net.parameters())
    with torch.no_grad():
        assert net(torch.randn(2, 1, 40, 50)).shape == (2, 7)


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("resnet5", {}, "unknown model: got 'resnet5'.*did you mean resnet50"),
        ("alexnet", {}, "allowed: resnet18.*module:callable"),
        ("resnet18", {"classes": 3}, "'classes'.*allowed: num_classes, in_channels"),
        (":build", {}, "must be written as module:callable"),
        ("torch:", {}, "must be written as module:callable"),
        ("no_such_module_here:f", {}, "no module named no_such_module_here"),
        ("torch.nn:Conv2", {}, "has no attribute Conv2.*Conv2d"),
        ("torch.nn:Conv2d", {"channels": 1}, "torch.nn:Conv2d.*allowed: in_channels"),
        ("torch:pi", {}, "is not callable"),
        ("builtins:dict", {}, "does not return a torch.nn.Module, alone or with its inputs: got 'dict'"),
    ],
)
def test_user_errors_are_one_line(name: str, options: dict[str, int], word: str) -> None:
    with pytest.raises(TesseraError, match=word) as caught:
        build(name, **options)
    assert "\n" not in str(caught.value)


def test_a_user_defined_model_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_net.py").write_text(
        "import torch\n"
        "class Nets:\n"
        "    @staticmethod\n"
        "    def small(width=3):\n"
        "        return torch.nn.Sequential(torch.nn.Conv2d(3, width, 3), torch.nn.Dropout(0.5))\n"
    )
    (tmp_path / "broken_net.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    path = list(sys.path)
    before = torch.get_rng_state()
    net = build("my_net:Nets.small", seed=3, width=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert sys.path == path
    assert not net.training
    assert has_equal_state(net, build("my_net:Nets.small", seed=3, width=4))
    assert not has_equal_state(net, build("my_net:Nets.small", seed=4, width=4))
    with pytest.raises(TesseraError, match="cannot import broken_net: ZeroDivisionError"):
        build("broken_net:f")
    sys.modules.pop("my_net")


def test_the_docs_list_every_model() -> None:
    rows = [f"| `{entry.name}` | {entry.image_size} | {entry.description} |" for entry in MODELS.values()]
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    listed = [line for line in page.splitlines() if line.startswith("| `")]
    assert listed == rows, "the table of docs/models.md should be:\n" + "\n".join(rows)
