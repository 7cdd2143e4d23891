"""Tests of operators on the device for tests: times, launch overhead, memory, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tessera.device import open_device
from tessera.device.timer import DeviceTimer
from tessera.errors import BenchmarkFailed, Refused, TesseraError
from tessera.launch.worker import RunContext, Worker
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.measure.sync import SINGLE_RANK
from tessera.operators.bench import build_callable, run_case
from tessera.operators.cases import cases
from tests.device.standin.build import find_missing, make_environment
from tests.device.standin.runner import on_standin
from tests.device.test_standin import MILLISECOND, configure

ALONE = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=SINGLE_RANK)
SAMPLING = Sampling(iterations=3, warmup=0)
needs_standin = pytest.mark.skipif(bool(find_missing()), reason=find_missing() or "the device for tests is there")


def run_operator(name, *, pass_name="forward", **axes):
    values = {axis: [value] for axis, value in {"device": "standin:0", "size": "small", **axes}.items()}
    (case,) = cases([name], passes=[pass_name], **values)
    return run_case(RunContext(worker=ALONE), case, SAMPLING)


@pytest.mark.parametrize("in_flight", ["auto", 1, 4])
@on_standin
def test_times_are_the_set_duration_and_the_launch_is_apart(in_flight):
    configure(operator_ns=250 * MILLISECOND, launch_ns=100 * MILLISECOND)
    record = run_operator("add", in_flight=in_flight)
    seconds, launch = record.metrics["time"].value, record.metrics["launch_overhead"].value
    assert 0.1 <= launch < 0.15, launch
    if in_flight == 1:  # an idle device waits for the launch of the call
        assert 0.35 <= seconds < 0.4, seconds
    else:
        assert seconds == pytest.approx(0.25, rel=0.03), seconds
    assert record.environment["device"] == "standin:0 Stand-in device for tests"
    assert not record.predicted
    assert not any("launch-bound" in note for note in record.notes)


@on_standin
def test_a_call_that_is_shorter_than_its_launch_has_a_note():
    configure(operator_ns=2 * MILLISECOND, launch_ns=20 * MILLISECOND)
    record = run_operator("add", in_flight=4)
    assert any("launch-bound" in note for note in record.notes)


@on_standin
def test_a_timer_without_marks_on_the_device_would_be_wrong():
    """The mistakes: the host's clock without a synchronisation, and marks on another stream than the work."""
    import torch

    device = open_device("standin")
    there = torch.ones(8, device=device.torch_device)
    device.synchronize()
    configure(operator_ns=50 * MILLISECOND)

    class WrongStream(DeviceTimer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            side = device.make_stream()
            marker = type("Marker", (), {"mark_time": lambda self: device.mark_time(side)})()
            for name in ("synchronize", "compute_seconds"):
                setattr(marker, name, getattr(device, name))
            self._device = marker

    def measure(timer):
        samples = sample(lambda: there.add_(1), SAMPLING, timer=timer)
        device.synchronize()
        return sorted(samples.values)[1]

    assert measure(DeviceTimer(device, lambda: there.add_(1))) == pytest.approx(0.05, rel=0.03)
    assert measure(WrongStream(device, lambda: there.add_(1))) < 0.03
    assert measure(None) < 0.03


@pytest.mark.parametrize("pass_name", ["forward", "backward", "both"])
@pytest.mark.parametrize("name", ["conv2d", "softmax", "matmul", "layer_norm", "max_pool2d"])
@on_standin
def test_operators_are_checked_against_the_reference(name, pass_name):
    record = run_operator(name, pass_name=pass_name)
    assert record.status == "ok"
    assert record.metrics["time"].value > 0
    assert record.metrics["peak_allocated"].value > 0


@on_standin
def test_a_device_that_computes_wrongly_is_refused_before_it_is_timed():
    configure(wrong_results=1)
    with pytest.raises(Refused, match="differs from the reference"):
        run_operator("add")


@on_standin
def test_memory_is_counted_by_the_device():
    record = run_operator("add")
    (case,) = cases(["add"], passes=["forward"], size=["small"])
    cpu = run_case(RunContext(worker=ALONE), case, SAMPLING)
    assert record.metrics["peak_allocated"].value == pytest.approx(cpu.metrics["peak_allocated"].value, abs=511)


@on_standin
def test_cold_caches_are_flushed_outside_of_the_time():
    configure(operator_ns=20 * MILLISECOND)
    record = run_operator("add", cache="cold")
    assert record.metrics["time"].value == pytest.approx(0.02, rel=0.03)


@on_standin
def test_the_cache_is_flushed_before_every_cold_sample():
    from tessera.device.accelerator import AcceleratorDevice

    flushed = []
    flush = AcceleratorDevice.flush_cache
    AcceleratorDevice.flush_cache = lambda self: (flushed.append(self), flush(self))
    assert len(run_operator("add").launches[0].values) == 3
    assert not flushed
    run_operator("add", cache="cold")
    assert len(flushed) >= 3
    buffer = flushed[0]._flush_buffer
    assert buffer.unique().cpu().tolist() == [len(flushed)]  # every number of the buffer was written each time
    assert buffer.nbytes >= 200 << 20  # a quarter of the free memory of 1 GiB


@on_standin
def test_a_device_that_is_lost_in_the_middle_fails_the_case():
    import tessera_standin

    run_operator("add")
    needed = tessera_standin.count_launches()
    configure(lost_device=0, lost_after_launches=needed + needed // 2)
    with pytest.raises(BenchmarkFailed, match="standin:0 failed while add ran: standin: device lost"):
        run_operator("add")
    assert tessera_standin.count_launches() > needed


@on_standin
def test_a_full_device_is_refused():
    configure(memory_bytes=1 << 20)
    with pytest.raises(Refused, match=r"add does not fit into the memory of standin:0: .*out of memory"):
        run_operator("add", size="large")


@on_standin
def test_an_operator_that_ignores_the_device_is_refused():
    with pytest.raises(Refused, match="returns its result on another device: got 'cpu'"):
        run_operator("zeros")


@on_standin
def test_ab_waits_for_the_device():
    import time

    (case,) = cases(["add"], passes=["forward"], size=["small"], device=["standin"])
    call = build_callable(case)
    call()
    configure(operator_ns=300 * MILLISECOND)
    start = time.perf_counter()
    call()
    assert time.perf_counter() - start > 0.29


def test_the_device_is_in_the_key_unless_it_is_the_cpu():
    (plain,) = cases(["add"], size=["small"], passes=["forward"])
    (cpu,) = cases(["add"], size=["small"], passes=["forward"], device=["cpu"])
    (other,) = cases(["add"], size=["small"], passes=["forward"], device=["cuda"])
    assert plain.key == cpu.key == "ops/add[backend=torch,dtype=float32,pass=forward,seed=0,size=small]"
    assert other.key == "ops/add[backend=torch,device=cuda:0,dtype=float32,pass=forward,seed=0,size=small]"
    both = cases(["add"], size=["small"], passes=["forward"], device=["cpu", "cuda"], in_flight=["auto", 1])
    assert [(case.params.get("device"), case.params.get("in_flight")) for case in both] == [
        (None, None),
        ("cuda:0", None),
        ("cuda:0", 1),
    ]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"device": ["cuda:x"]}, "invalid device name"),
        ({"device": ["cuda"], "backend": ["numpy"]}, "the backend does not support --device"),
        ({"in_flight": [4]}, "--in-flight requires an accelerator"),
        ({"device": ["cuda"], "in_flight": [0]}, "--in-flight"),
        ({"device": ["cuda"], "in_flight": [2], "cache": ["cold"]}, "does not support --cache cold"),
    ],
)
def test_values_that_exclude_each_other_are_errors(axes, message):
    with pytest.raises(TesseraError, match=message):
        cases(["add"], **axes)


def read_records(text):
    """Return the records of a command's JSON output, each with its environment in place."""
    data = json.loads(text)
    return [{**record, "environment": data["environments"][record["environment"]]} for record in data["records"]]


def run_tessera(tmp_path, *words, **settings):
    command = [sys.executable, "-m", "tessera", *words, "--store", str(tmp_path / "store.db")]
    return subprocess.run(command, env=make_environment(**settings), capture_output=True, text=True, timeout=110)


@needs_standin
def test_the_command_compares_devices_side_by_side(tmp_path):
    words = ("ops", "add", "--size", "small", "--pass", "forward", "--iterations", "5", "--launches", "1")
    done = run_tessera(tmp_path, *words, "--device", "cpu,standin:1", "--csv", operator_ns=20 * MILLISECOND)
    assert done.returncode == 0, done.stderr
    head, row = done.stdout.splitlines()[:2]
    assert head.split(",")[-3:] == ["cpu", "standin:1", "standin:1 gains"]
    assert row.split(",")[-1].startswith("0.0")


@needs_standin
def test_the_command_says_which_devices_there_are(tmp_path):
    done = run_tessera(tmp_path, "ops", "add", "--device", "standin:7")
    assert done.returncode == 2
    assert done.stderr.strip().endswith("no such device: got 'standin:7'; allowed: cpu, standin:0, standin:1")


@needs_standin
def test_a_full_device_and_a_missing_dtype_are_records_and_the_next_case_runs(tmp_path):
    words = ("ops", "add", "--size", "small,large", "--pass", "forward", "--dtype", "float32,float64", "--quick")
    done = run_tessera(
        tmp_path, *words, "--launches", "1", "--device", "standin", "--json", memory_bytes=1 << 21, lacks_float64=1
    )
    records = json.loads(done.stdout)["records"]
    seen = {(r["case"]["params"]["dtype"], r["case"]["params"]["size"]): (r["status"], r["reason"]) for r in records}
    assert seen["float32", "small"] == ("ok", "")
    assert seen["float32", "large"][0] == "refused"
    assert "out of memory" in seen["float32", "large"][1]
    for size in ("small", "large"):
        assert seen["float64", size] == ("refused", "standin:0 does not support the dtype: got 'float64'")


@needs_standin
def test_a_device_that_is_lost_is_a_failed_record_and_the_next_case_runs(tmp_path):
    words = ("ops", "add", "--size", "small", "--pass", "forward", "--iterations", "9", "--launches", "1", "--json")
    done = run_tessera(tmp_path, *words, "--device", "standin:0,standin:1,cpu", lost_device=0, lost_after_launches=12)
    assert done.returncode == 4, done.stderr
    records = {r["case"]["params"].get("device", "cpu"): r for r in json.loads(done.stdout)["records"]}
    assert {device: record["status"] for device, record in records.items()} == {
        "standin:0": "failed",
        "standin:1": "ok",
        "cpu": "ok",
    }
    assert records["standin:0"]["reason"].startswith("standin:0 failed while add ran: standin: device lost")


@pytest.mark.parametrize("words", [("ops", "add"), ("ab", "add")])
def test_an_accelerator_on_a_machine_without_one_is_one_line(tmp_path, words):
    import torch

    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    command = [sys.executable, "-m", "tessera", *words, "--device", "cuda", "--store", str(tmp_path / "store.db")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 2
    assert done.stderr.startswith("tessera: no such device: got 'cuda:0'; allowed: cpu; torch ")
    assert "install its build for the device" in done.stderr
    assert done.stderr.count("\n") == 1
