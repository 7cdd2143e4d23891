"""Tests of int8 networks: agreement with float32, the quantised graph, and agreement checks that must fail."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tessera.errors import Refused
from tessera.inference.agreement import check_agreement, compare_outputs
from tessera.inference.data.images import IMAGE_KINDS, generate_images, get_image_kinds
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.opening import plan_deployment
from tessera.inference.settings import Settings
from tests.inference.sessions import open_small_session

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ENGINES = ["onnxruntime", "openvino"]
pytestmark = pytest.mark.timeout(300)


def build_settings(model: str, engine: str = "onnxruntime", **given) -> Settings:
    settings = Settings(model=model, engine=engine, precision="int8", seed=random.randrange(1000), **given)
    print(settings)
    return settings


@pytest.fixture(scope="module")
def files():
    with Artefacts.create_temporary() as made:
        yield made


@pytest.mark.parametrize("engine", ENGINES)
def test_a_small_residual_network_agrees_in_int8(engine, files):
    pytest.importorskip(engine)
    settings = Settings(model="resnet18", engine=engine, precision="int8", batch_size=4, image_size=64, seed=3)
    with open_small_session(settings, artefacts=files) as session:
        result = check_agreement(settings, session)
        assert result.answers >= IMAGE_KINDS // 2
        assert 0 < result.error < 0.5
        assert session.compute_dtype == "int8"
        assert any("fitted to generated images" in note for note in session.notes)


def test_the_file_holds_int8_weights_and_quantised_convolutions(files):
    settings = Settings(model="resnet18", engine="onnxruntime", precision="int8", image_size=64, seed=3)
    graph = onnx.load(files.export_int8(plan_deployment(settings), outputs=True)).graph
    weights = {one.name: one for one in graph.initializer}
    small = [one for one in weights.values() if one.data_type == onnx.TensorProto.INT8]
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert len(small) >= len(convolutions) == 20
    fed_by = {output: node.op_type for node in graph.node for output in node.output}
    assert all(fed_by[node.input[0]] == fed_by[node.input[1]] == "DequantizeLinear" for node in convolutions)


def test_silu_and_gates_are_quantised(files, capsys):
    settings = Settings(model="efficientnet_b0", engine="onnxruntime", precision="int8", image_size=32, seed=3)
    graph = onnx.load(files.export_int8(plan_deployment(settings), outputs=True)).graph
    assert capsys.readouterr().out == "", "what calibration prints is nobody's output"
    fed_by = {output: node.op_type for node in graph.node for output in node.output}
    swishes = [node for node in graph.node if node.op_type in ("Sigmoid", "Mul")]
    assert len(swishes) >= 100
    assert all(fed_by[name] == "DequantizeLinear" for node in swishes for name in node.input)


def test_fitted_random_weights_classify_the_kinds_of_images():
    """Top-1 agreement is meaningful only if the float32 network classifies unseen images correctly."""
    deployment = plan_deployment(
        Settings(model="resnet18", engine="onnxruntime", precision="int8", image_size=64, seed=5)
    )
    raw = generate_images(IMAGE_KINDS, (3, 64, 64), seed=random.randrange(10**6))
    images = np.empty(raw.shape, np.float32)
    deployment.pixels.convert(raw, images)
    with torch.no_grad():
        answers = deployment.float32_module(torch.from_numpy(images)).argmax(1).numpy()
    assert (answers == get_image_kinds(IMAGE_KINDS)).mean() > 0.9


def test_the_agreement_check_can_fail():
    scores = np.random.default_rng().standard_normal((200, 10)).astype(np.float32)
    top1, error, answers = compare_outputs((scores,), (scores,))
    assert (top1, error, answers) == (1.0, 0.0, 10)
    top1, error, _ = compare_outputs((np.roll(scores, 1, axis=1),), (scores,))
    assert top1 < 0.3
    assert error > 1
    with pytest.raises(Refused, match="finite"):
        compare_outputs((np.full_like(scores, np.nan),), (scores,))
    with pytest.raises(Refused, match="differ in shape"):
        compare_outputs((scores[:, :9],), (scores,))


def test_a_quantised_network_below_the_minimum_agreement_is_refused(files):
    given = {"model": "resnet18", "precision": "int8", "image_size": 64, "batch_size": 4, "seed": 3}
    settings = Settings(**given, min_agreement=1.0)
    with open_small_session(settings, artefacts=files) as session:
        session.deployment.float32_module.network.fc.weight.data.mul_(-1)  # makes the reference a different network
        for kept in files.folder.glob("expected-*"):
            kept.unlink()
        with pytest.raises(Refused, match="does not agree with torch eager"):
            check_agreement(settings, session)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["resnet50", "efficientnet_b0"])
def test_real_networks_agree_in_int8(engine, model):
    pytest.importorskip(engine)
    settings = build_settings(model, engine, batch_size=8)
    with open_small_session(settings) as session:
        result = check_agreement(settings, session)
        print(result)
        assert result.answers >= IMAGE_KINDS // 2
