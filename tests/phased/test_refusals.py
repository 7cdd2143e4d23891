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
    refused("to widen weights in", budget=8192, dtype="float16", keep=False)
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


def test_what_a_call_inside_a_phase_raises_is_said():
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, table):
            return self.layer(x) * table["scale"].value

    with PhasedModel(Asks()) as phased:
        for table, says in (({}, "'scale'"), ({"scale": 2.0}, "no attribute 'value'")):
            with pytest.raises(TesseraError, match=f"phase 0 does not run on this input: .*{says}"):
                phased(torch.randn(2, 4), table)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*is deprecated")
def test_a_model_that_cannot_be_copied():
    refused("Sequential cannot be copied.*remove_weight_norm", nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4))))


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


class OfTheBatch(nn.Module):
    """A batch norm that takes the statistics of every batch."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        return self.norm(self.layer(x))


class Product(nn.Module):
    """Multiplies by a stack of matrices: samples become the second dim."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return torch.matmul(x, self.weight)


class Sum(Product):
    """Adds a weight, which may have more dims than the value."""

    def forward(self, x):
        return x + self.weight


class Two(nn.Module):
    """Adds two inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, y):
        return self.layer(x) + y


@pytest.mark.parametrize(
    ("model", "shapes", "says"),
    [
        (OfTheBatch(), [(4, 4)], r"norm \(BatchNorm1d\) may mix them"),
        (Product(2, 4, 4), [(4, 4)], "matmul joins values of 2 and 3 dims"),
        (Product(4), [(4, 4)], "matmul joins values of 1 and 2 dims"),
        (Sum(2, 1, 4), [(4, 4)], "add joins values of 2 and 3 dims"),
        (Two(), [(4, 4), (4,)], "add joins values of 1 and 2 dims"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_samples_that_do_not_stay_apart_are_not_divided(model, shapes, says):
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with PhasedModel(model.eval(), schedule="data-parallel", threads=1) as phased, torch.no_grad():
        with pytest.raises(TesseraError, match=f"cannot be divided over 2 devices: {says}"):
            phased(*inputs)
        for found in phased.run([inputs, inputs]):
            torch.testing.assert_close(found, model(*inputs))


@pytest.mark.parametrize(
    ("model", "shapes"),
    [(Product(1, 4, 4), [(4, 3, 4)]), (Product(4, 4), [(4, 4)]), (Sum(3, 1), [(4, 3, 4)]), (Two(), [(4, 4), (4, 4)])],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_that_stay_apart_are_divided(model, shapes, dtype):
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with torch.no_grad():
        expected = model(*inputs)
    given = [x.to(getattr(torch, dtype)) for x in inputs]
    with PhasedModel(model, schedule="data-parallel", threads=1, dtype=dtype) as phased:
        torch.testing.assert_close(phased(*given).float(), expected)
        assert {event.device for event in phased.events} == {0, 1}


class Narrowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x)


def test_autocast_within_a_network_and_around_it():
    refused("computes under torch.autocast", Narrowing().eval())
    with (
        PhasedModel(chain(), schedule="sequential") as phased,
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(TesseraError, match=r"not computed under torch\.autocast"),
    ):
        phased(torch.randn(2, 32, 32))


def test_a_layer_that_writes_into_its_own_weight():
    refused("writes into its weight", nn.Sequential(nn.Embedding(8, 4, max_norm=1.0), nn.Linear(4, 4)).eval())


def test_a_network_that_asks_for_values_says_so_where_flops_are_counted():
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x / x.max().item())

    model, x = Asks().eval(), torch.rand(2, 4)
    refused("asks for the values of tensors.*without `input_shape`", model, input_shape=(2, 4))
    with torch.no_grad(), PhasedModel(model) as phased:
        assert torch.equal(phased(x), model(x))


def test_a_result_that_is_of_no_sample_cannot_be_divided():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.rand(2, 4))

        def forward(self, x):
            return self.layer(x), self.scale * 2

    model, x = Scaled().eval(), torch.rand(4, 4)
    with torch.no_grad(), PhasedModel(model, schedule="data-parallel", devices=2) as phased:
        with pytest.raises(TesseraError, match="is not of the samples"):
            phased(x)
        for found, expected in zip(phased.run([x, x]), [model(x)] * 2, strict=True):
            assert all(map(torch.equal, found, expected))
