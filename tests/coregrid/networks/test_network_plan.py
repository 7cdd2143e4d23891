"""Tests of network plans: the shortest path compared with all paths, memory, spills, and settings."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from torch import nn, zeros

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity
from tessera.coregrid.formats import bfloat8_b, bfloat16
from tessera.coregrid.networks.energy import estimate_energy
from tessera.coregrid.networks.layer_options import GLOBAL, OptionLister, Placement
from tessera.coregrid.networks.layers import GridLayer, GridNetwork, describe_module, describe_network
from tessera.coregrid.networks.plan import (
    DEFAULT_COMPUTE_CONFIG,
    DEFAULT_CONV_CONFIG,
    plan_network,
    plan_network_case,
)
from tessera.coregrid.planning.setup import ConvSetup
from tessera.errors import TesseraError
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")


def test_shortest_path_equals_exhaustive_search() -> None:
    convs = [square(1, 28, 64, 64), square(1, 28, 64, 128, kernel=1), square(1, 28, 128, 128)]
    layers = tuple(
        GridLayer(
            name=str(number),
            kind="conv",
            conv=conv,
            inputs=(number - 1,),
            shape=(1, conv.out_channels, *conv.output_size),
        )
        for number, conv in enumerate(convs)
    )
    network = GridNetwork(name="chain", batch=1, layers=layers, input_shape=(1, 64, 28, 28), outputs=(2,))
    search = plan_network(network, N150)
    setup = ConvSetup(machine=N150, config=DEFAULT_CONV_CONFIG, compute=DEFAULT_COMPUTE_CONFIG, bias=True)
    lister = OptionLister(setup)

    def compute_move(source: Placement, target: Placement, rows: int, columns: int) -> float:
        seconds, programs = lister.predict_move_seconds(source, target, rows, columns)
        return seconds + programs * lister.rates.launch

    options = [lister.list_options(layer, [GLOBAL], [(784, layer.window.in_channels)]) for layer in layers]
    best = min(
        sum(option.seconds + option.launches * lister.rates.launch for option in path)
        + sum(
            compute_move(before, option.sources[0], 784, layer.window.in_channels)
            for before, option, layer in zip([GLOBAL, *(option.target for option in path)], path, layers, strict=False)
        )
        for path in itertools.product(*options)
    )
    assert search.best.seconds == pytest.approx(best)
    assert search.greedy is not None
    assert search.best.seconds <= search.greedy.seconds
    assert len(search.best.steps) == 3


def test_plan_has_every_layer_of_resnet_50() -> None:
    search = plan_network(describe_network("resnet50", 1), N150)
    names = [step.name for step in search.best.steps]
    assert len(names) == 1 + 53 + 1 + 16 + 1 + 1  # fold, convolutions, max pool, sums, average pool, classifier
    assert search.best.published is None  # no rate is published for batch size 1
    assert names[:2] == ["fold", "conv1"]
    assert names[-1] == "fc"
    assert all(step.memory <= N150.local_memory for step in search.best.steps)
    assert search.greedy is not None
    assert search.best.seconds <= search.greedy.seconds
    assert 0 < search.best.kernel_seconds < search.best.seconds


def test_formats_and_fidelity_of_a_case_are_used() -> None:
    params = {"network": "resnet18", "batch_size": 4, "image_size": [64, 96], "machine": "wormhole-n150"}
    short = plan_network_case(params).best
    long = plan_network_case(
        {**params, "dtype": "bfloat16", "weights_dtype": "bfloat16", "math_fidelity": "HiFi4"}
    ).best
    assert (short.network.image, short.config.dtype.name) == ((64, 96), "bfloat8_b")
    assert (long.config.weights_dtype, long.compute.math_fidelity) == (bfloat16, MathFidelity.HiFi4)
    assert long.kernel_seconds > short.kernel_seconds
    energies = [estimate_energy(plan).parts for plan in (short, long)]
    assert energies[1]["arithmetic"] > energies[0]["arithmetic"] > 0


def test_a_network_that_does_not_fit_names_a_change_with_which_it_fits() -> None:
    machine = replace(N150, local_memory=30_000)
    module = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Flatten(), nn.Linear(64 * 36, 4096))
    network = describe_module(module, zeros(64, 3, 8, 8))
    with pytest.raises(TesseraError, match=r"no layout of 2 of model fits .*use bfloat8_b"):
        plan_network(network, machine, Conv2dConfig(), ComputeConfig())
    config = Conv2dConfig(dtype=bfloat8_b, weights_dtype=bfloat8_b)
    assert plan_network(network, machine, config, ComputeConfig()).best.steps
