"""int8: what it agrees with, how it is made, and that its agreement is a figure that can fail."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from tessera.errors import Refused
from tessera.inference.agreement import agreement, compared
from tessera.inference.data.images import KINDS, drawn_images, kinds_of
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.opening import deployment_of
from tessera.inference.settings import Settings
from tests.inference.sessions import opened

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ENGINES = ["onnxruntime", "openvino"]
pytestmark = pytest.mark.timeout(300)


def quantised(model: str, engine: str = "onnxruntime", **given) -> Settings:
    settings = Settings(model=model, engine=engine, precision="int8", seed=random.randrange(1000), **given)
    print(settings)
    return settings


@pytest.fixture(scope="module")
def files():
    with Artefacts.temporary() as made:
        yield made


@pytest.mark.parametrize("engine", ENGINES)
def test_a_small_residual_network_agrees(engine, files):
    pytest.importorskip(engine)
    settings = Settings(model="resnet18", engine=engine, precision="int8", batch_size=4, image_size=64, seed=3)
    with opened(settings, artefacts=files) as session:
        found = agreement(settings, session)
        assert found.answers >= KINDS // 2
        assert 0 < found.error < 0.5
        assert session.compute_dtype == "int8"
        assert any("fitted to drawn images" in note for note in session.notes)


def test_the_file_holds_int8_weights_and_quantised_convolutions(files):
    settings = Settings(model="resnet18", engine="onnxruntime", precision="int8", image_size=64, seed=3)
    graph = onnx.load(files.quantised(deployment_of(settings), outputs=True)).graph
    weights = {one.name: one for one in graph.initializer}
    small = [one for one in weights.values() if one.data_type == onnx.TensorProto.INT8]
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert len(small) >= len(convolutions) == 20
    fed_by = {output: node.op_type for node in graph.node for output in node.output}
    assert all(fed_by[node.input[0]] == fed_by[node.input[1]] == "DequantizeLinear" for node in convolutions)


def test_swishes_and_gates_are_quantised_too(files, capsys):
    settings = Settings(model="efficientnet_b0", engine="onnxruntime", precision="int8", image_size=32, seed=3)
    graph = onnx.load(files.quantised(deployment_of(settings), outputs=True)).graph
    assert capsys.readouterr().out == "", "what calibration prints is nobody's output"
    fed_by = {output: node.op_type for node in graph.node for output in node.output}
    swishes = [node for node in graph.node if node.op_type in ("Sigmoid", "Mul")]
    assert len(swishes) >= 100
    assert all(fed_by[name] == "DequantizeLinear" for node in swishes for name in node.input)


def test_fitted_random_weights_tell_the_kinds_of_images_apart():
    """What makes top-1 agreement mean something: the float32 network answers rightly on images that it never saw."""
    deployment = deployment_of(
        Settings(model="resnet18", engine="onnxruntime", precision="int8", image_size=64, seed=5)
    )
    raw = drawn_images(KINDS, (3, 64, 64), seed=random.randrange(10**6))
    images = np.empty(raw.shape, np.float32)
    deployment.pixels.converted(raw, images)
    with torch.no_grad():
        answers = deployment.reference(torch.from_numpy(images)).argmax(1).numpy()
    assert (answers == kinds_of(KINDS)).mean() > 0.9


def test_agreement_can_fail():
    scores = np.random.default_rng().standard_normal((200, 10)).astype(np.float32)
    top1, error, answers = compared((scores,), (scores,))
    assert (top1, error, answers) == (1.0, 0.0, 10)
    top1, error, _ = compared((np.roll(scores, 1, axis=1),), (scores,))
    assert top1 < 0.3
    assert error > 1
    with pytest.raises(Refused, match="finite"):
        compared((np.full_like(scores, np.nan),), (scores,))
    with pytest.raises(Refused, match="other shapes"):
        compared((scores[:, :9],), (scores,))


def test_a_quantised_network_below_what_is_asked_for_is_refused(files):
    given = {"model": "resnet18", "precision": "int8", "image_size": 64, "batch_size": 4, "seed": 3}
    settings = Settings(**given, min_agreement=1.0)
    with opened(settings, artefacts=files) as session:
        session.deployment.reference.network.fc.weight.data.mul_(-1)  # another network than the one that was given
        for kept in files.folder.glob("expected-*"):
            kept.unlink()
        with pytest.raises(Refused, match="does not agree with torch eager"):
            agreement(settings, session)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", ["resnet50", "efficientnet_b0"])
def test_real_networks_agree_in_int8(engine, model):
    pytest.importorskip(engine)
    settings = quantised(model, engine, batch_size=8)
    with opened(settings) as session:
        found = agreement(settings, session)
        print(found)
        assert found.answers >= KINDS // 2
