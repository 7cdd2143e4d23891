"""Real replicas: pinned, in step, summed over their common window, and what is kept when one dies."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace

import pytest

from tessera.errors import Refused, TesseraError
from tessera.inference.bench import HERE, run_case
from tessera.inference.cases import case_of
from tessera.inference.modes.load import Load
from tessera.inference.modes.offline import single_stream
from tessera.inference.modes.server import server
from tessera.inference.replicas.crew import Replicas
from tessera.inference.replicas.placement import Placement
from tessera.inference.task import Task
from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.results.record import Record, merge_launches
from tests.inference.data.files import torn, tree
from tests.inference.replicas.fragile import CALLS, VICTIM
from tests.inference.sessions import small

pytestmark = pytest.mark.timeout(300)

EAGER = {"engine": "torch-eager", "batch_size": 2}


def measure(sampling: Sampling, *, network: str = "classifier", **given) -> Record:
    settings = small(network, **EAGER)
    return run_case(HERE, case_of({**settings.params(), **given}), sampling)


@pytest.fixture(scope="module")
def two():
    with Replicas(Placement(num_replicas=2, force=True, env={"TESSERA_TEST": "passed"})) as replicas:
        yield replicas


def test_two_replicas_work_side_by_side_and_one_works_alone(two):
    on = two.load(small(**EAGER), "network")
    assert [one.agreement is not None for one in on.loaded] == [True, False], "one check is enough"
    assert on.loaded[0].agreement["top1"] == 1.0
    for batches, seconds in ((3, 0.0), (1, 0.1)):
        window = on.window(batches=batches, seconds=seconds)
        assert len(window.stretches) == 2
        assert all(len(stretch.begun) >= batches for stretch in window.stretches)
        assert all(stretch.wall >= seconds * 1e9 for stretch in window.stretches)
        first, second = window.stretches
        assert abs(first.first - second.first) < 1e9, "they start together"
    alone = on.window(batches=4, seconds=0.0, alone=True)
    assert len(alone.stretches) == 1
    ends = on.aftermath()
    assert all(end.peak > 10_000_000 for end in ends)
    assert ends[0].environment["pinned_to"] == 1
    assert ends[0].flops_per_image > 0
    assert ends[1].flops_per_image is None


def test_several_networks_are_ready_at_a_time_and_can_be_let_go(two):
    some = {name: two.load(small(**EAGER), name, check=False) for name in ("a", "b")}
    assert {name: on.window(batches=1, seconds=0.0).batch for name, on in some.items()} == {"a": 2, "b": 2}
    some["a"].unload()
    assert some["b"].window(batches=50, seconds=0.0).seconds > 0


def test_a_network_that_cannot_be_counted_runs_without_a_figure_for_its_arithmetic(two):
    on = two.load(small("looking", **EAGER), "looking")
    assert on.window(batches=50, seconds=0.0).seconds > 0
    assert on.aftermath()[0].flops_per_image is None
    assert on.is_ready()
    on.unload()
    assert not on.is_ready()


def test_the_replicas_find_what_is_passed_on(two):
    assert two.run("tests.inference.replicas.test_crew:variable", "TESSERA_TEST") == ["passed"] * 2


def variable(worker: Worker, name: str) -> str | None:
    return os.environ.get(name)


def test_a_record_holds_rate_latency_and_what_it_took():
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


def test_the_others_samples_are_kept_and_marked_when_a_replica_dies(tmp_path):
    before = _left_over()
    settings = {"model": "tests.inference.replicas.fragile:fragile", "image_size": 32, **EAGER}
    env = {VICTIM: str(tmp_path / "victim"), CALLS: "400"}
    case = case_of({**settings, "num_replicas": 2, "force": True, "device_iterations": 20, "env": env})
    record = run_case(HERE, case, Sampling(iterations=100, warmup=1))
    assert record.status == "failed"
    assert "SIGKILL" in record.reason
    (samples,) = record.launches
    assert 0 < len(samples.values) < 100
    assert samples.stopped_by == "failure"
    assert len(samples.ranks) == 2
    assert record.metrics["throughput"].value > 0
    assert any(note.startswith("broken off") for note in record.notes)
    assert merge_launches([record]).launches == record.launches, "the store keeps them"
    assert _left_over() == before


def _left_over() -> set[str]:
    """Worker processes of ours that are still there."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    own = str(os.getpid())
    return {line for line in listed.splitlines() if "tessera.launch.serve" in line and line.split()[1] == own}


@pytest.fixture(scope="module")
def ready(two):
    """A network that is ready on both replicas, for the modes to be tried on."""
    return two.load(small(**EAGER), "modes", check=False)


def task(ready, **load) -> Task:
    return Task(settings=ready.settings, placement=ready.replicas.placement, load=Load(**load))


def test_a_single_stream_is_a_series_of_latencies(ready):
    asked = task(ready, mode="single-stream")
    asked = replace(asked, settings=replace(asked.settings, device_iterations=40))  # shorter windows miss each other
    found = single_stream(ready, asked, Sampling(iterations=5, warmup=1))
    assert (found.unit, found.direction) == ("s", "lower")
    assert 5 <= len(found.samples.values) <= 5 * 40 * 2, "of two replicas, while both work"
    assert found.metrics["time"].value == pytest.approx(found.metrics["latency_p50"].value)


def test_a_server_finds_a_rate_that_it_holds(ready):
    asked = task(ready, mode="server", max_latency=0.5)
    found = server(ready, asked, Sampling(budget=1.0, target=0.2))
    metrics = {name: metric.value for name, metric in found.metrics.items()}
    assert metrics["held"] == 1
    assert 0 < metrics["throughput"] <= metrics["capacity"] * 1.01
    assert metrics["latency_p99"] <= 0.5
    assert found.conditions["load_generator"] == "Tessera's own arrivals"
    assert all(trial["questions"] >= 64 for trial in found.conditions["trials"])


def test_a_rate_that_is_asked_for_is_held_or_not(ready):
    asked = task(ready, mode="server", max_latency=1e-6, target_rate=50.0)
    found = server(ready, asked, Sampling(budget=0.4, target=0.2))
    assert found.metrics["held"].value == 0
    assert found.metrics["throughput"].value == 0
    assert any("not held" in note for note in found.notes)


def test_every_replica_can_tell_its_operators(ready):
    for operators, witness in ready.replicas.run("tessera.inference.attribution.inside:by_operator", ready.name):
        kinds = {operator.kind for operator in operators}
        assert {"convolution 3x3", "convolution depthwise", "addmm"} <= kinds
        assert all(operator.seconds > 0 for operator in operators)
        assert witness.startswith("hooks")


@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.slow)])
def test_an_engine_times_its_own_operators(engine):
    pytest.importorskip(engine)
    settings = small(engine=engine, batch_size=2)
    record = run_case(HERE, case_of({**settings.params(), "by_operator": True}), Sampling(iterations=3, warmup=1))
    layers = {one["name"]: one for one in record.conditions["layers"]}
    for path in ("stem.0", "block.conv", "block.gate.1", "down.0", "head"):  # whatever they were fused with
        assert layers[f"network.{path}"]["flops"], list(layers)
    assert sum(one["share"] for one in record.conditions["kinds"]) == pytest.approx(1)
    metrics = {name: metric.value for name, metric in record.metrics.items()}
    assert metrics["operators"] + metrics["between"] == pytest.approx(metrics["time"])


@pytest.mark.parametrize("engine", ["onnxruntime", pytest.param("openvino", marks=pytest.mark.slow)])
def test_in_int8_operators_have_flops_but_no_bytes_and_the_end_of_the_run_is_told(engine, tmp_path):
    pytest.importorskip(engine)
    torn(sorted(tree(tmp_path, 2, 2))[0])
    settings = small(engine=engine, batch_size=2, precision="int8", min_agreement=0.01, data=str(tmp_path))
    record = run_case(HERE, case_of({**settings.params(), "by_operator": True}), Sampling(iterations=3, warmup=1))
    layers = {one["name"]: one for one in record.conditions["layers"]}
    for path in ("stem.0", "block.conv", "down.0", "head"):
        assert layers[f"network.{path}"]["flops"], list(layers)
    assert all(one["moved"] is None and one["roofline"] is None for one in layers.values())
    assert any(note.startswith("int8: bytes and roofline are left out") for note in record.notes)
    assert any("1 of 4 image files are broken" in note for note in record.notes)
    assert len(set(record.notes)) == len(record.notes)


def test_what_cannot_be_is_refused_before_anything_starts():
    settings = small(**EAGER)
    with pytest.raises(Refused, match="--force"):
        run_case(HERE, case_of({**settings.params(), "num_replicas": 1000}), Sampling())
    with pytest.raises(TesseraError, match="looks into one replica"):
        case_of({**settings.params(), "num_replicas": 2, "by_operator": True})
    with pytest.raises(TesseraError, match="unknown setting"):
        case_of({**settings.params(), "batchsize": 2})
