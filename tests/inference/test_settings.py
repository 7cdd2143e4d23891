"""Tests of inference settings: validation, refusals, and conversion to and from the parameters of a case."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import Refused, TesseraError
from tessera.inference.cases import Task
from tessera.inference.engines import ENGINES
from tessera.inference.replicas.placement import Placement
from tessera.inference.settings import (
    NORMALIZATION_LOCATIONS,
    Settings,
    count_io_threads,
    get_normalization_location,
    make_option_notes,
    make_sampling_notes,
)
from tessera.models import MODELS

drawn = st.sampled_from(sorted(name for name, entry in ENGINES.items() if not entry.requires_accelerator)).flatmap(
    lambda engine: st.builds(
        Settings,
        model=st.sampled_from([*MODELS, "mine:net", "timm/vit", *["net.onnx"] * ENGINES[engine].files]),
        engine=st.just(engine),
        precision=st.sampled_from(ENGINES[engine].precisions),
        batch_size=st.integers(1, 512),
        device_iterations=st.integers(1, 256),
        data=st.sampled_from(["generated", "synthetic"]),
        eight_bit_io=st.booleans(),
        normalization_location=st.sampled_from(NORMALIZATION_LOCATIONS),
        norm_type=st.sampled_from(["", "batch", "group", "none"]),
        half_partial=st.booleans(),
        num_io_tiles=st.integers(0, 64),
        prefetch=st.booleans(),
        min_agreement=st.sampled_from([0.0, 0.5, 1.0]),
        seed=st.integers(0, 2**31),
    )
)


@given(drawn)
def test_settings_convert_to_case_parameters_and_back(settings):
    assert Settings.of(json.loads(json.dumps(settings.params()))) == settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch_size": 0}, "--batch-size: got 0; allowed: 1 or more"),
        ({"batch_size": "8"}, "wrong type for --batch-size: got '8'; allowed: a whole number"),
        ({"batch_size": True}, "a whole number"),
        ({"model": "resnet5"}, "did you mean resnet50 or"),
        ({"model": ""}, "unknown model"),
        ({"engine": "onxruntime"}, "did you mean onnxruntime?"),
        ({"precision": "8.8"}, "unknown precision: got '8.8'; allowed: 32.32"),
        ({"data": "/no/such/folder"}, "a folder of images"),
        ({"data": "sythetic"}, "did you mean synthetic?"),
        ({"normalization_location": "gpu"}, "allowed: host, device, none"),
        ({"norm_type": "layer"}, "allowed: batch, group, none"),
        ({"num_io_tiles": -1}, "0 or more"),
        ({"device_iterations": 0}, "1 or more"),
        ({"min_agreement": 1.5}, "from 0 to 1"),
        ({"batchsize": 4}, "did you mean batch_size?"),
    ],
)
def test_an_invalid_setting_is_an_error_in_one_line(given, words):
    with pytest.raises(TesseraError) as caught:
        Settings.of(given)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"engine": "torch-eager", "precision": "int8"}, "use --engine onnxruntime or openvino"),
        ({"engine": "onnxruntime", "precision": "bf16"}, "use --engine torch-eager"),
        ({"engine": "onnxruntime", "streams": 2}, "use --engine openvino"),
        ({"engine": "torch-compile", "hint": "throughput"}, "use --engine openvino"),
    ],
)
def test_the_error_for_an_unsupported_setting_names_engines_that_support_it(given, words):
    with pytest.raises(Refused, match=words):
        Settings.of(given)


def test_aliases_of_other_projects_are_accepted():
    settings = Settings(model="resnext101", precision="fp32", normalization_location="ipu")
    assert (settings.model, settings.precision, settings.normalization_location) == (
        "resnext101_32x8d",
        "32.32",
        "device",
    )


def test_8_bit_input_is_normalised_on_the_device_with_a_note():
    settings = Settings(eight_bit_io=True, normalization_location="host")
    assert get_normalization_location(settings) == "device"
    assert "normalised on the device" in " ".join(make_option_notes(settings))
    assert get_normalization_location(Settings(eight_bit_io=True, normalization_location="none")) == "none"
    assert get_normalization_location(Settings()) == "host"


def test_options_without_effect_are_noted():
    told = " ".join(make_option_notes(Settings(data="synthetic", num_io_tiles=64)))
    assert "--num-io-tiles and --prefetch have no effect" in told
    assert "--dataloader-worker has no effect" in " ".join(make_option_notes(Settings(dataloader_worker=4)))
    many = Settings(device_iterations=128)
    assert make_sampling_notes(many, mode="offline", iterations=20) == ()
    assert "without --iterations" in " ".join(make_sampling_notes(many, mode="offline", iterations=None))
    assert len(make_sampling_notes(many, mode="server", iterations=20)) == 2


def test_io_threads_are_limited_to_the_cores_and_zero_without_prefetching():
    assert count_io_threads(Settings(num_io_tiles=10_000)) < 10_000
    assert count_io_threads(Settings(num_io_tiles=0)) == 0
    assert count_io_threads(Settings(num_io_tiles=64, prefetch=False)) == 0
    assert "threads that prepare input" in " ".join(make_option_notes(Settings(num_io_tiles=64)))


def test_settings_import_no_torch_and_no_engine():
    code = (
        "import sys, tessera.inference.settings, tessera.inference.configs, tessera.inference.settings;"
        "bad = {'torch', 'numpy', 'onnx', 'onnxruntime', 'openvino'} & set(sys.modules); assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_streams_require_one_core_each():
    settings = Settings(engine="openvino", streams=2)
    with pytest.raises(TesseraError, match=r"--streams requires one core per stream.*add --cores-per-replica 2"):
        Task(settings=settings)
    Task(settings=settings, placement=Placement(cores_per_replica=2))
    assert "--hint throughput has no effect with one stream: add --streams" in make_option_notes(
        Settings(engine="openvino", hint="throughput")
    )
