"""Whole networks: the shortest path against trying everything, and the predictions beside what was published."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tessera.coregrid.cost.moves import Lying, reshard
from tessera.coregrid.cost.rates import rates_of
from tessera.coregrid.formats import Layout
from tessera.coregrid.networks.layers import Layer, Network, network
from tessera.coregrid.networks.options import added, options
from tessera.coregrid.networks.plan import COMPUTE, CONFIG, NetworkSearch, plan_network
from tessera.coregrid.networks.published import PUBLISHED, Published, published
from tessera.coregrid.planning.plan import Setup
from tessera.errors import TesseraError
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def test_a_chain_is_the_best_of_all_ways_through_it() -> None:
    convs = [square(1, 28, 64, 64), square(1, 28, 64, 128, kernel=1), square(1, 28, 128, 128)]
    layers = tuple(Layer(name=str(n), kind="conv", conv=conv) for n, conv in enumerate(convs))
    found = plan_network(Network(name="chain", batch=1, parts=layers), N150)
    setup = Setup(machine=N150, config=CONFIG, compute=COMPUTE, bias=True)
    rates = rates_of(N150, COMPUTE, CONFIG.dtype)

    def moved(source: Lying, target: Lying) -> float:
        return rates.launch + reshard(source, target).seconds(rates, CONFIG.dtype) if source != target else 0.0

    by_rows = replace(setup, input_layout=Layout.ROW_MAJOR)  # as images come
    ways = [options(layer, setup if number else by_rows) for number, layer in enumerate(layers)]
    best = min(
        sum(option.seconds for option in path) + sum(moved(a.target, b.source) for a, b in itertools.pairwise(path))
        for path in itertools.product(*ways)
    )
    assert found.best.seconds == pytest.approx(best)
    assert found.greedy is not None
    assert found.best.seconds <= found.greedy.seconds
    assert len(found.best.steps) == 3


@pytest.mark.parametrize(("name", "said"), [("residual_first", "add"), ("mean_first", "0"), ("nothing", "no layers")])
def test_a_network_begins_with_a_layer_that_lays_the_images_out(name: str, said: str) -> None:
    described = network(f"tests.coregrid.networks.chains:{name}", 1, 8)
    with pytest.raises(TesseraError, match=f"begins so is not planned: got '{said}'"):
        plan_network(described, N150)


@pytest.mark.parametrize(
    ("batch", "image", "known"), [(16, (224, 224), True), (1, (224, 224), False), (16, (64, 64), False)]
)
def test_what_was_published_is_of_one_batch_of_one_size(batch: int, image: tuple[int, int], known: bool) -> None:
    assert (published("resnet50", "wormhole-n150", batch, image) is not None) == known


@pytest.fixture(scope="module", params=PUBLISHED, ids=lambda row: row.machine)
def searched(request: pytest.FixtureRequest) -> tuple[Published, NetworkSearch]:
    row: Published = request.param
    return row, plan_network(network(row.network, row.batch), load_machine(row.machine))


@pytest.mark.slow
def test_resnet_50_as_published(searched: tuple[Published, NetworkSearch]) -> None:
    row, found = searched
    assert found.best.published == row
    assert found.best.error is not None
    assert abs(found.best.error) <= 0.30
    assert found.gain is not None
    assert found.gain >= 1


def test_every_layer_of_resnet_50_is_there() -> None:
    found = plan_network(network("resnet50", 1), N150)
    names = [step.name for step in found.best.steps]
    assert len(names) == 53 + 1 + 16 + 1 + 1  # convolutions, the pool, sums, the average, the classifier
    assert found.best.published is None  # there are figures for other batches
    assert names[0] == "conv1"
    assert names[-1] == "fc"
    for step in found.best.steps:
        if step.option and step.option.plan:
            assert step.option.plan.fits
    assert found.greedy is not None
    assert found.best.seconds <= found.greedy.seconds
    setup = Setup(machine=N150, config=CONFIG, compute=COMPUTE)
    sums = [step for step in found.best.steps if step.kind == "add"]
    body = next(step for step in found.best.steps if step.name == "layer1.0.conv3").option
    assert body is not None
    assert sums[0].seconds == added(body.target, setup)
