"""Tests of real replica processes: pinning, common windows, summed rates, and results after the death of a replica."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from tessera.errors import Refused, TesseraError
from tessera.inference.bench import run_case
from tessera.inference.cases import make_case
from tessera.inference.modes.load import Load
from tessera.inference.modes.load_modes import measure_server, measure_single_stream
from tessera.inference.replicas.placement import Placement
from tessera.inference.replicas.replica_pool import ReplicaPool
from tessera.launch.worker import RunContext, Worker
from tessera.measure.samples import Sampling
from tessera.results.record import Record, merge_launches
from tests.inference.data.files import truncate_file, write_image_tree
from tests.inference.replicas.fragile import CALLS, VICTIM
from tests.inference.sessions import make_small_settings

pytestmark = pytest.mark.timeout(300)

EAGER = {"engine": "torch-eager", "batch_size": 2}


def measure(sampling: Sampling, *, network: str = "build_classifier", **given) -> Record:
    settings = make_small_settings(network, **EAGER)
    return run_case(RunContext(), make_case({**settings.params(), **given}), sampling)


@pytest.fixture(scope="module")
def replica_pair():
    with ReplicaPool(Placement(num_replicas=2, force=True, env={"TESSERA_TEST": "passed"})) as replicas:
        yield replicas


def test_windows_run_on_both_replicas_or_on_one_alone(replica_pair):
    on = replica_pair.load(make_small_settings(**EAGER), "network")
    assert [one.agreement is not None for one in on.reports] == [True, False], "one check is enough"
    assert on.reports[0].agreement["top1"] == 1.0
    for batches, seconds in ((3, 0.0), (1, 0.1)):
        window = on.run_window(batches=batches, seconds=seconds)
        assert len(window.replicas) == 2
        assert all(len(times.starts) >= batches for times in window.replicas)
        assert all(times.wall_ns >= seconds * 1e9 for times in window.replicas)
        first, second = window.replicas
        assert abs(first.first - second.first) < 1e9, "they start together"
    alone = on.run_window(batches=4, seconds=0.0, alone=True)
    assert len(alone.replicas) == 1
    ends = on.summarise()
    assert all(end.peak_rss > 10_000_000 for end in ends)
    assert ends[0].environment["pinned_to"] == 1
    assert ends[0].flops_per_image > 0
    assert ends[1].flops_per_image is None


def test_several_networks_can_be_loaded_and_unloaded(replica_pair):
    some = {name: replica_pair.load(make_small_settings(**EAGER), name, check=False) for name in ("a", "b")}
    assert {name: on.run_window(batches=1, seconds=0.0).batch for name, on in some.items()} == {"a": 2, "b": 2}
    some["a"].unload()
    assert some["b"].run_window(batches=50, seconds=0.0).seconds > 0


def test_a_network_without_flop_count_has_no_gflops_metric(replica_pair):
    on = replica_pair.load(make_small_settings("build_value_checker", **EAGER), "looking")
    assert on.run_window(batches=50, seconds=0.0).seconds > 0
    assert on.summarise()[0].flops_per_image is None
    assert on.is_ready()
    on.unload()
    assert not on.is_ready()


def test_replicas_receive_environment_variables(replica_pair):
    assert (
        replica_pair.run("tests.inference.replicas.test_replica_pool:read_variable", "TESSERA_TEST") == ["passed"] * 2
    )


def read_variable(worker: Worker, name: str) -> str | None:
    return os.environ.get(name)


def test_a_record_holds_rate_latency_and_load_times():
    sides = {"num_replicas": 2, "cores_per_replica": 1, "force": True, "device_iterations": 50}
    record = measure(Sampling(iterations=6, warmup=1), **sides)
    assert (record.status, record.reason, record.unit, record.direction) == ("ok", "", "images/s", "higher")
    (samples,) = record.launches
    assert (len(samples.values), len(samples.warmups), len(samples.ranks)) == (6, 1, 2)
    metrics = {name: metric.value for name, metric in record.metrics.items()}
    names = [f"latency_{name}" for name in ("min", "p50", "p90", "p99", "max")]
    assert [metrics[name] for name in names] == sorted(metrics[name] for name in names)
    assert min(samples.values) <= metrics["throughput"] <= max(samples.values)
    assert metrics["first_batch"] > metrics["latency_p50"]
    assert 0 < metrics["efficiency"] < 2
    assert metrics["peak_memory"] > 10_000_000
    assert metrics["top1_agreement"] == 1.0
    assert 0 < metrics["cpu_utilisation"] < 1.5
    assert metrics["gflops"] > 0
    assert Record.from_json(record.to_json()) == record


def test_samples_are_kept_when_a_replica_dies(tmp_path):
    before = _list_workers()
    settings = {"model": "tests.inference.replicas.fragile:build_fragile_network", "image_size": 32, **EAGER}
    env = {VICTIM: str(tmp_path / "victim"), CALLS: "400"}
    case = make_case({**settings, "num_replicas": 2, "force": True, "device_iterations": 20, "env": env})
    record = run_case(RunContext(), case, Sampling(iterations=100, warmup=1))
    assert record.status == "failed"
    assert "SIGKILL" in record.reason
    (samples,) = record.launches
    assert 0 < len(samples.values) < 100
    assert samples.stopped_by == "failure"
    assert len(samples.ranks) == 2
    assert record.metrics["throughput"].value > 0
    assert any(note.startswith("ended early") for note in record.notes)
    assert merge_launches([record]).launches == record.launches, "the store keeps them"
    assert _list_workers() == before


def _list_workers() -> set[str]:
    """Return the child processes of this process that are workers."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    own = str(os.getpid())
    return {line for line in listed.splitlines() if "tessera.launch.serve" in line and line.split()[1] == own}


@pytest.fixture(scope="module")
def ready(replica_pair):
    """Load a network on both replicas, for tests of the load modes."""
    return replica_pair.load(make_small_settings(**EAGER), "modes", check=False)


def test_single_stream_samples_are_latencies(ready):
    longer = replace(ready, settings=replace(ready.settings, device_iterations=40))  # shorter windows do not overlap
    outcome = measure_single_stream(longer, Load(mode="single-stream"), Sampling(iterations=5, warmup=1))
    assert (outcome.unit, outcome.direction) == ("s", "lower")
    assert 5 <= len(outcome.samples.values) <= 5 * 40 * 2, "of two replicas, while both work"
    assert outcome.metrics["time"].value == pytest.approx(outcome.metrics["latency_p50"].value)


def test_server_mode_finds_a_rate_within_the_bound(ready):
    load = Load(mode="server", max_latency=0.5)
    outcome = measure_server(ready, load, Sampling(budget=1.0, target=0.2))
    metrics = {name: metric.value for name, metric in outcome.metrics.items()}
    assert metrics["held"] == 1
    assert 0 < metrics["throughput"] <= metrics["capacity"] * 1.01
    assert metrics["latency_p99"] <= 0.5
    assert outcome.chosen["load_generator"] == "Tessera's own arrivals"
    assert all(trial["questions"] >= 64 for trial in outcome.details["trials"])


def test_a_target_rate_meets_the_bound_or_not(ready):
    load = Load(mode="server", max_latency=1e-6, target_rate=50.0)
    outcome = measure_server(ready, load, Sampling(budget=0.4, target=0.2))
    assert outcome.metrics["held"].value == 0
    assert outcome.metrics["throughput"].value == 0
    assert any("does not meet" in note for note in outcome.notes)


def test_operators_are_timed_with_torch_hooks(ready):
    for operators, timed_by in ready.pool.run(
        "tessera.inference.attribution.engine_nodes:time_by_operator", ready.name
    ):
        kinds = {operator.kind for operator in operators}
        assert {"convolution 3x3", "convolution depthwise", "addmm"} <= kinds
        assert all(operator.seconds > 0 for operator in operators)
        assert timed_by.startswith("hooks")


@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.slow)])
def test_operators_are_timed_by_the_engine(engine):
    pytest.importorskip(engine)
    settings = make_small_settings(engine=engine, batch_size=2)
    record = run_case(
        RunContext(), make_case({**settings.params(), "by_operator": True}), Sampling(iterations=3, warmup=1)
    )
    layers = {one["name"]: one for one in record.details["layers"]}
    for path in ("stem.0", "block.conv", "block.gate.1", "down.0", "head"):  # whatever their nodes were fused with
        assert layers[f"network.{path}"]["flops"], list(layers)
    assert sum(one["share"] for one in record.details["kinds"]) == pytest.approx(1)
    metrics = {name: metric.value for name, metric in record.metrics.items()}
    assert metrics["operators"] + metrics["between"] == pytest.approx(metrics["time"])


@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.slow)])
def test_int8_operators_have_flops_but_no_bytes(engine, tmp_path):
    pytest.importorskip(engine)
    truncate_file(sorted(write_image_tree(tmp_path, 2, 2))[0])
    settings = make_small_settings(
        engine=engine, batch_size=2, precision="int8", min_agreement=0.01, data=str(tmp_path)
    )
    record = run_case(
        RunContext(), make_case({**settings.params(), "by_operator": True}), Sampling(iterations=3, warmup=1)
    )
    layers = {one["name"]: one for one in record.details["layers"]}
    for path in ("stem.0", "block.conv", "down.0", "head"):
        assert layers[f"network.{path}"]["flops"], list(layers)
    assert all(one["moved"] is None and one["roofline"] is None for one in layers.values())
    assert any(note.startswith("int8: no bytes and no roofline") for note in record.notes)
    assert any("image files that were read are broken" in note for note in record.notes)
    assert len(set(record.notes)) == len(record.notes)


def test_unsupported_cases_are_refused_before_replicas_start():
    settings = make_small_settings(**EAGER)
    with pytest.raises(Refused, match="--force"):
        run_case(RunContext(), make_case({**settings.params(), "num_replicas": 1000}), Sampling())
    with pytest.raises(TesseraError, match="requires one replica"):
        make_case({**settings.params(), "num_replicas": 2, "by_operator": True})
    with pytest.raises(TesseraError, match="unknown setting"):
        make_case({**settings.params(), "batchsize": 2})
