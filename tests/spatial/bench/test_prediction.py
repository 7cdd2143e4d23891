"""What a calibrated machine predicts of a halo case, over each transport."""

from __future__ import annotations

import importlib.util
import random

import pytest

from tessera.geometry import Mesh
from tessera.machine import Link, Machine, save_host
from tessera.measure.environment import environment, host_fingerprint
from tessera.spatial.bench.prediction import predictions
from tessera.spatial.bench.problem import Borders, Problem
from tessera.spatial.cases import cases

TWO = {"num_spatial_parts": [2], "slice_method": ["vertical"], "in_channels": [4]}


@pytest.fixture
def host(tmp_path, monkeypatch) -> Machine:
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path))
    figures = [random.uniform(1, 9) for _ in range(4)]
    machine = Machine(
        name="host",
        title="invented",
        worker="core",
        workers=Mesh(1, 2),
        local_memory=1 << 30,
        global_memory=1 << 31,
        flops={"float32": (figures[0] * 1e10, figures[0] * 2e10)},
        links={
            "link": Link(bandwidth=(figures[1] * 1e9,), latency=figures[2] * 1e-6),
            "copy": Link(bandwidth=(figures[3] * 1e9, figures[3] * 1.5e9)),
            "global": Link(bandwidth=(1e10, 2e10)),
        },
    )
    save_host(machine, host_fingerprint(environment()))
    return machine


def predicted(name: str, transport: str, **axes) -> tuple[dict[str, float], Problem]:
    (case,) = cases([name], **{**TWO, "image_size": [random.randrange(16, 512)], **axes})
    problem = Problem.of(case.params)
    found = predictions(case, problem, transport, environment())
    return {metric: value.value for metric, value in found.items()}, problem


def test_messages_take_a_latency_and_their_bytes(host):
    found, problem = predicted("exchange", "mpi")
    link = host.link("link")
    assert found["time"] == pytest.approx(link.latency + Borders.of(problem).received / link.at(1))


def test_shared_memory_takes_two_latencies_and_a_copy(host):
    found, problem = predicted("exchange", "shared")
    copied = Borders.of(problem).received * 2 / host.link("copy").at(2)
    assert found["copy"] == pytest.approx(copied)
    assert found["time"] == pytest.approx(2 * host.link("link").latency + copied)


def test_gloo_is_predicted_only_where_the_calibration_was_its_own(host, monkeypatch):
    real = importlib.util.find_spec
    module = "tessera.spatial.bench.prediction.find_spec"
    monkeypatch.setattr(module, lambda name: object() if name == "mpi4py" else real(name))
    assert predicted("exchange", "gloo")[0] == {}
    monkeypatch.setattr(module, lambda name: None if name == "mpi4py" else real(name))
    assert predicted("exchange", "gloo")[0]["time"] > 0


def test_a_convolution_hides_what_it_can(host):
    random.seed(0)
    apart, _ = predicted("compute", "mpi", overlap=["none"], image_size=[256])
    hidden, _ = predicted("compute", "mpi", overlap=["split"], image_size=[256])
    assert apart["time"] == pytest.approx(apart["exchange"] + apart["convolution"])
    assert hidden["convolution"] <= hidden["time"] < apart["time"]
    assert hidden["sequential"] == pytest.approx(apart["time"])


def test_what_has_no_figures_is_not_predicted(host, tmp_path, monkeypatch):
    assert predicted("exchange", "mpi", backward=[True])[0] == {}
    assert predicted("compute", "mpi", overlap=["none"], dtype=["float64"])[0] == {}
    for name, value in (
        ("OMPI_COMM_WORLD_SIZE", "2"),
        ("OMPI_COMM_WORLD_RANK", "0"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    monkeypatch.delenv("TESSERA_WORKER", raising=False)
    assert predicted("exchange", "mpi")[0] == {}, "there is no figure for the network between two hosts"
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path / "uncalibrated"))
    assert predicted("exchange", "shared")[0] == {}
