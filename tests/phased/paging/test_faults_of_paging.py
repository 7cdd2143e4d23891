"""Tests of results that were silently wrong: networks with unusual references, state or writes, against plain torch."""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import gc
import random
import weakref
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.paging.output_comparison import compute_difference
from tests.phased.random_networks import use_one_thread

PAGE = 4096


def open_small(model: nn.Module, schedule: str = "sequential", **options) -> PhasedModel:
    least = PhasedModel.compute_min_budget(model, schedule=schedule, dtype=options.get("dtype"))
    return PhasedModel(model, schedule=schedule, keep=False, threads=1, **{"budget": least} | options)


def count_kept_bytes(phased: PhasedModel) -> int:
    return sum(slot.nbytes for slot in phased._copy.slots.values() if slot.owner is None)


def assert_same(phased: PhasedModel, plain: nn.Module, x: Tensor, passes: int = 3) -> None:
    with use_one_thread(), torch.no_grad():
        for _ in range(passes):
            torch.testing.assert_close(phased(x), plain(x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["bfloat16", "channels_last"])
def test_converted_weights_are_dropped_with_their_phase(kind):
    if kind == "bfloat16":
        model, x = nn.Sequential(*(nn.Linear(32, 32) for _ in range(6))).eval(), torch.randn(2, 32)
        phased = open_small(model, dtype=kind)
    else:
        model = nn.Sequential(*(nn.Conv2d(8, 8, 3, padding=1) for _ in range(6))).eval()
        model, x = model.to(memory_format=torch.channels_last), torch.randn(1, 8, 4, 4)
        phased = open_small(model)
    with phased, torch.no_grad():
        phased(x)
        phased(x)
        assert count_kept_bytes(phased) == 0


def test_only_written_weights_stay_in_memory():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(32, 32) / 8)
            self.register_buffer("count", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return torch.tanh(x @ self.weight) * self.count[0]

    model, x = nn.Sequential(*(Counter() for _ in range(4))).eval(), torch.randn(2, 32)
    with open_small(copy.deepcopy(model)) as phased:
        assert_same(phased, model, x)
        assert count_kept_bytes(phased) <= 4 * 8


class KeepsLists(nn.Module):
    """Weights that are referenced from a list, a dict and a nested tuple as well."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.biases = [layer.bias for layer in self.layers]
        self.table = {"first": (self.layers[0].weight,)}

    def forward(self, x: Tensor) -> Tensor:
        for layer, bias in zip(self.layers, self.biases, strict=True):
            x = torch.tanh(layer(x)) * bias
        return x @ self.table["first"][0]


@pytest.mark.parametrize("schedule", ["sequential", "overlapped"])
def test_weights_in_plain_containers_have_their_values(schedule):
    model, x = KeepsLists().eval(), torch.randn(2, 8)
    with open_small(model, schedule) as phased:
        assert_same(phased, model, x)


@torch.jit.script
def add_scripted(a: Tensor, b: Tensor) -> Tensor:
    return a * b + 1


def test_a_scripted_function_never_computes_with_absent_weights():
    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            weights = list(self.parameters())
            return add_scripted(self.b(x), weights[0].detach())

    model, x = Scripted().eval(), torch.randn(8, 8)
    with open_small(model) as phased, torch.no_grad():
        lazy = next(phased.parameters())
        assert (lazy.device, lazy.is_meta, lazy.is_cpu) == (torch.device("cpu"), False, True)
        try:
            output = phased(x)
        except RuntimeError:
            return
        assert output.is_meta or torch.equal(output, model(x))


def test_tied_weights_are_one_parameter():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    with open_small(model) as phased:
        assert len(list(phased.parameters())) == len(list(model.parameters())) == 5
        assert list(dict(phased.named_parameters())) == list(dict(model.named_parameters()))


class Statistics(nn.Module):
    """Running statistics, a persistent buffer, a scripted child, a view with gaps, and a subclass of a parameter."""

    def __init__(self, *, training: bool = False) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)
        self.register_buffer("offset", torch.randn(8))
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(1, 2)
        self.scripted = torch.jit.script(nn.Linear(8, 8))
        self.gaps = nn.Parameter(torch.randn(8, 16)[:, ::2])
        self.special = SpecialParameter(torch.randn(8))
        self.train(training)

    def forward(self, x: Tensor) -> Tensor:
        return self.scripted(self.norm(self.layer(x)) + self.offset) @ self.gaps * self.special


class SpecialParameter(nn.Parameter):
    """A parameter of a type of its own, which is not streamed."""


@pytest.mark.parametrize("suffix", ["safetensors", "pt"])
@pytest.mark.parametrize("training", [False, True])
def test_a_checkpoint_fills_weights_that_are_not_streamed(tmp_path, suffix, training):
    model, x = Statistics(), torch.randn(4, 8)
    path = tmp_path / f"model.{suffix}"
    state = {name: value.contiguous().clone() for name, value in model.state_dict().items()}
    save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    with PhasedModel.from_pretrained(path, model=Statistics(training=training), budget="1MB") as phased:
        assert_same(phased.eval(), model, x)


def test_a_meta_model_in_training_mode_gets_its_statistics(tmp_path):
    model, x = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), torch.randn(4, 8)
    model(x)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with torch.device("meta"):
        bare = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    with PhasedModel(bare, path=tmp_path / "model.safetensors", budget="1MB") as phased:
        assert_same(phased.eval(), model.eval(), x)


def test_a_checkpoint_without_statistics_is_an_error(tmp_path):
    state = {name: value for name, value in nn.BatchNorm1d(8).state_dict().items() if "running_var" not in name}
    save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(TesseraError, match="running_var"):
        PhasedModel.from_pretrained(tmp_path / "model.safetensors", model=nn.BatchNorm1d(8), budget="1MB")


@dataclasses.dataclass
class Output:
    value: object


def unwrap(output):
    """Return the tensor or array in an output."""
    if isinstance(output, dict):
        [output] = output["y"]
    return output.value if isinstance(output, Output) else output


class Wraps(nn.Module):
    """A network that returns its result in any kind of object."""

    def __init__(self, wrap) -> None:
        super().__init__()
        self.layer, self.wrap = nn.Linear(8, 8), wrap

    def forward(self, x: Tensor) -> object:
        return self.wrap(self.layer(x))


@pytest.mark.parametrize(
    "wrap", [Output, lambda y: y.detach().numpy(), lambda y: {"y": [Output(y)]}, lambda y: y.sum()]
)
def test_data_parallel_returns_whole_batches_in_any_object(wrap):
    model, x = Wraps(wrap).eval(), torch.randn(8, 8)
    with PhasedModel(model, schedule="data-parallel", devices=2, budget="1MB", threads=1, pin=False) as phased:
        for _ in range(3):
            output, expected = unwrap(phased(x)), unwrap(model(x))
            assert output.shape == expected.shape
            torch.testing.assert_close(torch.as_tensor(output), torch.as_tensor(expected), rtol=1e-5, atol=1e-5)


def test_differences_inside_of_objects_are_noticed():
    x = torch.randn(4, 4)
    for wrap in (Output, lambda y: y.numpy(), lambda y: [SimpleNamespace(a=z) for z in (x, y)], lambda y: iter([y])):
        assert compute_difference(wrap(x + 1), wrap(x)) > 0.1
    assert compute_difference(Output(x.numpy()), Output(x.numpy())) == 0
    wide = torch.cat([x * 1e6, x], 1)
    assert compute_difference(wide + torch.tensor([0.0] * 4 + [1.0] * 4), wide, by_feature=True) > 0.1


def test_verification_compares_the_fields_of_objects():
    model, x = Wraps(Output).eval(), torch.randn(2, 8)
    with torch.no_grad(), PhasedModel(model, verify=True) as phased:
        phased(x)
    with torch.no_grad(), PhasedModel(model, verify=True) as phased:
        model.layer.weight.add_(1)
        with pytest.raises(TesseraError, match="differs from the plain network"):
            phased(x)


def test_the_memory_of_the_first_order_is_freed():
    class Reversed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(6))

        def forward(self, x: Tensor) -> Tensor:
            for layer in reversed(self.layers):
                x = torch.tanh(layer(x))
            return x

    model, x = Reversed().eval(), torch.randn(2, 32)
    with open_small(model, "overlapped", budget=5 * PAGE) as phased:
        first = phased._pager
        area = weakref.ref(first._area)
        assert_same(phased, model, x, passes=2)
        assert phased._pager is not first
        gc.collect()
        assert area() is None


SCALE = contextvars.ContextVar("scale", default=1.0)


def test_context_variables_reach_the_devices():
    model, x = Wraps(lambda y: y * SCALE.get()).eval(), torch.randn(2, 8)
    token = SCALE.set(3.0)
    try:
        with PhasedModel(model, schedule="phased", devices=2, budget="1MB", threads=1, pin=False) as phased:
            assert_same(phased, model, x)
    finally:
        SCALE.reset(token)


def open_parallel(model: nn.Module, **options) -> PhasedModel:
    settings = {"schedule": "data-parallel", "devices": 2, "budget": "1MB", "threads": 1, "pin": False}
    return PhasedModel(model, **settings | options)


class MixesByMask(nn.Module):
    """Mixes samples, depending on the values of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.layer(x) + (x * mask[:, None]).sum(0)


def test_data_parallel_does_not_decide_by_values():
    model, x = MixesByMask().eval(), torch.randn(8, 8)
    with open_parallel(model) as phased, torch.no_grad():
        for mask in (torch.zeros(8), torch.zeros(8), torch.ones(8)):
            torch.testing.assert_close(phased(x, mask), model(x, mask))
        assert "not split" in phased.explain()
    with open_parallel(model, independent_samples=True) as phased, torch.no_grad():
        phased(x, torch.ones(8))  # observed
        with pytest.raises(TesseraError, match="not independent"):
            phased(x, torch.ones(8))
    with pytest.raises(TesseraError, match="requires schedule 'data-parallel'"):
        PhasedModel(model, independent_samples=True)


@pytest.mark.parametrize("promised", [False, True])
def test_data_parallel_splits_independent_samples(promised):
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.LayerNorm(8)).eval(), torch.randn(8, 8)
    sizes = []
    with open_parallel(model, independent_samples=promised) as phased, torch.no_grad():
        if promised:
            phased.network[1].register_forward_hook(lambda module, args, output: sizes.append(len(output)))
        for _ in range(3):
            torch.testing.assert_close(phased(x), model(x))
        assert "not split" not in phased.explain()
        assert phased._splitter.reason == ""
        if promised:
            assert sizes[-2:] == [4, 4]
            return
        phased.network[0].register_forward_hook(lambda module, args, output: output.mean(0, keepdim=True) + output)
        model[0].register_forward_hook(lambda module, args, output: output.mean(0, keepdim=True) + output)
        torch.testing.assert_close(phased(x), model(x))
        assert "has changed" in phased._splitter.reason


class Remembers(nn.Module):
    """State of several kinds, which decides the next result."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.second, self.kind = nn.Linear(8, 8), nn.Linear(8, 8), kind
        self.register_buffer("buffer", torch.zeros(8))
        self.plain, self.items, self.last = torch.zeros(8), [torch.zeros(8)], None
        self.deep = SimpleNamespace(inner={"value": torch.zeros(8)})
        self.generator = torch.Generator()

    def forward(self, x: Tensor, remember: bool = True) -> Tensor:
        y = self.first(x)
        if not remember:
            return self.second(y)
        if self.kind == "random":
            return self.second(y * random.random()) * random.random()
        if self.kind == "generator":
            return self.second(y) * torch.rand(8, generator=self.generator)
        state = {
            "buffer": self.buffer,
            "tensor": self.plain,
            "list": self.items[0],
            "deep": self.deep.inner["value"],
            "late": torch.zeros(8) if self.last is None else self.last,
        }[self.kind]
        z = self.second(y + state)
        value = z.detach().mean(0)
        if self.kind in ("tensor", "buffer"):
            state.copy_(value)
        self.items[0], self.last = (value, self.last) if self.kind == "list" else (self.items[0], value)
        self.deep.inner["value"] = value
        return z


@pytest.mark.parametrize("schedule", ["overlapped", "phased", "data-parallel"])
@pytest.mark.parametrize("kind", ["buffer", "tensor", "list", "deep", "late", "random", "generator"])
def test_run_computes_networks_with_any_state_in_order(kind, schedule):
    model = Remembers(kind).eval()
    inputs = [torch.randn(4, 8) for _ in range(4)]
    with open_small(copy.deepcopy(model), schedule) as phased, use_one_thread(), torch.no_grad():
        phased.run([{"x": x, "remember": False} for x in inputs])
        random.seed(3)
        outputs = phased.run(inputs)
        random.seed(3)
        for output, x in zip(outputs, inputs, strict=True):
            torch.testing.assert_close(output, model(x))


def test_a_change_of_state_while_mini_batches_run_together_is_an_error():
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.sums = nn.Linear(8, 8), {}

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                self.sums["last"] = x.sum()
            return self.layer(x) + self.sums.get("last", 0)

    model, x = Late().eval(), -torch.ones(2, 8)
    with open_small(model, "overlapped") as phased, torch.no_grad():
        phased.run([x, x, x])
        with pytest.raises(TesseraError, match="changed its state"):
            phased.run([x, -x, x])


def test_an_attribute_of_one_pass_is_not_shared_by_parallel_mini_batches():
    class Temporary(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.kept = nn.Linear(64, 64), None

        def forward(self, x: Tensor) -> Tensor:
            y = self.kept = self.layer(x)
            for _ in range(20):
                y = torch.tanh(self.layer(y))
            z = y + self.kept
            self.kept = None
            return z

    model, inputs = Temporary().eval(), [torch.randn(16, 64) for _ in range(4)]
    with open_parallel(model) as phased, torch.no_grad():
        for _ in range(3):
            for output, x in zip(phased.run(inputs), inputs, strict=True):
                torch.testing.assert_close(output, model(x))
        assert set(phased._stateless.values()) == {False}


def test_run_in_inference_mode_with_an_assigned_buffer():
    class Assigns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.register_buffer("last", torch.zeros(8), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            self.last = self.layer(x).mean(0) + self.last
            return self.layer(x) + self.last

    model, inputs = Assigns().eval(), [torch.randn(4, 8) for _ in range(3)]
    with open_small(copy.deepcopy(model), "overlapped") as phased, torch.inference_mode():
        for output, x in zip(phased.run(inputs), inputs, strict=True):
            torch.testing.assert_close(output, model(x))


class Writes(nn.Module):
    """Writes into weights and buffers in ways that do not change their version, or when other phases run."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.layers = kind, nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.register_buffer("all", torch.randn(64 * 300, 8) if kind == "views" else torch.ones(8))
        self.register_buffer("top", self.all[:4] if kind == "views" else torch.ones(8))
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        kept = self.top
        x = self.norm(x)
        if self.kind == "data":
            self.top.data.mul_(0.5)
        if self.kind == "parameter":
            self.layers[0].weight.data.mul_(0.5)
        if self.kind == "views":
            self.all.mul_(0.9)
        for layer in self.layers:
            x = layer(x)
        if self.kind == "late":
            kept.copy_(x.detach().mean(0))
        return x * self.top[:4].sum()


@pytest.mark.parametrize("store", ["disk", "mapped"])
@pytest.mark.parametrize("kind", ["data", "parameter", "views", "late", "norm"])
def test_writes_without_a_version_are_kept(kind, store):
    model, x = Writes(kind).eval(), torch.randn(4, 8)
    with open_small(copy.deepcopy(model), "overlapped", store=store) as phased:
        if kind == "norm":
            model.norm.train()
            phased.network.norm.train()
        assert_same(phased, model, x, passes=4)
        if kind == "norm":
            model.eval()
            phased.network.norm.eval()
            assert_same(phased, model, x)


def test_changes_of_attributes_reach_the_network():
    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(8, 8), 1.0
            self.register_buffer("offset", torch.zeros(8))

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x) * self.scale + self.offset
            self._buffers.update(offset=self.offset + 1)
            return y

    model, x = Scales().eval(), torch.randn(2, 8)
    with open_small(copy.deepcopy(model)) as phased:
        assert_same(phased, model, x)
        model.scale = phased.scale = 3.0
        assert_same(phased, model, x)
        names: list[str] = []
        phased.apply(lambda module: names.append(type(module).__name__))
        assert names == ["Linear", "PhasedModel"]
        assert [name for name, _ in phased.named_children()] == ["layer"]
        table = phased.network.layer._parameters
        assert torch.equal(table.pop("bias"), model.layer.bias)
        assert list(table) == ["weight"]


@pytest.mark.parametrize("store", ["disk", "mapped"])
def test_a_view_that_is_written_keeps_its_values(store):
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.state = nn.Parameter(torch.zeros(8))
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))

        def forward(self, x: Tensor) -> Tensor:
            view = self.state[:]
            with torch.no_grad():
                view.add_(1)
            for layer in self.layers:
                x = layer(x)
            return x + view

    model, x = Views().eval(), torch.randn(2, 8)
    with open_small(copy.deepcopy(model), store=store) as phased:
        assert_same(phased, model, x)


def test_methods_that_never_call_the_network_end_the_learning():
    class Decodes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def decode(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    model, x = Decodes().eval(), torch.randn(2, 8)
    with open_small(model, "overlapped") as phased, torch.no_grad():
        for _ in range(40):
            assert torch.equal(phased.decode(x), model.decode(x))
        assert not phased._pager.learning
        assert phased._timeline._events.maxlen


def test_functions_that_use_modules_of_the_original_are_refused():
    class Closes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)
            self.function = lambda x: self.layer(x)

        def forward(self, x: Tensor) -> Tensor:
            return self.function(x)

    with pytest.raises(TesseraError, match="refers to a module of the original network"):
        PhasedModel(Closes())


def test_a_compiled_network_uses_the_loaded_weights():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).eval(), torch.randn(2, 8)
    plain = copy.deepcopy(model)
    with open_small(torch.compile(model, backend="eager")) as phased:
        with torch.no_grad():
            model[0].weight.zero_()
        assert_same(phased, plain, x)
