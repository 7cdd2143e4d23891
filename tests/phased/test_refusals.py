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
        r"phase 0 \(layers.0\).*2 buffers of 4.00 KiB.*raise the budget to 8192 bytes", budget=5000, keep=False
    )
    check_refused(r"1 buffer of 4.00 KiB", budget=4000, schedule="sequential")
    check_refused("for weights widened to float32", budget=8192, dtype="float16", keep=False)
    check_refused("begin phases at more of its modules: layers.2", budget=9000, phases=["layers.1"])


@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("unknown schedule.*did you mean phased", {"schedule": "phase"}),
        ("unknown weight store", {"store": "tape"}),
        ("unknown kind of workers", {"workers": "fibres"}),
        ("invalid size in bytes", {"budget": "many"}),
        ("invalid size in bytes", {"budget": 0}),
        ("unknown dtype for stored weights", {"dtype": "int8"}),
        ("schedule 'overlapped' runs on one device", {"schedule": "overlapped", "devices": 2}),
        ("invalid number of devices", {"devices": 0}),
        ("invalid number of threads", {"threads": 0}),
        ("read cold", {"store": "host", "cold": True}),
        (
            "schedule 'overlapped' does not support workers='processes'.*'phased' or 'sharded'",
            {"schedule": "overlapped", "workers": "processes"},
        ),
        ("`phases` names no module with weights.*did you mean layers.2", {"phases": ["layers.22"]}),
        ("`phases` is empty", {"phases": []}),
        ("`directory` has no effect, because no file is written", {"store": "host", "directory": "/tmp"}),
        ("does not run on inputs of shape 4x4", {"input_shape": (4, 4)}),
    ],
)
def test_invalid_options_are_errors(match, options):
    check_refused(match, **options)


def test_networks_that_cannot_be_streamed_are_errors():
    with pytest.raises(TesseraError, match="num_layers"):
        MatrixChain(num_layers=0)
    check_refused("no weights to stream", nn.ReLU())
    check_refused("evaluation mode.*eval", nn.Sequential(nn.Linear(2, 2), nn.Dropout()))

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)

        def forward(self, x):
            return self.layer(x) if x.sum() > 0 else x

    check_refused("torch.fx cannot trace Branches", Branches())


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


def test_arguments_are_bound_as_python_would():
    with PhasedModel(build_chain()) as phased, pytest.raises(TesseraError, match="missing a required argument"):
        phased()


def test_an_error_inside_a_phase_is_reported():
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
def test_a_model_that_cannot_be_copied_is_an_error():
    check_refused(
        "Sequential cannot be copied.*remove_weight_norm", nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)))
    )


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
        with pytest.raises(
            TesseraError,
            match=r"cannot split the samples of a batch over 2 devices: softmax \(softmax\) may mix samples",
        ):
            phased(x)
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
    ("model", "shapes", "says"),
    [
        (BatchStatisticsNorm(), [(4, 4)], r"norm \(BatchNorm1d\) may mix samples"),
        (Product(2, 4, 4), [(4, 4)], "matmul combines values of 2 and 3 dims"),
        (Product(4), [(4, 4)], "matmul combines values of 1 and 2 dims"),
        (Sum(2, 1, 4), [(4, 4)], "add combines values of 2 and 3 dims"),
        (Two(), [(4, 4), (4,)], "add combines values of 1 and 2 dims"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_dependent_samples_are_not_split(model, shapes, says):
    inputs = tuple(torch.randn(shape) for shape in shapes)
    with PhasedModel(model.eval(), schedule="data-parallel", threads=1) as phased, torch.no_grad():
        with pytest.raises(TesseraError, match=f"cannot split the samples of a batch over 2 devices: {says}"):
            phased(*inputs)
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
    converted = [x.to(getattr(torch, dtype)) for x in inputs]
    with PhasedModel(model, schedule="data-parallel", threads=1, dtype=dtype) as phased:
        torch.testing.assert_close(phased(*converted).float(), expected)
        assert {event.device for event in phased.events} == {0, 1}


class Narrowing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.layer(x)


def test_autocast_works_within_a_network_and_is_an_error_around_it():
    check_refused("uses torch.autocast", Narrowing().eval())
    with (
        PhasedModel(build_chain(), schedule="sequential") as phased,
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(TesseraError, match=r"does not support torch\.autocast"),
    ):
        phased(torch.randn(2, 32, 32))


def test_a_layer_that_writes_into_its_own_weight_is_an_error():
    check_refused("writes into its weight", nn.Sequential(nn.Embedding(8, 4, max_norm=1.0), nn.Linear(4, 4)).eval())


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


def test_a_result_without_a_sample_dim_cannot_be_split():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.rand(2, 4))

        def forward(self, x):
            return self.layer(x), self.scale * 2

    model, x = Scaled().eval(), torch.rand(4, 4)
    with torch.no_grad(), PhasedModel(model, schedule="data-parallel", devices=2) as phased:
        with pytest.raises(TesseraError, match="does not depend on the samples"):
            phased(x)
        for output, expected in zip(phased.run([x, x]), [model(x)] * 2, strict=True):
            assert all(map(torch.equal, output, expected))
