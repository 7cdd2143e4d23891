"""Tests of large layers that are cut: small budgets suffice, results are those of torch, and the minimum is true."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.choices import SCHEDULES
from tessera.phased.paging.cutting import MIN_PART_BYTES

STREAMING = [name for name, traits in SCHEDULES.items() if not traits.holds_all_weights]


class LanguageModel(nn.Module):
    """A network whose embedding, tied with its last layer, has most of the weights."""

    def __init__(self, tied: bool = True, words: int = 3000, width: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=not tied)
        if tied:
            self.head.weight = self.embedding.weight
        self.eval()

    def forward(self, numbers: Tensor) -> Tensor:
        x = self.embedding(numbers)
        return self.head(self.norm(x + self.layers(x)))


def count_bytes(model: nn.Module) -> int:
    return sum(weight.nbytes for weight in model.parameters())


@pytest.mark.parametrize("schedule", STREAMING)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_a_quarter_of_the_weights_suffices(schedule, tied, dtype):
    model = LanguageModel(tied, words=6000)
    if dtype is not None:
        model = model.to(torch.bfloat16).float()
    numbers = torch.randint(0, 6000, (2, 7))
    budget = count_bytes(model) // 4
    with PhasedModel(model, schedule=schedule, budget=budget, dtype=dtype, keep=False) as phased, torch.no_grad():
        assert any("head" in phase.name or "embedding" in phase.name for phase in phased.phases)
        assert phased.working_bytes <= budget
        assert phased.weight_bytes == sum(phase.bytes for phase in phased.phases)
        for _ in range(3):
            torch.testing.assert_close(phased(numbers), model(numbers))
            assert phased._pager._area.extra_bytes == 0
        batches = [torch.randint(0, 6000, (2, 7)) for _ in range(3)]
        for batch, output in zip(batches, phased.run(batches), strict=True):
            torch.testing.assert_close(output, model(batch))


@pytest.mark.parametrize("schedule", STREAMING)
@pytest.mark.parametrize("dtype", [None, "float16"])
@pytest.mark.parametrize("store", ["disk", "mapped"])
def test_the_minimum_budget_suffices_and_one_byte_less_does_not(schedule, dtype, store):
    for model, x in (
        (LanguageModel(), torch.randint(0, 3000, (2, 7))),
        (
            nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(256, 5)),
            torch.rand(2, 3, 6, 6),
        ),
        (nn.Sequential(nn.Linear(700, 700), nn.BatchNorm1d(700), nn.Linear(700, 3)).eval(), torch.rand(2, 700)),
    ):
        model = model.to(getattr(torch, dtype)).float() if dtype is not None else model
        least = PhasedModel.compute_min_budget(model, schedule=schedule, dtype=dtype)
        options = {"schedule": schedule, "dtype": dtype, "store": store}
        with PhasedModel(model, budget=least, **options) as phased, torch.no_grad():
            assert phased.working_bytes <= least
            for _ in range(2):
                torch.testing.assert_close(phased(x), model(x))
        with pytest.raises(TesseraError, match=f"raise the budget to {least} bytes or more"):
            PhasedModel(model, budget=least - 1, **options)
    assert PhasedModel.compute_min_budget(LanguageModel()) < 2 * MIN_PART_BYTES


def test_a_layer_that_fits_is_not_cut():
    model, numbers = LanguageModel(), torch.randint(0, 3000, (2, 7))
    with PhasedModel(model, budget=model.embedding.weight.nbytes, keep=False, threads=1) as phased:
        assert sum("[" in name for phase in phased.phases for name in phase.modules) == 0
    with PhasedModel(model, schedule="resident", budget=1) as phased, torch.no_grad():
        assert sum("[" in name for phase in phased.phases for name in phase.modules) == 0
        torch.testing.assert_close(phased(numbers), model(numbers))


def test_wrong_numbers_of_words_are_errors_as_in_torch():
    with PhasedModel(LanguageModel(), budget="800KB", keep=False) as phased:
        for number in (-1, 3000):
            with pytest.raises(IndexError, match="index out of range in self"):
                phased(torch.tensor([[1, number]]))
        assert phased(torch.zeros((2, 0), dtype=torch.long)).shape == (2, 0, 3000)


class UsesWeights(nn.Module):
    """A network that uses the weight of a large layer in other ways than by calling the layer."""

    def __init__(self, use) -> None:
        super().__init__()
        self.large, self.small, self.use = nn.Linear(256, 2000), nn.Linear(2000, 4), use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self, self.small(self.large(x)), x)


def add_norm(network, y, x):
    return y + network.large.weight.norm() + network.large.weight[5, 3]


def call_linear(network, y, x):
    return y + F.linear(x, network.large.weight, network.large.bias * 2).sum() + (x @ network.large.weight.T).mean()


def scale_weight(network, y, x):
    network.large.weight.mul_(0.5)
    return y


def scale_data(network, y, x):
    network.large.bias.data.add_(1)
    network.large.weight.data *= 0.5
    return y


def replace_weight(network, y, x):
    network.large.weight = nn.Parameter(network.large.weight * 0.5)
    return y


@pytest.mark.parametrize("use", [add_norm, call_linear, scale_weight, scale_data, replace_weight])
def test_other_uses_of_a_cut_weight_are_exact(use):
    torch.manual_seed(0)
    plain = UsesWeights(use).eval()
    x = torch.randn(3, 256)
    with PhasedModel(copy.deepcopy(plain), budget="900KB", keep=False) as phased, torch.no_grad():
        assert sum("large.[" in phase.name for phase in phased.phases) > 1
        for _ in range(3):
            torch.testing.assert_close(phased(x), plain(x))
        for name, value in plain.state_dict().items():
            torch.testing.assert_close(phased.state_dict()[name] + 0, value)


def test_gradients_of_inputs_pass_through_a_cut_layer():
    model = nn.Sequential(nn.Linear(256, 2000), nn.Linear(2000, 4)).eval()
    first = torch.randn(3, 256, requires_grad=True)
    second = first.detach().clone().requires_grad_()
    with PhasedModel(model, budget="900KB", keep=False) as phased:
        phased(first).square().sum().backward()
    model(second).square().sum().backward()
    torch.testing.assert_close(first.grad, second.grad)


def test_the_first_pass_is_compared_with_a_network_on_the_meta_device(tmp_path):
    model, numbers = LanguageModel(), torch.randint(0, 3000, (2, 7))
    with PhasedModel(model, budget="800KB", path=tmp_path / "w"):
        pass
    with torch.device("meta"):
        bare = LanguageModel()
    bare.head.weight = bare.embedding.weight
    with PhasedModel(bare, budget="800KB", path=tmp_path / "w", verify=True) as phased, torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(phased(numbers), model(numbers))
        assert "embedding.[" in phased.explain()


def test_a_large_layer_with_checksums_is_not_cut(tmp_path):
    with pytest.raises(TesseraError, match="does not fit into the budget"):
        PhasedModel(LanguageModel(), budget="800KB", checksums=True, path=tmp_path / "w")
    assert not (tmp_path / "w").exists()
