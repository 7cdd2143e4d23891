"""Tests of opening weights files: invalid headers and truncated files are refused."""

from __future__ import annotations

import json
import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tessera.errors import TesseraError
from tessera.phased.store.weights_file import WeightsFile


@pytest.fixture
def path(tmp_path):
    save_file({"a": torch.randn(3, 5), "b": torch.arange(7), "empty": torch.empty(0, 2)}, tmp_path / "w")
    return tmp_path / "w"


def rewrite_header(path, edit):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = edit(header)
    text = (text if isinstance(text, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_tensors_equal_those_of_the_library(path):
    file = WeightsFile(path)
    data = path.read_bytes()
    for name, value in load_file(path).items():
        stored = file.tensors[name]
        assert (stored.dtype, stored.shape) == (value.dtype, tuple(value.shape))
        assert data[stored.start : stored.stop] == value.numpy().tobytes()
    file.close()


@pytest.mark.parametrize(
    ("message", "edit"),
    [
        ("not JSON", lambda h: "{"),
        ("not a JSON object", lambda h: "[]"),
        ("twice", lambda h: '{"a": 1, "a": 2}'),
        ("not strings", lambda h: h.update(__metadata__={"a": 1})),
        ("is incomplete", lambda h: h["a"].pop("shape")),
        ("is incomplete", lambda h: h.update(a=3)),
        ("non-negative integers", lambda h: h["a"].update(shape=[3.0, 5])),
        ("non-negative integers", lambda h: h["a"].update(shape=[-3, -5])),
        ("non-negative integers", lambda h: h["a"].update(shape=[True, 15])),
        ("do not match shape", lambda h: h["a"].update(shape=[3, 6])),
        ("does not begin", lambda h: h.pop("b")),
        ("longer than its header", lambda h: (h.pop("a"), h.pop("empty"))),
        ("does not begin|truncated", lambda h: h["a"].update(data_offsets=[10_000, 10_060])),
    ],
)
def test_invalid_headers_are_refused(path, message, edit):
    rewrite_header(path, edit)
    with pytest.raises(TesseraError, match=message):
        WeightsFile(path)


@settings(max_examples=50, deadline=None)
@given(keep=st.floats(0, 1, exclude_max=True))
def test_any_truncation_is_detected(tmp_path_factory, keep):
    path = tmp_path_factory.mktemp("cut") / "w"
    save_file({"a": torch.randn(3, 5), "b": torch.arange(7)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(TesseraError, match="truncated"):
        WeightsFile(path)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_a_file_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "w"
    path.write_bytes(data)
    with pytest.raises(TesseraError):
        WeightsFile(path)


def test_the_length_of_the_header_is_bounded(tmp_path):
    (tmp_path / "w").write_bytes((1 << 63).to_bytes(8, "little") + b"{}")
    with pytest.raises(TesseraError, match="truncated, or"):
        WeightsFile(tmp_path / "w")


def test_a_path_that_is_not_a_file_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(TesseraError, match="not a regular file"):
            WeightsFile(path)


def test_a_tensor_of_an_unknown_dtype_does_not_refuse_the_file(path):
    rewrite_header(path, lambda h: h["a"].update(dtype="F4"))
    file = WeightsFile(path)
    assert file.unsupported == {"a": "F4"}
    assert "a" not in file.tensors
    file.close()
