"""What cannot be run is refused before anything runs, in one line that says what to do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import MatrixChain, PhasedModel, write_weights


def chain(**options):
    return MatrixChain(dsize=32, num_layers=3, **options)


def refused(match, model=None, **options):
    with pytest.raises(TesseraError, match=match):
        PhasedModel(model or chain(), **options)


def test_a_budget_smaller_than_the_largest_layer():
    refused(r"phase 0 \(layers.0\).*2 buffers of 4.00 KiB.*raise the budget to 8192 bytes", budget=5000, keep=False)
    refused(r"1 buffer of 4.00 KiB", budget=4000, schedule="sequential")
    refused("to widen its weights in", budget=8192, dtype="float16", keep=False)
    refused("begin phases at more of its modules: layers.2", budget=9000, phases=["layers.1"])


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("unknown schedule.*did you mean phased", {"schedule": "phase"}),
        ("unknown store", {"store": "tape"}),
        ("unknown kind of device", {"workers": "fibres"}),
        ("not a size in bytes", {"budget": "many"}),
        ("not a size in bytes", {"budget": 0}),
        ("cannot be stored in", {"dtype": "int8"}),
        ("overlapped runs on one device", {"schedule": "overlapped", "devices": 2}),
        ("needs devices", {"devices": 0}),
        ("needs threads", {"threads": 0}),
        ("read cold", {"store": "host", "cold": True}),
        ("are no processes.*phased, sharded", {"schedule": "overlapped", "workers": "processes"}),
        ("no module with weights of this name.*did you mean layers.2", {"phases": ["layers.22"]}),
        ("no phases are named", {"phases": []}),
        ("nothing is written to `directory`", {"store": "host", "directory": "/tmp"}),
        ("does not run on 4x4", {"input_shape": (4, 4)}),
    ],
)
def test_options_without_meaning(match, options):
    refused(match, **options)


def test_networks_that_cannot_be_streamed():
    with pytest.raises(TesseraError, match="num_layers"):
        MatrixChain(num_layers=0)
    refused("no weights to stream", nn.ReLU())
    refused("training mode.*eval", nn.Sequential(nn.Linear(2, 2), nn.Dropout()))

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x

    refused("torch.fx cannot trace Branches", Branches())


def test_the_file_has_to_be_of_the_model(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, chain())
    with torch.device("meta"):
        other, longer, alike = MatrixChain(33, 3), MatrixChain(32, 4), MatrixChain(32, 3)
    refused("layers.0.weight has another shape", other, path=path)
    refused("layers.3.weight is missing", longer, path=path)
    refused("another dtype.*float32", alike, path=path, dtype="float16")
    refused("no checksums", alike, path=path, checksums=True)
    refused("name a file", alike)
    refused("no such file", alike, path=tmp_path / "none")
    refused("there already.*meta", chain(), path=path)
    half = MatrixChain(32, 3)
    half.layers[1].to("meta")
    refused("some weights have values and some have none", half)


def test_a_closed_model_says_so():
    with PhasedModel(chain()) as phased:
        pass
    phased.close()
    with pytest.raises(TesseraError, match="closed"):
        phased(torch.randn(1, 32, 32))


def test_arguments_are_bound_as_python_would():
    with PhasedModel(chain()) as phased, pytest.raises(TesseraError, match="missing a required argument"):
        phased()


def test_samples_that_a_network_mixes_are_not_divided():
    class Mixes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return torch.softmax(self.layer(x), 0)

    model = Mixes().eval()
    with PhasedModel(model, schedule="data-parallel") as phased, torch.no_grad():
        x = torch.randn(4, 4)
        with pytest.raises(TesseraError, match=r"cannot be divided over 2 devices: softmax \(softmax\) may mix them"):
            phased(x)
        for found, wanted in zip(phased.run([x, x + 1]), [model(x), model(x + 1)], strict=True):
            assert torch.equal(found, wanted)
