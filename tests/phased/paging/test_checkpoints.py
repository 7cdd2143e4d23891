"""Tests of checkpoints: files and folders are read where they are, and mismatches are named."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6)))
        self.head = nn.Linear(32, 4)
        self.register_buffer("scale", torch.arange(32.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x * self.scale))


def write_shards(folder, state) -> None:
    names = sorted(state)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in shards.items():
        save_file({name: state[name] for name in own}, folder / file)
    index = {"weight_map": {name: file for file, own in shards.items() for name in own}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


@pytest.mark.parametrize("form", ["file", "folder", "shards", "torch"])
def test_checkpoints_are_read_where_they_are(tmp_path, form):
    model, x = Network().eval(), torch.randn(2, 32)
    state = model.state_dict()
    if form == "file":
        path = tmp_path / "w.safetensors"
        unused = torch.zeros(3, dtype=torch.float8_e4m3fn)
        save_file({**state, "unused": unused, "other": torch.zeros(3, dtype=torch.uint16)}, path)
    elif form == "folder":
        path = tmp_path
        save_file(state, tmp_path / "model.safetensors")
    elif form == "shards":
        path = tmp_path
        write_shards(tmp_path, state)
    else:
        path = tmp_path / "w.pt"
        torch.save({"state_dict": state}, path)
    before = sorted(tmp_path.iterdir())
    with PhasedModel.from_pretrained(path, model=Network, budget="16KiB", keep=False, threads=1) as phased:
        for _ in range(3):
            with torch.no_grad():
                torch.testing.assert_close(phased(x), model(x))
        assert phased.working_bytes <= 16 << 10
        assert phased.stream_bytes == phased.weight_bytes
    assert sorted(tmp_path.iterdir()) == before


def test_mismatches_are_named_before_anything_runs(tmp_path):
    state = Network().state_dict()
    save_file(state | {"more": torch.zeros(2)}, tmp_path / "extra.safetensors")
    with pytest.raises(TesseraError, match="does not use: got 'more'"):
        PhasedModel.from_pretrained(tmp_path / "extra.safetensors", model=Network, allow_extra=False)
    save_file({name: value for name, value in state.items() if name != "head.bias"}, tmp_path / "missing.safetensors")
    with pytest.raises(TesseraError, match=r"head.bias is missing"):
        PhasedModel.from_pretrained(tmp_path / "missing.safetensors", model=Network)
    save_file(state | {"head.bias": torch.zeros(5)}, tmp_path / "shape.safetensors")
    with pytest.raises(TesseraError, match=r"the shape of head.bias differs"):
        PhasedModel.from_pretrained(tmp_path / "shape.safetensors", model=Network)
    data = (tmp_path / "shape.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(data[:-8])
    with pytest.raises(TesseraError, match="truncated"):
        PhasedModel.from_pretrained(tmp_path / "cut.safetensors", model=Network)
    with pytest.raises(TesseraError, match=r"no config.json"):
        PhasedModel.from_pretrained(tmp_path / "extra.safetensors")
