"""Tests of refusals: invalid options and unsupported networks are errors before anything runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import MatrixChain, PhasedModel, write_weights


def build_chain(**options):
    return MatrixChain(dsize=32, num_layers=3, **options)


def check_refused(match, model=None, **options):
    with pytest.raises(TesseraError, match=match):
        PhasedModel(model or build_chain(), **options)


def test_a_budget_smaller_than_the_largest_layer_is_an_error():
    check_refused(
        r"phase 0 \(layers.0\).*4.00 KiB for the largest phase.*raise the budget to 4096 bytes.*8192 to load ahead",
        budget=4000,
        keep=False,
    )
    check_refused("for weights converted after loading", budget=4096, dtype="float16", keep=False)
    check_refused("begin phases at more of its modules: layers.2", budget=5000, phases=["layers.1"])


@pytest.mark.parametrize("schedule", ["sequential", "overlapped", "phased", "data-parallel"])
def test_a_budget_of_the_largest_layer_suffices(schedule):
    model, x = build_chain(), torch.randn(2, 32, 32)
    with PhasedModel(model, budget=4096, schedule=schedule, threads=1) as phased:
        assert phased.working_bytes == 4096
        for _ in range(2):
            assert torch.equal(phased(x), model(x)) or schedule == "data-parallel"


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("unknown schedule.*did you mean phased", {"schedule": "phase"}),
        ("unknown weight store", {"store": "tape"}),
        ("invalid size in bytes", {"budget": "many"}),
        ("invalid size in bytes", {"budget": 0}),
        ("unknown dtype for stored weights", {"dtype": "int16"}),
        ("schedule 'overlapped' runs on one device", {"schedule": "overlapped", "devices": 2}),
        ("invalid number of devices", {"devices": 0}),
        ("invalid number of threads", {"threads": 0}),
        ("cold=True does not support store='host'", {"store": "host", "cold": True}),
        ("`workers` was removed: devices are threads", {"schedule": "phased", "workers": "processes"}),
        ("`activations` was removed: pass fewer mini-batches", {"activations": "1MB"}),
        ("`phases` names no module with weights.*did you mean layers.2", {"phases": ["layers.22"]}),
        ("`phases` is empty", {"phases": []}),
        ("`directory` has no effect, because no file is written", {"store": "host", "directory": "/tmp"}),
        ("does not run on inputs of shape 4x4", {"input_shape": (4, 4)}),
    ],
)
def test_invalid_options_are_errors(match, options):
    check_refused(match, **options)


def test_an_unknown_argument_is_a_type_error():
    with pytest.raises(TypeError, match="unexpected keyword argument 'bugdet'"):
        PhasedModel(build_chain(), bugdet="1MB")


def test_networks_that_cannot_be_streamed_are_errors():
    with pytest.raises(TesseraError, match="num_layers"):
        MatrixChain(num_layers=0)
    check_refused("no weights to stream", nn.ReLU())


def test_a_file_of_another_model_is_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    write_weights(path, build_chain())
    with torch.device("meta"):
        wider, longer, alike = MatrixChain(33, 3), MatrixChain(32, 4), MatrixChain(32, 3)
    check_refused("the shape of layers.0.weight differs", wider, path=path)
    check_refused("layers.3.weight is missing", longer, path=path)
    check_refused("the dtype of .* differs.*float32", alike, path=path, dtype="float16")
    check_refused("no checksums", alike, path=path, checksums=True)
    check_refused("requires a weights file", alike)
    check_refused("the weights file does not exist", alike, path=tmp_path / "none")
    check_refused("already exists.*meta", build_chain(), path=path)
    half = MatrixChain(32, 3)
    half.layers[1].to("meta")
    check_refused("some weights are on the meta device, and others are not", half)


def test_a_call_of_a_closed_model_is_an_error():
    with PhasedModel(build_chain()) as phased:
        pass
    phased.close()
    with pytest.raises(TesseraError, match="closed"):
        phased(torch.randn(1, 32, 32))


def test_errors_of_the_network_are_raised_as_they_are():
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, table):
            return self.layer(x) * table["scale"].value

    with PhasedModel(Asks()) as phased:
        with pytest.raises(TypeError, match="missing 2 required positional arguments"):
            phased()
        with pytest.raises(KeyError):
            phased(torch.randn(2, 4), {})
        with pytest.raises(AttributeError, match="no attribute 'value'"):
            phased(torch.randn(2, 4), {"scale": 2.0})


def test_samples_that_a_network_mixes_are_not_split():
    class Mixes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return torch.softmax(self.layer(x), 0)

    model = Mixes().eval()
    with PhasedModel(model, schedule="data-parallel") as phased, torch.no_grad():
        x = torch.randn(4, 4)
        for _ in range(2):
            assert torch.equal(phased(x), model(x))
        for output, expected in zip(phased.run([x, x + 1]), [model(x), model(x + 1)], strict=True):
            assert torch.equal(output, expected)


class BatchStatisticsNorm(nn.Module):
    """A network with a batch norm that uses the statistics of the current batch, also in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)

    def forward(self, x):
        return self.norm(self.layer(x))


class Product(nn.Module):
    """A network that multiplies its input by a stack of matrices, which moves samples to the second dim."""

    def __init__(self, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape))

    def forward(self, x):
        return torch.matmul(x, self.weight)


class Sum(Product):
    """A network that adds a weight, which may have more dims than the input."""

    def forward(self, x):
        return x + self.weight


class Two(nn.Module):
    """A network that adds two inputs."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, y):
        return self.layer(x) + y


@pytest.mark.parametrize(
    ("model", "shapes"),
    [
        (BatchStatisticsNorm(), [(4, 4)]),
        (Product(2, 4, 4), [(4, 4)]),
        (Product(4), [(4, 4)]),
        (Sum(2, 1, 4), [(4, 4)]),
        (Two(), [(4, 4), (4,)]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_dependent_samples_give_the_right_result(model, shapes):
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with PhasedModel(model.eval(), schedule="data-parallel", threads=1) as phased, torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(phased(*inputs), model(*inputs))
        for output in phased.run([inputs, inputs]):
            torch.testing.assert_close(output, model(*inputs))


@pytest.mark.parametrize(
    ("model", "shapes"),
    [(Product(1, 4, 4), [(4, 3, 4)]), (Product(4, 4), [(4, 4)]), (Sum(3, 1), [(4, 3, 4)]), (Two(), [(4, 4), (4, 4)])],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_independent_samples_are_split(model, shapes, dtype):
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with torch.no_grad():
        expected = model(*inputs)
    with torch.no_grad(), PhasedModel(model, schedule="data-parallel", threads=1, dtype=dtype) as phased:
        for _ in range(2):
            torch.testing.assert_close(phased(*inputs), expected)
        assert {event.device for event in phased.events} == {0, 1}


class Narrowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x)


@pytest.mark.parametrize("schedule", ["sequential", "phased"])
def test_autocast_works_within_a_network_and_around_it(schedule):
    model, x = Narrowing().eval(), torch.randn(2, 4)
    with PhasedModel(model, schedule=schedule, threads=1) as phased, torch.no_grad():
        assert torch.equal(phased(x), model(x))
    model = nn.Linear(4, 4)
    with (
        PhasedModel(model, schedule=schedule, threads=1) as phased,
        torch.no_grad(),
        torch.autocast("cpu", torch.bfloat16),
    ):
        assert phased(x).dtype == torch.bfloat16
        assert torch.equal(phased(x), model(x))


def test_data_dependent_control_flow_is_an_error_when_flops_are_counted():
    class Asks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x / x.max().item())

    model, x = Asks().eval(), torch.rand(2, 4)
    check_refused("cannot count the FLOPs.*without `input_shape`", model, input_shape=(2, 4))
    with torch.no_grad(), PhasedModel(model) as phased:
        assert torch.equal(phased(x), model(x))


def test_a_result_without_a_sample_dim_is_right():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.rand(2, 4))

        def forward(self, x):
            return self.layer(x), self.scale * 2

    model, x = Scaled().eval(), torch.rand(4, 4)
    with torch.no_grad(), PhasedModel(model, schedule="data-parallel", devices=2) as phased:
        for output, expected in zip(phased(x), model(x), strict=True):
            torch.testing.assert_close(output, expected)
        for output, expected in zip(phased.run([x, x]), [model(x)] * 2, strict=True):
            assert all(map(torch.equal, output, expected))
