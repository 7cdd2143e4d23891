"""Tests of weights that are stored with 8 or 4 bits and decoded while they are loaded."""

from __future__ import annotations

import copy
import json
import random
import threading

import numpy as np
import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel, write_weights
from tessera.phased.paging import pager
from tessera.phased.store.encoding import ENCODINGS, GROUP, compute_encoded_bytes, decode_into, encode, is_encodable
from tessera.phased.store.weights_file import ENCODINGS_KEY, WeightsFile


def compute_max_errors(value, encoding):
    """Return the largest error of every value: half of the step of its scale, and a rounding to the dtype."""
    rows = value.double().reshape(value.shape[0], -1)
    size, codes = (rows.shape[1], 127) if encoding == "int8" else (GROUP, 7)
    largest = torch.cat([part.abs().amax(1, keepdim=True).expand_as(part) for part in rows.split(size, 1)], 1)
    return (largest * (0.5 / codes + 1e-6 + torch.finfo(value.dtype).eps)).view(value.shape)


def round_trip(value, encoding):
    content, error = encode(value, encoding)
    decoded = torch.empty_like(value).contiguous()
    decode_into(content, encoding, decoded)
    return content, error, decoded


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_decoded_values_are_close_and_the_stated_error_is_theirs(encoding, dtype):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    torch.manual_seed(seed)
    for shape in ((3, 500), (64, 64), (7, 5, 3, 3), (1, 1024), (2000, 1), (257, 129)):
        value = torch.randn(shape).to(dtype)
        content, error, decoded = round_trip(value, encoding)
        assert content.nbytes == compute_encoded_bytes(encoding, shape)
        measured = float((decoded.double() - value.double()).norm() / value.double().norm())
        assert ((decoded.double() - value.double()).abs() <= compute_max_errors(value, encoding)).all()
        assert error == pytest.approx(measured, rel=0.05, abs=3e-3)  # 16-bit targets are rounded once more


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_zeros_and_single_values_are_exact(encoding):
    value = torch.zeros(4, 300)
    value[1, 7], value[2] = 3.5, -2.0
    _, error, decoded = round_trip(value, encoding)
    torch.testing.assert_close(decoded, value, rtol=1e-6, atol=0)
    assert error < 1e-6
    with pytest.raises(TesseraError, match="infinite or undefined"):
        encode(torch.full((2, 600), float("nan")), encoding)


def build_network():
    layers = [nn.Linear(300, 300) for _ in range(6)]
    return nn.Sequential(nn.Conv2d(3, 96, 3), nn.Flatten(), nn.Linear(96 * 4, 300), nn.LayerNorm(300), *layers).eval()


def round_weights(network, encoding):
    rounded = copy.deepcopy(network)
    with torch.no_grad():
        for value in rounded.state_dict().values():
            if is_encodable(value.dtype, value.shape):
                value.copy_(round_trip(value, encoding)[2])
    return rounded


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("schedule", ["overlapped", "sequential", "phased", "resident"])
def test_network_computes_with_the_decoded_weights(encoding, schedule):
    network, x = build_network(), torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        expected = round_weights(network, encoding)(x)
        for budget in ("1.5MB", "20MB"):
            with PhasedModel(network, dtype=encoding, budget=budget, schedule=schedule, threads=1) as phased:
                for _ in range(3):
                    torch.testing.assert_close(phased(x), expected, rtol=1e-5, atol=1e-5)
                full = sum(weight.nbytes for weight in network.parameters())
                assert phased.weight_bytes < full * {"int8": 0.28, "int4": 0.17}[encoding]
                assert f"{encoding} stored and streamed, float32 computed" in phased.arithmetic


def test_weights_are_decoded_in_the_loading_thread(monkeypatch):
    threads = []
    decode = pager.decode_into
    monkeypatch.setattr(pager, "decode_into", lambda *args: (threads.append(threading.current_thread()), decode(*args)))
    with torch.no_grad(), PhasedModel(build_network(), dtype="int8", budget="1.5MB", keep=False) as phased:
        phased(torch.randn(2, 3, 4, 4))
    assert threads
    assert all(thread.name.startswith("tessera-reader") for thread in threads)


def test_errors_are_stated_per_tensor_and_in_total(tmp_path):
    network = build_network()
    write_weights(tmp_path / "w", network, dtype="int4")
    with PhasedModel.from_pretrained(tmp_path / "w", model=build_network, budget="20MB") as phased:
        names = {name for name, value in network.state_dict().items() if is_encodable(value.dtype, value.shape)}
        assert set(phased.encoding_errors) == names
        for name, error in phased.encoding_errors.items():
            assert error == pytest.approx(encode(network.state_dict()[name], "int4")[1], rel=1e-2)
        assert min(phased.encoding_errors.values()) <= phased.total_encoding_error
        assert phased.total_encoding_error <= max(phased.encoding_errors.values())
        assert "encoded weights: error" in phased.explain()


def test_encoded_weights_cannot_be_mapped_and_a_plain_file_has_no_encoding(tmp_path):
    network = build_network()
    with pytest.raises(TesseraError, match="cannot be mapped"):
        PhasedModel(network, dtype="int8", store="mapped")
    write_weights(tmp_path / "w", network)
    with pytest.raises(TesseraError, match="is not stored as int8"):
        PhasedModel.from_pretrained(tmp_path / "w", model=build_network, dtype="int8")


def test_damaged_encoding_is_an_error(tmp_path):
    path = tmp_path / "w"
    write_weights(path, build_network(), dtype="int8")
    assert WeightsFile(path).tensors["2.weight"].encoding == "int8"
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    encodings = json.loads(header["__metadata__"][ENCODINGS_KEY])
    encodings["2.weight"][2][0] += 1
    header["__metadata__"][ENCODINGS_KEY] = json.dumps(encodings)
    text = json.dumps(header, separators=(",", ":")).encode().ljust(length)
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])
    with pytest.raises(TesseraError, match=r"encoding of 2\.weight does not match|truncated|longer"):
        WeightsFile(path)


def test_size_of_encoded_weights():
    assert compute_encoded_bytes("int8", (8, 100)) == 8 * 4 + 800
    assert compute_encoded_bytes("int4", (8, 128)) == 8 * 2 * 4 + 8 * 64
    assert encode(torch.ones(2, 600), "int4")[0].dtype == np.uint8
