"""Tests that compare every installed engine with plain torch, in every precision that the engine supports."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from tessera.errors import MissingExtra, Refused
from tessera.inference.agreement import check_agreement
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.engines import ENGINES, load_engine
from tessera.inference.settings import Settings
from tests.inference.sessions import (
    FILE_ENGINES,
    INSTALLED_ENGINES,
    QUICK_ENGINES,
    compute_eager_outputs,
    compute_outputs,
    draw_images,
    export_small_network,
    make_small_settings,
    open_small_session,
)

FLOATS = ("32.32", "16.32", "16.16")
pytestmark = pytest.mark.timeout(300)


def compute_error(actual, expected) -> float:
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(actual, expected, strict=True))


@pytest.fixture(autouse=True)
def _use_one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "network"),
    [
        *((name, "build_classifier") for name in INSTALLED_ENGINES),
        *((name, "build_two_heads") for name in QUICK_ENGINES),
    ],
)
def test_an_engine_gives_the_outputs_of_torch(name, network):
    settings = make_small_settings(network, engine=name)
    with open_small_session(settings) as session:
        for _ in range(3):
            images = draw_images(session, settings.batch_size)
            assert compute_error(compute_outputs(session, images), compute_eager_outputs(session, images)) < 1e-4
        assert check_agreement(settings, session).top1 == 1
        assert session.compute_dtype == "float32"


@pytest.mark.parametrize(
    ("precision", "name"),
    [(precision, name) for precision in FLOATS[1:] for name in QUICK_ENGINES if precision in ENGINES[name].precisions],
)
def test_16_bit_storage_and_compute_dtype_are_reported(name, precision):
    settings = make_small_settings(engine=name, precision=precision)
    with open_small_session(settings) as session:
        images = draw_images(session, settings.batch_size)
        assert images.dtype == np.float16
        actual, expected = compute_outputs(session, images), compute_eager_outputs(session, images)
        assert compute_error(actual, expected) < 2e-2
        weights = list(session.deployment.float32_module.network.parameters())
        assert all(torch.equal(weight, weight.half().float()) for weight in weights) == (precision == "16.16")
        assert all(np.array_equal(array, array.astype(np.float16)) for array in actual)
        if session.compute_dtype == "float32":
            assert any("stored in 16 bits, the arithmetic is float32" in note for note in session.notes)
        check_agreement(settings, session)


@pytest.mark.parametrize("name", [name for name in QUICK_ENGINES if "bf16" in ENGINES[name].precisions])
def test_bfloat16_agrees_or_is_refused_if_unsupported(name):
    settings = make_small_settings(engine=name, precision="bf16")
    if name == "openvino" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(Refused, match="does not support this precision"):
            open_small_session(settings)
        return
    with open_small_session(settings) as session:
        assert session.compute_dtype == "bfloat16"
        assert 0 < check_agreement(settings, session).error < 0.1


@pytest.mark.parametrize("name", QUICK_ENGINES)
def test_host_and_device_normalisation_give_equal_outputs(name):
    seed, size = random.randrange(2**31), random.randint(1, 4)
    raw = np.random.default_rng().integers(0, 256, (size, 3, 32, 32), np.uint8)
    actual = []
    for given in (
        {"normalization_location": "host"},
        {"normalization_location": "device"},
        {"normalization_location": "device", "eight_bit_io": True},
    ):
        settings = make_small_settings(engine=name, seed=seed, batch_size=size, **given)
        with open_small_session(settings) as session:
            pixels = session.deployment.pixels
            images = np.empty(raw.shape, pixels.dtype)
            pixels.convert(raw, images)
            assert images.dtype == (np.uint8 if settings.eight_bit_io else np.float32)
            actual.append(compute_outputs(session, images))
    assert compute_error(actual[1], actual[0]) < 1e-4
    assert compute_error(actual[2], actual[0]) < 1e-4


@pytest.mark.parametrize("name", QUICK_ENGINES)
def test_prepared_inputs_can_be_run_repeatedly_and_in_any_order(name):
    settings = make_small_settings(engine=name, batch_size=2)
    with open_small_session(settings) as session:
        batches = [draw_images(session, 2) for _ in range(3)]
        held = [session.session.prepare_input(batch) for batch in batches]
        expected = [compute_eager_outputs(session, batch) for batch in batches]
        for number in (0, 1, 0, 2, 2, 1):
            actual = session.session.read_outputs(session.session.run(held[number]))
            assert compute_error(actual, expected[number]) < 1e-4


@pytest.mark.parametrize("name", QUICK_ENGINES)
def test_a_batch_in_another_memory_layout_can_be_prepared(name):
    """If `prepare_input` copies the batch, the copy stays alive as long as the prepared input."""
    settings = make_small_settings(engine=name, batch_size=2)
    with open_small_session(settings) as session:
        images = draw_images(session, 2)
        held = session.session.prepare_input(np.asfortranarray(images))
        expected = compute_eager_outputs(session, images)
        for _ in range(20):
            np.full(images.shape, np.nan, images.dtype)  # would overwrite a copy that was freed too early
        assert compute_error(session.session.read_outputs(session.session.run(held)), expected) < 1e-4


@pytest.mark.parametrize("name", QUICK_ENGINES)
@pytest.mark.parametrize("streams", [1, 2])
def test_every_submitted_batch_calls_done_once(name, streams):
    if streams > 1 and not ENGINES[name].hints:
        pytest.skip("it has no streams")
    hint = "throughput" if ENGINES[name].hints else "latency"
    settings = make_small_settings(engine=name, streams=streams, hint=hint)
    with open_small_session(settings) as session:
        assert session.session.depth == streams
        held, done = session.session.prepare_input(draw_images(session, settings.batch_size)), []
        for number in range(20):
            session.session.submit(held, lambda number=number: done.append(number))
        session.session.drain()
        assert sorted(done) == list(range(20))


@pytest.mark.parametrize("name", FILE_ENGINES)
@pytest.mark.parametrize("batch", ["batch", "", "N"])
def test_an_onnx_file_is_run_unchanged(name, batch, tmp_path):
    settings = Settings(model=export_small_network(tmp_path / "net.onnx", batch=batch), engine=name, batch_size=4)
    with open_small_session(settings) as session:
        actual = check_agreement(settings, session)
        assert actual.error < 1e-4
        assert actual.against == "ONNX Runtime without optimisations"
    with pytest.raises(Refused, match="requires images of dtype float32"):
        open_small_session(Settings(model=settings.model, engine=name, batch_size=4, precision="16.16"))
    with pytest.raises(Refused, match="host or none"):
        open_small_session(Settings(model=settings.model, engine=name, batch_size=4, normalization_location="device"))


@pytest.mark.parametrize("name", FILE_ENGINES)
def test_an_onnx_file_of_dynamic_size_runs_at_the_given_size(name, tmp_path):
    settings = Settings(
        model=export_small_network(tmp_path / "net.onnx", size="s"), engine=name, batch_size=2, image_size=48
    )
    with open_small_session(settings) as session:
        assert draw_images(session, 2).shape == (2, 3, 48, 48)
        check_agreement(settings, session)


@pytest.mark.parametrize("name", [name for name in INSTALLED_ENGINES if not ENGINES[name].files])
def test_a_torch_engine_refuses_an_onnx_file(name, tmp_path):
    with pytest.raises(Refused, match="use --engine onnxruntime or openvino"):
        open_small_session(Settings(model=export_small_network(tmp_path / "net.onnx"), engine=name))


@pytest.mark.parametrize("name", FILE_ENGINES)
def test_a_profile_names_the_operators_that_run(name):
    settings = make_small_settings(engine=name)
    with open_small_session(settings) as session:
        images = draw_images(session, settings.batch_size)
        steps = session.session.profile(session.session.prepare_input(images), 3)
        assert sum("Conv" in step.kind for step in steps) >= 3
        assert all(step.seconds >= 0 for step in steps)
        assert not any("BatchNorm" in step.kind for step in steps)
        assert compute_outputs(session, images)


def test_replicas_share_files_and_temporary_files_are_removed():
    settings = make_small_settings(engine=FILE_ENGINES[0], batch_size=1)
    with Artefacts.create_temporary() as files:
        with open_small_session(settings, artefacts=files) as session:
            assert session.seconds["export"] > 0
        second = Artefacts(files.folder)
        with open_small_session(Settings.of({**settings.params(), "batch_size": 3}), artefacts=second) as session:
            assert "export" not in session.seconds
            assert "module" not in vars(session.deployment.network)
        folder = files.folder
        assert folder.exists()
    assert not folder.exists()
    with open_small_session(settings) as session:
        own = session.artefacts.folder
        assert own.exists()
    assert not own.exists()


def test_the_error_for_a_missing_engine_names_its_extra(monkeypatch):
    monkeypatch.setattr("tessera.inference.engines.find_spec", lambda package: None)
    assert str(ENGINES["openvino"].find_missing()) == "openvino is not installed: pip install 'tessera[openvino]'"
    load_engine.cache_clear()
    with pytest.raises(MissingExtra, match=r"tessera\[onnxruntime\]"):
        load_engine("onnxruntime")


def test_engines_start_no_telemetry_thread():
    code = (
        "import sys, threading, os\n"
        "from tessera.inference.engines import ENGINES, load_engine\n"
        "[load_engine(name) for name, entry in ENGINES.items() if not entry.find_missing()]\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not sys.modules.get('openvino_telemetry')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=250, env=dict(os.environ))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", INSTALLED_ENGINES)
@pytest.mark.parametrize("model", ["resnet18", "resnet50", "efficientnet_b0", "mobilenet_v3_small", "unet"])
def test_real_networks_agree(name, model):
    settings = Settings(model=model, engine=name, batch_size=2, seed=random.randrange(1000))
    with open_small_session(settings) as session:
        assert check_agreement(settings, session).error < 1e-4
