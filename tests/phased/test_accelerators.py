"""Tests of weights that are streamed to an accelerator, on the device for tests, with the mistakes that it prevents."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased import PhasedModel, write_weights
from tessera.phased.activations import hand_over_activations
from tessera.phased.memory.device_area import DeviceTarget
from tests.device.standin.runner import on_standin
from tests.device.test_standin import configure

pytestmark = pytest.mark.timeout(120)
FIRST, SECOND = "standin:0", "standin:1"


class Blocks(nn.Module):
    """Residual blocks with a buffer that stays in memory, and keyword arguments."""

    def __init__(self, width: int = 64, count: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)
        self.register_buffer("shift", torch.randn(width), persistent=False)

    def forward(self, x, *, scale):
        for layer in self.layers:
            x = x + torch.tanh(layer(self.norm(x))) * scale
        return {"logits": self.head(x + self.shift), "state": x}


def draw_case(seed=None):
    seed = random.randrange(1 << 30) if seed is None else seed
    print("seed", seed)
    torch.manual_seed(seed)
    return Blocks().eval(), [{"x": torch.randn(3, 64), "scale": torch.rand(1)} for _ in range(4)]


def count_errors(network, batches, outputs):
    """Return the number of outputs that differ from the network on the CPU."""
    count = 0
    for batch, output in zip(batches, outputs, strict=True):
        for name, expected in network(**batch).items():
            count += not torch.allclose(output[name].cpu(), expected, rtol=1e-5, atol=1e-6)
    return count


def run_batches(network, batches, copy_bytes_per_second=50_000_000, **options):
    """Return the number of wrong outputs of all mini-batches twice, on a slow device and without a synchronisation."""
    size = sum(weight.nbytes for weight in network.parameters())
    with torch.no_grad(), PhasedModel(network, budget=size // 2, phases=None, **options) as phased:
        configure(operator_ns=200_000, copy_bytes_per_second=copy_bytes_per_second)
        outputs = [phased(**batch) for batch in (*batches, *batches)]
        errors = count_errors(network, [*batches, *batches], outputs)
        assert outputs[0]["logits"].device.type == "standin"
        return errors


@pytest.mark.parametrize("schedule", ["sequential", "overlapped", "resident"])
@pytest.mark.parametrize("store", ["disk", "cold", "host"])
@on_standin
def test_outputs_equal_those_of_the_cpu(schedule, store):
    network, batches = draw_case()
    options = {"cold": True} if store == "cold" else {"store": store}
    assert run_batches(network, batches, schedule=schedule, device=FIRST, **options) == 0


@pytest.mark.parametrize("schedule", ["phased", "sharded"])
@pytest.mark.parametrize("store", ["disk", "host"])
@on_standin
def test_two_devices_in_turns(schedule, store):
    network, batches = draw_case()
    assert run_batches(network, batches, schedule=schedule, device=(FIRST, SECOND), store=store) == 0


@pytest.mark.parametrize("schedule", ["overlapped", "phased", "sharded"])
@on_standin
def test_several_mini_batches_pass_through_a_phase(schedule):
    network, batches = draw_case()
    with torch.no_grad(), PhasedModel(network, budget="64KB", schedule=schedule, device=FIRST) as phased:
        configure(operator_ns=100_000)
        for _ in range(3):
            assert count_errors(network, batches, phased.run(batches)) == 0


@on_standin
def test_weights_that_are_converted():
    network, batches = draw_case()
    rounded = Blocks().eval()
    rounded.load_state_dict({name: value.half().float() for name, value in network.state_dict().items()})
    rounded.shift = network.shift
    with torch.no_grad(), PhasedModel(network, budget="64KB", dtype="float16", device=FIRST) as phased:
        configure(operator_ns=100_000, copy_bytes_per_second=50_000_000)
        outputs = [phased(**batch) for batch in batches]
        assert count_errors(rounded, batches, outputs) == 0


@on_standin
def test_weights_that_the_network_writes_are_kept():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = torch.tanh(layer(x))
            self.layers[0].weight.data.mul_(0.5)
            return x

    network = Counting().eval()
    x = torch.randn(2, 32)
    with torch.no_grad(), PhasedModel(network, budget="12KB", device=FIRST) as phased:
        for _ in range(4):
            assert torch.allclose(phased(x).cpu(), network(x), atol=1e-6)


@on_standin
def test_memory_of_the_device_stays_within_the_budget():
    network = nn.Sequential(*(nn.Linear(256, 256) for _ in range(12))).eval()
    budget = sum(weight.nbytes for weight in network.parameters()) // 4
    x = torch.randn(1, 256)
    from tessera.device import open_device

    device = open_device(FIRST)
    with torch.no_grad(), PhasedModel(network, budget=budget, device=FIRST) as phased:
        device.reset_peak_memory()
        for _ in range(3):
            assert torch.allclose(phased(x).cpu(), network(x), atol=1e-5)
        memory = device.read_memory()
        assert memory is not None
        assert memory.peak <= budget + (64 << 10)
    assert device.read_memory().current <= 16 << 10, device.read_memory()


@on_standin
def test_phases_that_are_larger_than_those_of_the_first_plan():
    network, batches = draw_case()
    with (
        torch.no_grad(),
        PhasedModel(network, budget="1MB", keep=False, phases=range(8), device=FIRST) as phased,
        PhasedModel(network, budget="1MB", keep=False, phases=[0, 5]) as coarse,
    ):
        configure(operator_ns=100_000, copy_bytes_per_second=50_000_000)
        assert count_errors(network, batches, [phased(**batch) for batch in batches]) == 0
        largest = max(phase.bytes for phase in phased.phases)
        phased.adopt_phases(coarse)
        assert max(phase.bytes for phase in phased.phases) > 2 * largest
        assert count_errors(network, batches, [phased(**batch) for batch in batches]) == 0


@pytest.mark.parametrize("schedule", ["sequential", "overlapped", "phased"])
@pytest.mark.parametrize("store", ["disk", "host"])
@on_standin
def test_every_pass_loads_all_phases_without_keep(schedule, store):
    network = nn.Sequential(*(nn.Linear(64, 64) for _ in range(6))).eval()
    options = {"budget": "1MB", "keep": False, "phases": [0, 3], "schedule": schedule}
    with torch.no_grad(), PhasedModel(network, device=FIRST, store=store, **options) as phased:
        configure(operator_ns=100_000, copy_bytes_per_second=50_000_000)
        loads = Counter()
        for x in torch.randn(3, 2, 64):
            assert torch.allclose(phased(x).cpu(), network(x), atol=1e-6)
            loads.update(event.phase for event in phased.events if event.kind == "load")
        assert loads == {0: 3, 1: 3}, loads


@pytest.mark.parametrize("store", ["disk", "host"])
@on_standin
def test_a_flipped_bit_is_detected_by_checksums(store, tmp_path):
    path, x = tmp_path / "weights.safetensors", torch.randn(2, 64)
    network = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))).eval()
    write_weights(path, network, checksums=True)

    def run():
        skeleton = nn.Sequential(*(nn.Linear(64, 64, device="meta") for _ in range(4))).eval()
        options = {"store": store, "device": FIRST, "budget": "64KB", "checksums": True}
        with torch.no_grad(), PhasedModel(skeleton, path=path, **options) as phased:
            return phased(x).cpu()

    with torch.no_grad():
        assert torch.allclose(run(), network(x), atol=1e-6)
    data = bytearray(path.read_bytes())
    start = data.index(network[2].weight.detach().numpy().tobytes())
    data[start + 100] ^= 1
    path.write_bytes(data)
    with pytest.raises(TesseraError, match=r"2\.weight has a wrong checksum"):
        run()


@on_standin
def test_automatic_budget_is_half_of_the_free_memory_of_the_devices():
    from tessera.device.accelerator import AcceleratorDevice

    network = nn.Linear(4, 4)
    configure(memory_bytes=64 << 20)
    with PhasedModel(network, budget="auto", device=FIRST) as phased:
        assert 30 << 20 <= phased.budget <= 32 << 20
    with PhasedModel(network, budget="auto", device=(FIRST, SECOND), schedule="phased") as phased:
        assert 60 << 20 <= phased.budget <= 64 << 20
    AcceleratorDevice.read_free_memory = lambda self: None  # a backend without figures; in a process of its own
    with pytest.raises(TesseraError, match="budget='auto' requires a device that reports its free memory"):
        PhasedModel(network, budget="auto", device=FIRST)


@on_standin
def test_results_that_are_written_into_tensors_of_another_device():
    x = torch.randn(5, 7)
    first, expected = x.to(FIRST), x.max(1)
    values, indices = torch.zeros(5, device=SECOND), torch.zeros(5, dtype=torch.int64, device=SECOND)
    hand_over_activations(torch.max)(first, 1, out=(values, indices))
    assert torch.equal(values.cpu(), expected.values)
    assert torch.equal(indices.cpu(), expected.indices)
    with pytest.raises(TesseraError, match="writes into tensors of several devices"):
        hand_over_activations(torch.max)(first, 1, out=(values, indices.to(FIRST)))
    with pytest.raises(TesseraError, match="writes into tensors of several devices"):
        hand_over_activations(torch._foreach_add_)([first, values], 1.0)


@on_standin
def test_a_missing_wait_for_the_copy_would_be_seen():
    network, batches = draw_case()
    DeviceTarget.finish_load = lambda self, block: None  # in a process of its own
    assert run_batches(network, batches, copy_bytes_per_second=2_000_000, device=FIRST, keep=False) > 0


@on_standin
def test_a_buffer_that_is_overwritten_too_early_would_be_seen():
    network, batches = draw_case()
    submit = DeviceTarget._submit_copies

    def submit_without_waiting(self, block, parts):
        block.free_mark = self.device.mark_time(self.copy_stream)
        submit(self, block, parts)

    DeviceTarget._submit_copies = submit_without_waiting
    size = sum(weight.nbytes for weight in network.parameters())
    with torch.no_grad(), PhasedModel(network, budget=size // 2, device=FIRST, keep=False, store="host") as phased:
        configure(operator_ns=2_000_000)  # copies take no time
        outputs = [phased(**batch) for batch in batches]
        assert count_errors(network, batches, outputs) > 0


@on_standin
def test_a_pinned_buffer_that_is_refilled_too_early_would_be_seen():
    network, batches = draw_case()
    from tessera.device.accelerator import AcceleratorDevice

    AcceleratorDevice.wait_for = lambda self, mark: None
    assert run_batches(network, batches, copy_bytes_per_second=2_000_000, device=FIRST, keep=False) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": "mapped"}, "store='mapped' is not supported on an accelerator"),
        ({"dtype": "int8"}, "dtype='int8' is not supported"),
        ({"schedule": "data-parallel"}, "schedule='data-parallel' is not supported"),
        ({"memory_limit": "200GB"}, "`memory_limit` is not supported"),
        ({"verify": True}, "`verify` is not supported"),
        ({"schedule": "phased", "device": (FIRST,)}, "the number of names in `device` differs"),
        ({"device": "standin:7"}, "no such device: got 'standin:7'"),
        ({"device": "cpu"}, "`device` is an accelerator: got 'cpu'"),
    ],
)
@on_standin
def test_unsupported_options_are_errors(options, message):
    with pytest.raises(TesseraError, match=message):
        PhasedModel(nn.Linear(4, 4), **{"device": FIRST, **options})
