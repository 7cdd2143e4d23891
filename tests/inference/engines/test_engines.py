"""Every engine that is installed gives what plain torch gives, in every precision that it has."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from tessera.errors import MissingExtra, Refused
from tessera.inference.agreement import agreement
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.engines import ENGINES, available, engine
from tessera.inference.settings import Settings
from tests.inference.sessions import FILES, INSTALLED, QUICK, eager, exported, opened, outputs, random_images, small

FLOATS = ("32.32", "16.32", "16.16")
pytestmark = pytest.mark.timeout(300)


def error(found, expected) -> float:
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, expected, strict=True))


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "network"), [*((name, "classifier") for name in INSTALLED), *((name, "two_heads") for name in QUICK)]
)
def test_an_engine_gives_the_numbers_of_torch(name, network):
    settings = small(network, engine=name)
    with opened(settings) as session:
        for _ in range(3):
            images = random_images(session, settings.batch_size)
            assert error(outputs(session, images), eager(session, images)) < 1e-4
        assert agreement(settings, session).top1 == 1
        assert session.compute_dtype == "float32"


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("precision", FLOATS[1:])
def test_sixteen_bits_are_kept_and_the_record_says_what_is_computed_in(name, precision):
    settings = small(engine=name, precision=precision)
    with opened(settings) as session:
        images = random_images(session, settings.batch_size)
        assert images.dtype == np.float16
        found, expected = outputs(session, images), eager(session, images)
        assert error(found, expected) < 2e-2
        weights = list(session.deployment.wide.network.parameters())
        assert all(torch.equal(weight, weight.half().float()) for weight in weights) == (precision == "16.16")
        assert all(np.array_equal(array, array.astype(np.float16)) for array in found)
        if session.compute_dtype == "float32":
            assert any("kept in 16 bits, the arithmetic is float32" in note for note in session.notes)
        agreement(settings, session)


@pytest.mark.parametrize("name", [name for name in QUICK if "bf16" in ENGINES[name].precisions])
def test_bfloat16_agrees_or_is_refused_where_there_is_none(name):
    settings = small(engine=name, precision="bf16")
    if name == "openvino" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        with pytest.raises(Refused, match="on this processor"):
            opened(settings)
        return
    with opened(settings) as session:
        assert session.compute_dtype == "bfloat16"
        assert 0 < agreement(settings, session).error < 0.1


@pytest.mark.parametrize("name", QUICK)
def test_pixels_normalised_by_the_host_or_by_the_device_are_the_same_network(name):
    seed, size = random.randrange(2**31), random.randint(1, 4)
    raw = np.random.default_rng().integers(0, 256, (size, 3, 32, 32), np.uint8)
    found = []
    for given in (
        {"normalization_location": "host"},
        {"normalization_location": "device"},
        {"normalization_location": "device", "eight_bit_io": True},
    ):
        settings = small(engine=name, seed=seed, batch_size=size, **given)
        with opened(settings) as session:
            pixels = session.deployment.pixels
            images = np.empty(raw.shape, pixels.element)
            pixels.converted(raw, images)
            assert images.dtype == (np.uint8 if settings.eight_bit_io else np.float32)
            found.append(outputs(session, images))
    assert error(found[1], found[0]) < 1e-4
    assert error(found[2], found[0]) < 1e-4


@pytest.mark.parametrize("name", QUICK)
def test_what_is_held_can_be_run_again_and_in_any_order(name):
    settings = small(engine=name, batch_size=2)
    with opened(settings) as session:
        batches = [random_images(session, 2) for _ in range(3)]
        held = [session.session.input(batch) for batch in batches]
        expected = [eager(session, batch) for batch in batches]
        for number in (0, 1, 0, 2, 2, 1):
            found = session.session.outputs(session.session.run(held[number]))
            assert error(found, expected[number]) < 1e-4


@pytest.mark.parametrize("name", QUICK)
def test_a_batch_in_another_layout_is_held_as_well(name):
    """What an engine has to copy for that stays alive with what it holds, whatever becomes of the array."""
    settings = small(engine=name, batch_size=2)
    with opened(settings) as session:
        images = random_images(session, 2)
        held = session.session.input(np.asfortranarray(images))
        expected = eager(session, images)
        for _ in range(20):
            np.full(images.shape, np.nan, images.dtype)  # would be drawn from the memory of a copy that was let go
        assert error(session.session.outputs(session.session.run(held)), expected) < 1e-4


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("streams", [1, 2])
def test_every_batch_that_is_submitted_is_done_once(name, streams):
    if streams > 1 and not ENGINES[name].hints:
        pytest.skip("it has no streams")
    hint = "throughput" if ENGINES[name].hints else "latency"
    settings = small(engine=name, streams=streams, hint=hint)
    with opened(settings) as session:
        assert session.session.depth == streams
        held, done = session.session.input(random_images(session, settings.batch_size)), []
        for number in range(20):
            session.session.submit(held, lambda number=number: done.append(number))
        session.session.drain()
        assert sorted(done) == list(range(20))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("batch", ["batch", "", "N"])
def test_an_onnx_file_is_run_as_it_is(name, batch, tmp_path):
    settings = Settings(model=exported(tmp_path / "net.onnx", batch=batch), engine=name, batch_size=4)
    with opened(settings) as session:
        found = agreement(settings, session)
        assert found.error < 1e-4
        assert found.against == "ONNX Runtime without optimisations"
    with pytest.raises(Refused, match="run as it is"):
        opened(Settings(model=settings.model, engine=name, batch_size=4, precision="16.16"))
    with pytest.raises(Refused, match="host or none"):
        opened(Settings(model=settings.model, engine=name, batch_size=4, normalization_location="device"))


@pytest.mark.parametrize("name", FILES)
def test_an_onnx_file_of_dynamic_size_runs_at_the_size_that_is_given(name, tmp_path):
    settings = Settings(model=exported(tmp_path / "net.onnx", size="s"), engine=name, batch_size=2, image_size=48)
    with opened(settings) as session:
        assert random_images(session, 2).shape == (2, 3, 48, 48)
        agreement(settings, session)


@pytest.mark.parametrize("name", [name for name in INSTALLED if not ENGINES[name].files])
def test_an_engine_of_torch_refuses_an_onnx_file(name, tmp_path):
    with pytest.raises(Refused, match="use onnxruntime or openvino"):
        opened(Settings(model=exported(tmp_path / "net.onnx"), engine=name))


@pytest.mark.parametrize("name", FILES)
def test_a_profile_names_the_operators_that_run(name):
    settings = small(engine=name)
    with opened(settings) as session:
        images = random_images(session, settings.batch_size)
        steps = session.session.profile(session.session.input(images), 3)
        assert sum("Conv" in step.kind for step in steps) >= 3
        assert all(step.seconds >= 0 for step in steps)
        assert not any("BatchNorm" in step.kind for step in steps)
        assert outputs(session, images)


def test_replicas_share_a_file_and_a_private_one_is_gone_afterwards():
    settings = small(engine=FILES[0], batch_size=1)
    with Artefacts.temporary() as files:
        with opened(settings, artefacts=files) as session:
            assert session.seconds["export"] > 0
        second = Artefacts(files.folder)
        with opened(Settings.of({**settings.params(), "batch_size": 3}), artefacts=second) as session:
            assert "export" not in session.seconds
            assert "module" not in vars(session.deployment.network)
        folder = files.folder
        assert folder.exists()
    assert not folder.exists()
    with opened(settings) as session:
        own = session.artefacts.folder
        assert own.exists()
    assert not own.exists()


def test_an_engine_that_is_not_installed_names_its_extra(monkeypatch):
    monkeypatch.setattr("tessera.inference.engines.find_spec", lambda package: None)
    assert available("openvino") == "openvino is not installed: pip install 'tessera[openvino]'"
    engine.cache_clear()
    with pytest.raises(MissingExtra, match=r"tessera\[onnxruntime\]"):
        engine("onnxruntime")


def test_engines_start_no_thread_that_reports_home():
    code = (
        "import sys, threading, os\n"
        "from tessera.inference.engines import ENGINES, engine\n"
        "[engine(name).preload() for name, one in ENGINES.items() if not one.missing()]\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not sys.modules.get('openvino_telemetry')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=250, env=dict(os.environ))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", INSTALLED)
@pytest.mark.parametrize("model", ["resnet18", "resnet50", "efficientnet_b0", "mobilenet_v3_small", "unet"])
def test_real_networks_agree(name, model):
    settings = Settings(model=model, engine=name, batch_size=2, seed=random.randrange(1000))
    with opened(settings) as session:
        assert agreement(settings, session).error < 1e-4
