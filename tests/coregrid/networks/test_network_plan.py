"""Tests of network plans: the shortest path compared with all paths, and predictions compared with published rates."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tessera.coregrid.cost.durations import get_core_rates
from tessera.coregrid.cost.resharding import ShardPlacement, compute_reshard_cost
from tessera.coregrid.formats import Layout
from tessera.coregrid.networks.layer_options import list_options, predict_addition_seconds
from tessera.coregrid.networks.layers import GridLayer, GridNetwork, describe_network
from tessera.coregrid.networks.plan import (
    DEFAULT_COMPUTE_CONFIG,
    DEFAULT_CONV_CONFIG,
    PUBLISHED_RATES,
    NetworkSearch,
    PublishedRate,
    find_published_rate,
    plan_network,
)
from tessera.coregrid.planning.setup import ConvSetup
from tessera.errors import TesseraError
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def test_shortest_path_equals_exhaustive_search() -> None:
    convs = [square(1, 28, 64, 64), square(1, 28, 64, 128, kernel=1), square(1, 28, 128, 128)]
    layers = tuple(GridLayer(name=str(n), kind="conv", conv=conv) for n, conv in enumerate(convs))
    search = plan_network(GridNetwork(name="chain", batch=1, parts=layers), N150)
    setup = ConvSetup(machine=N150, config=DEFAULT_CONV_CONFIG, compute=DEFAULT_COMPUTE_CONFIG, bias=True)
    rates = get_core_rates(N150, DEFAULT_COMPUTE_CONFIG, DEFAULT_CONV_CONFIG.dtype)

    def compute_move(source: ShardPlacement, target: ShardPlacement) -> float:
        return (
            rates.launch + compute_reshard_cost(source, target).compute_seconds(rates, DEFAULT_CONV_CONFIG.dtype)
            if source != target
            else 0.0
        )

    by_rows = replace(setup, input_layout=Layout.ROW_MAJOR)  # the input of the first layer is row-major
    options = [list_options(layer, setup if number else by_rows) for number, layer in enumerate(layers)]
    best = min(
        sum(option.seconds for option in path)
        + sum(compute_move(a.target, b.source) for a, b in itertools.pairwise(path))
        for path in itertools.product(*options)
    )
    assert search.best.seconds == pytest.approx(best)
    assert search.greedy is not None
    assert search.best.seconds <= search.greedy.seconds
    assert len(search.best.steps) == 3


@pytest.mark.parametrize(
    ("name", "message"), [("residual_first", "add"), ("mean_first", "0"), ("nothing", "no layers")]
)
def test_first_layer_must_determine_the_placement(name: str, message: str) -> None:
    described = describe_network(f"tests.coregrid.networks.chains:{name}", 1, 8)
    with pytest.raises(TesseraError, match=f"begins with an unsupported layer: got '{message}'"):
        plan_network(described, N150)


@pytest.mark.parametrize(
    ("batch", "image", "known"), [(16, (224, 224), True), (1, (224, 224), False), (16, (64, 64), False)]
)
def test_published_rates_require_equal_batch_and_image_size(batch: int, image: tuple[int, int], known: bool) -> None:
    assert (find_published_rate("resnet50", "wormhole-n150", batch, image) is not None) == known


# Allowed error of the prediction for ResNet-50. The model omits contention, which matters most on Blackhole.
ERRORS = {"wormhole-n150": 0.11, "grayskull-e150": 0.18, "blackhole-p150": 0.46}


@pytest.fixture(scope="module", params=PUBLISHED_RATES, ids=lambda row: row.machine)
def searched(request: pytest.FixtureRequest) -> tuple[PublishedRate, NetworkSearch]:
    row: PublishedRate = request.param
    return row, plan_network(describe_network(row.network, row.batch), load_machine(row.machine))


@pytest.mark.slow
def test_error_of_resnet_50_against_published_rates(searched: tuple[PublishedRate, NetworkSearch]) -> None:
    row, result = searched
    assert result.best.published == row
    assert result.best.error is not None
    assert result.best.error == pytest.approx(ERRORS[row.machine], abs=0.01)
    assert result.greedy is not None
    assert result.greedy.seconds >= result.best.seconds


def test_plan_has_every_layer_of_resnet_50() -> None:
    search = plan_network(describe_network("resnet50", 1), N150)
    names = [step.name for step in search.best.steps]
    assert len(names) == 53 + 1 + 16 + 1 + 1  # convolutions, max pool, sums, average pool, classifier
    assert search.best.published is None  # no rate is published for batch size 1
    assert names[0] == "conv1"
    assert names[-1] == "fc"
    for step in search.best.steps:
        if step.option and step.option.plan:
            assert step.option.plan.fits
    assert search.greedy is not None
    assert search.best.seconds <= search.greedy.seconds
    setup = ConvSetup(machine=N150, config=DEFAULT_CONV_CONFIG, compute=DEFAULT_COMPUTE_CONFIG)
    sums = [step for step in search.best.steps if step.kind == "add"]
    body = next(step for step in search.best.steps if step.name == "layer1.0.conv3").option
    assert body is not None
    assert sums[0].seconds == predict_addition_seconds(body.target, setup)
