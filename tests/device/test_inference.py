"""Tests of inference on the device for tests: agreement with the CPU, synchronisation, replicas, tuning, refusals."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from tessera.device import open_device, pick_device
from tessera.device.accelerator import AcceleratorDevice
from tessera.device.driver import DriverReading
from tessera.device.graphs import CapturedGraph
from tessera.errors import Refused, TesseraError
from tessera.inference.agreement import check_agreement
from tessera.inference.engines import ENGINES, check_engine_device
from tessera.inference.replicas import replica_worker
from tessera.inference.tune.race import list_replica_sets
from tests.device.standin.build import make_environment
from tests.device.standin.runner import on_standin
from tests.device.test_checks import needs_standin
from tests.device.test_operators import ALONE, read_records
from tests.device.test_standin import MILLISECOND, configure
from tests.inference.sessions import (
    compute_eager_outputs,
    compute_outputs,
    draw_images,
    make_small_settings,
    open_small_session,
)

DEVICE_ENGINES = ["torch-eager", "torch-channels-last", "torch-graph"]
MODEL = "tests.inference.small_networks:build_classifier"


@pytest.mark.parametrize(
    ("engine", "precision"),
    [
        *((engine, "32.32") for engine in DEVICE_ENGINES),
        *((engine, precision) for engine in DEVICE_ENGINES[:2] for precision in ("16.16", "bf16")),
    ],
)
@on_standin
def test_outputs_agree_with_the_cpu(engine, precision):
    configure(operator_ns=MILLISECOND // 10, copy_bytes_per_second=20_000_000)
    settings = make_small_settings(engine=engine, device="standin:1", precision=precision)
    with open_small_session(settings) as opened:
        assert opened.session.device == "standin:1 Stand-in device for tests"
        assert check_agreement(settings, opened).holds
        for _ in range(3):  # buffers are reused
            images = draw_images(opened, settings.batch_size)
            for got, want in zip(compute_outputs(opened, images), compute_eager_outputs(opened, images), strict=True):
                np.testing.assert_allclose(got, want, rtol=0, atol=(1e-4 if precision == "32.32" else 0.1))
        (parameter, *_) = opened.deployment.module.parameters()
        assert parameter.device.type == "cpu"  # the reference stays where it is


@pytest.mark.parametrize("planted", ["", "wait_for"])
@on_standin
def test_a_run_without_synchronisation_is_refused_by_the_check(planted):
    """The mistake: the outputs are read before their copy has ended."""
    configure(operator_ns=5 * MILLISECOND)
    if planted:
        setattr(AcceleratorDevice, planted, lambda self, *args: None)
    settings = make_small_settings(engine="torch-eager", device="standin:0", batch_size=2)
    with open_small_session(settings) as opened:
        if planted:
            with pytest.raises(Refused, match=r"does not agree|NaN or infinite"):
                check_agreement(settings, opened)
        else:
            assert check_agreement(settings, opened).holds


@on_standin
def test_a_run_takes_as_long_as_its_work():
    settings = make_small_settings(engine="torch-eager", device="standin:0", batch_size=2)
    with open_small_session(settings) as opened:
        images = opened.session.prepare_input(draw_images(opened, 2))
        opened.session.run(images)
        import tessera_standin

        before = tessera_standin.count_launches()
        opened.session.run(images)
        launches = tessera_standin.count_launches() - before - 1  # the last one copies the output
        configure(operator_ns=20 * MILLISECOND)
        start = time.perf_counter()
        opened.session.run(images)
        assert time.perf_counter() - start >= launches * 0.02


@pytest.mark.parametrize("planted", [False, True])
@on_standin
def test_images_are_copied_before_their_buffer_is_filled_again(planted):
    settings = make_small_settings(engine="torch-channels-last", device="standin:0", batch_size=2)
    with open_small_session(settings) as opened:
        configure(copy_bytes_per_second=200_000)
        if planted:  # the mistake: the pinned buffer is filled while it is still copied
            AcceleratorDevice.wait_for = lambda self, mark: None
        batches = [draw_images(opened, 2) for _ in range(3)]
        prepared = [opened.session.prepare_input(batch) for batch in batches]
        torch.accelerator.synchronize()
        configure(copy_bytes_per_second=0)
        same = [
            torch.equal(there.cpu(), torch.from_numpy(batch)) for there, batch in zip(prepared, batches, strict=True)
        ]
        assert all(same) != planted
        assert all(there.is_contiguous(memory_format=torch.channels_last) for there in prepared)


@on_standin
def test_a_graph_is_one_launch_per_run():
    import tessera_standin

    settings = make_small_settings(engine="torch-graph", device="standin:0", batch_size=2)
    with open_small_session(settings) as opened:
        images = opened.session.prepare_input(draw_images(opened, 2))
        before = tessera_standin.count_launches()
        opened.session.run(images)
        assert tessera_standin.count_launches() - before == 3  # the images, the graph, the output


@pytest.mark.parametrize("planted", [False, True])
@on_standin
def test_a_graph_keeps_the_memory_of_its_network(planted):
    settings = make_small_settings(engine="torch-graph", device="standin:0")
    if planted:  # the mistake: a graph holds addresses only, and the weights are freed after the capture
        init = CapturedGraph.__init__
        CapturedGraph.__init__ = lambda self, device, call: (init(self, device, call), setattr(self, "_call", None))[1]
    with open_small_session(settings) as opened:
        sizes = [parameter.numel() for parameter in opened.deployment.module.parameters()]
        garbage = [torch.full((size,), 7.0, device="standin:0") for size in sizes for _ in range(4)]
        images = draw_images(opened, settings.batch_size)
        pairs = zip(compute_outputs(opened, images), compute_eager_outputs(opened, images), strict=True)
        assert all(np.allclose(got, want, atol=1e-4) for got, want in pairs) != planted
        del garbage


@on_standin
def test_what_the_device_lacks_is_refused():
    # the device for tests waits for batch norm in 16 bits, and a graph cannot hold a wait
    with pytest.raises(Refused, match=r"standin:0 does not capture this work as a graph: .* that the host waits for"):
        open_small_session(make_small_settings(engine="torch-graph", device="standin", precision="16.16"))
    configure(memory_bytes=1 << 12)
    with pytest.raises(torch.OutOfMemoryError):
        open_small_session(make_small_settings(engine="torch-eager", device="standin:0"))
    settings = make_small_settings(engine="torch-compile", device="standin:0")
    configure(memory_bytes=1 << 30)
    with pytest.raises(Refused, match=r"torch.compile does not compile"):
        open_small_session(settings)


@on_standin
def test_a_dtype_that_the_device_lacks_is_refused():
    AcceleratorDevice.supports_dtype = lambda self, dtype: dtype is torch.float32
    with pytest.raises(Refused, match="standin:0 does not support the dtype: got 'float16'"):
        open_small_session(make_small_settings(engine="torch-eager", device="standin", precision="16.16"))


@on_standin
def test_operators_are_timed_on_the_device():
    from tessera.inference.attribution.torch_hooks import time_operators
    from tessera.inference.engines.pytorch import place_module

    configure(operator_ns=20 * MILLISECOND)
    settings = make_small_settings(engine="torch-eager", device="standin:0", batch_size=2)
    with open_small_session(settings) as opened:
        module = place_module(opened.deployment.module, opened.device, "NCHW")
        images = opened.session.prepare_input(draw_images(opened, 2))
        timed = time_operators(module, images, 2, opened.device)
        convolutions = [operator.seconds for operator in timed if operator.kind.startswith("convolution")]
        assert convolutions
        assert convolutions == pytest.approx([0.02] * len(convolutions), rel=0.05)


@on_standin
def test_replicas_pick_devices_in_turns():
    assert [pick_device("standin", replica) for replica in range(3)] == ["standin:0", "standin:1", "standin:0"]
    assert [pick_device("standin:1", replica) for replica in range(2)] == ["standin:1", "standin:1"]
    assert pick_device("cpu", 3) == "cpu"
    with pytest.raises(TesseraError, match="no such device: got 'cuda:0'; allowed: cpu, standin:0, standin:1"):
        open_device(pick_device("cuda", 1))


@on_standin
def test_energy_of_the_device_is_read_around_a_window(tmp_path):
    readings = iter(range(0, 1000, 5))
    AcceleratorDevice.read_driver = lambda self: DriverReading(joules=float(next(readings)))
    settings = make_small_settings(engine="torch-eager", device="standin:1", batch_size=2)
    replica_worker.load_network(ALONE, "", settings, str(tmp_path), False)
    times = replica_worker.run_window(ALONE, "", 3, 0.0, False)
    assert (times.device, times.device_joules) == ("standin:1", 5.0)
    replica_worker.unload_network(ALONE, "")


def run_infer(tmp_path, *words, **settings):
    command = [sys.executable, "-m", "tessera", "infer", "--model", MODEL, "--image-size", "32", *words]
    command += ["--store", str(tmp_path / "store.db"), "--force"]
    environment = {**make_environment(**settings), "TESSERA_HOME": str(tmp_path)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


@needs_standin
def test_the_command_runs_a_replica_per_device(tmp_path):
    words = ("--engine", "torch-eager", "--device", "standin", "--num-replicas", "2", "--iterations", "4", "--json")
    done = run_infer(tmp_path, *words, "--launches", "1", operator_ns=2 * MILLISECOND)
    assert done.returncode == 0, done.stderr
    (record,) = read_records(done.stdout)
    models = [f"standin:{number} Stand-in device for tests" for number in range(2)]
    assert record["environment"]["device"] == ", ".join(models)
    assert record["case"]["params"]["device"] == "standin"
    metrics = record["metrics"]
    assert metrics["peak_device_memory"]["value"] > 0
    assert metrics["latency_min"]["value"] > 0.004
    assert metrics["top1_agreement"]["value"] == 1
    assert record["conditions"]["device_mhz"] == 1000
    assert any("tessera doctor --calibrate --device standin:0" in note for note in record["notes"])


@needs_standin
def test_devices_side_by_side_and_a_full_device(tmp_path):
    words = ("--engine", "torch-eager", "--device", "standin:1,cpu", "--iterations", "3", "--launches", "1", "--json")
    done = run_infer(tmp_path, *words, memory_bytes=1 << 12)
    records = {r["case"]["params"].get("device", "cpu"): r for r in read_records(done.stdout)}
    assert records["standin:1"]["status"] == "refused", done.stderr
    assert "does not fit into the memory of standin:1" in records["standin:1"]["reason"]
    assert records["cpu"]["status"] == "ok"


@needs_standin
def test_a_device_that_is_lost_is_a_failed_record(tmp_path):
    words = ("--engine", "torch-eager", "--device", "standin", "--iterations", "30", "--launches", "1", "--json")
    done = run_infer(tmp_path, *words, lost_device=0, lost_after_launches=200)
    assert done.returncode == 4, done.stderr
    (record,) = read_records(done.stdout)
    assert record["status"] == "failed"
    assert "device lost" in record["reason"]


def test_tuning_combines_engines_with_the_devices_that_they_support():
    sets = list_replica_sets(["torch-eager", "torch-graph", "openvino"], [(1, 2)], ["cpu", "cuda:0", "gpu"])
    assert {str(each) for each in sets} == {
        "torch-eager 1x2",
        "torch-eager 1x2 on cuda:0",
        "torch-graph 1x2 on cuda:0",
        "openvino 1x2",
        "openvino 1x2 on gpu",  # OpenVINO's name of a device: torch has no device type "gpu"
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
@needs_standin
def test_tuning_over_devices_finds_the_faster_one(tmp_path):
    words = ("--tune", "--tune-time", "90s", "--engine", "torch-eager", "--device", "standin:1,cpu", "--json")
    words += ("--batch-size", "2", "--num-replicas", "1", "--cores-per-replica", "1", "--quick")
    done = run_infer(tmp_path, *words, operator_ns=20 * MILLISECOND)
    assert done.returncode == 0, done.stderr
    best, other = read_records(done.stdout)
    assert "device" not in best["case"]["params"]
    assert other["case"]["params"]["device"] == "standin:1"
    assert other["environment"]["device"] == "standin:1 Stand-in device for tests"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--engine", "torch-eager", "--device", "cuda"), "no such device: got 'cuda:0'; allowed: cpu; torch "),
        (("--engine", "onnxruntime", "--device", "cuda:0"), "ONNX Runtime has no provider for --device cuda:0: got "),
        (("--engine", "onnxruntime", "--device", "tensorrt"), "install onnxruntime-gpu and TensorRT"),
        (("--engine", "onnxruntime", "--device", "coreml"), "allowed: CoreMLExecutionProvider"),
        (("--engine", "openvino", "--device", "gpu"), "OpenVINO finds no device for --device gpu: got 'CPU'"),
        (("--engine", "openvino", "--device", "npu:0"), "OpenVINO finds no device for --device npu:0"),
        (("--engine", "openvino", "--device", "cuda"), "OpenVINO does not run on --device cuda: use --engine "),
        (("--engine", "torch-graph"), "PyTorch, captured graph does not run on --device cpu: use --engine "),
        (("--engine", "torch-eager", "--device", "cuda:x"), "invalid device name: got 'cuda:x'"),
        (("--tune", "--device", "cuda"), "no such device: got 'cuda:0'"),
        (("--tune", "--device", "gpu"), "OpenVINO finds no device for --device gpu"),
    ],
)
def test_a_missing_device_is_one_line(tmp_path, words, message):
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    command = [
        sys.executable,
        "-m",
        "tessera",
        "infer",
        "--model",
        MODEL,
        *words,
        "--store",
        str(tmp_path / "store.db"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 2, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, done.stderr
    assert message in lines[0]


def test_engines_that_have_no_provider_say_which_there_are():
    with pytest.raises(TesseraError, match="CPUExecutionProvider"):
        check_engine_device("onnxruntime", "dml:0")
    check_engine_device("onnxruntime", "cpu")
    assert ENGINES["onnxruntime"].supports_device("dml")
    assert not ENGINES["torch-graph"].supports_device("cpu")
