"""Headers that lie, files that are cut off: nothing of them is ever read as weights."""

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


def with_header(path, edit):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = edit(header)
    text = (text if isinstance(text, str) else json.dumps(header)).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_tensors_are_found_where_the_library_finds_them(path):
    file = WeightsFile(path)
    data = path.read_bytes()
    for name, value in load_file(path).items():
        stored = file.tensors[name]
        assert (stored.dtype, stored.shape) == (value.dtype, tuple(value.shape))
        assert data[stored.start : stored.stop] == value.numpy().tobytes()
    file.close()


@pytest.mark.parametrize(
    ("what", "edit"),
    [
        ("not JSON", lambda h: "{"),
        ("not an object", lambda h: "[]"),
        ("twice", lambda h: '{"a": 1, "a": 2}'),
        ("texts", lambda h: h.update(__metadata__={"a": 1})),
        ("not complete", lambda h: h["a"].pop("shape")),
        ("not complete", lambda h: h.update(a=3)),
        ("cannot be streamed", lambda h: h["a"].update(dtype="F4")),
        ("whole numbers", lambda h: h["a"].update(shape=[3.0, 5])),
        ("whole numbers", lambda h: h["a"].update(shape=[-3, -5])),
        ("whole numbers", lambda h: h["a"].update(shape=[True, 15])),
        ("do not make", lambda h: h["a"].update(shape=[3, 6])),
        ("does not begin", lambda h: h.pop("b")),
        ("longer than its header", lambda h: (h.pop("a"), h.pop("empty"))),
        ("does not begin|cut off", lambda h: h["a"].update(data_offsets=[10_000, 10_060])),
    ],
)
def test_headers_that_lie(path, what, edit):
    with_header(path, edit)
    with pytest.raises(TesseraError, match=what):
        WeightsFile(path)


@settings(max_examples=50, deadline=None)
@given(keep=st.floats(0, 1, exclude_max=True))
def test_any_truncation_is_found(tmp_path_factory, keep):
    path = tmp_path_factory.mktemp("cut") / "w"
    save_file({"a": torch.randn(3, 5), "b": torch.arange(7)}, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(TesseraError, match="cut off"):
        WeightsFile(path)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_file_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("any") / "w"
    path.write_bytes(data)
    with pytest.raises(TesseraError):
        WeightsFile(path)


def test_the_length_of_the_header_is_bounded(tmp_path):
    (tmp_path / "w").write_bytes((1 << 63).to_bytes(8, "little") + b"{}")
    with pytest.raises(TesseraError, match="cut off, or"):
        WeightsFile(tmp_path / "w")


def test_what_is_no_file_is_an_error_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(TesseraError, match="no regular file"):
            WeightsFile(path)
