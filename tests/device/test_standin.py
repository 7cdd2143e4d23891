"""Tests of the device for tests: it behaves like an accelerator, so that mistakes with accelerators are seen."""

from __future__ import annotations

import copy
import ctypes
import os
import signal
import time

import pytest
import torch
from torch import nn

from tessera.device import list_devices, open_device
from tests.device.standin.runner import on_standin

MILLISECOND = 1_000_000


def configure(**values: int) -> None:
    from tessera_standin import configure

    configure(**values)


@on_standin
def test_torch_finds_two_devices_and_initialises_none():
    import tessera_standin

    assert list_devices() == ["cpu", "standin:0", "standin:1"]
    assert not tessera_standin.is_initialised()
    torch.empty(1, device="standin")
    assert tessera_standin.is_initialised()


@pytest.mark.parametrize("seed", range(3))
@on_standin
def test_networks_agree_with_the_cpu_forward_and_backward(seed):
    torch.manual_seed(seed)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(4 * 16 * 16, 10),
        nn.LogSoftmax(dim=1),
    )
    images = torch.randn(2, 3, 16, 16, requires_grad=True)
    other, others = copy.deepcopy(network).to("standin:1"), images.detach().to("standin:1").requires_grad_()
    for net, inputs in ((network, images), (other, others)):
        nn.functional.nll_loss(net(inputs), torch.tensor([1, 7], device=inputs.device)).backward()
    torch.testing.assert_close(others.grad.cpu(), images.grad)
    for (name, want), got in zip(network.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(got.cpu(), want, msg=name)
    for want, got in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(got.grad.cpu(), want.grad)


@on_standin
def test_results_whose_shape_depends_on_values():
    values = torch.tensor([3.0, 0.0, 5.0, 3.0])
    there = values.to("standin")
    assert torch.nonzero(there).cpu().tolist() == torch.nonzero(values).tolist()
    assert there[there > 1].cpu().tolist() == [3, 5, 3]
    assert [part.cpu().tolist() for part in torch.unique(there, return_counts=True)] == [[0, 3, 5], [1, 2, 1]]
    assert torch.equal(there, there.clone())
    out = torch.empty(0, device="standin")
    torch.masked_select(there, there > 1, out=out)
    assert out.cpu().tolist() == [3, 5, 3]


@on_standin
def test_conjugated_and_negated_views_are_copied_with_their_values():
    values = torch.randn(5, dtype=torch.complex64)
    there = values.to("standin")
    for view in (torch.conj, torch.imag, lambda tensor: tensor.conj().imag):
        want = view(values).resolve_conj().resolve_neg()
        assert torch.equal(view(there).clone().cpu().resolve_conj().resolve_neg(), want)
        assert torch.equal(view(there).cpu().resolve_conj().resolve_neg(), want)
        assert torch.equal((view(there) * 2).cpu(), want * 2)
    torch.testing.assert_close(torch.fft.hfft(there).cpu(), torch.fft.hfft(values))


@on_standin
def test_wrong_arguments_raise_the_errors_of_the_cpu():
    one, other = torch.ones(2, 3, device="standin"), torch.ones(4, 5, device="standin")
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        one @ other
    with pytest.raises(RuntimeError, match="same device"):
        one + torch.ones(2, 3, device="standin:1")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device="standin:2")


@on_standin
def test_the_host_cannot_read_device_memory():
    there = torch.ones(4, device="standin")
    torch.accelerator.synchronize()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        ctypes.string_at(there.data_ptr(), 4)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGSEGV


@on_standin
def test_calls_return_before_their_work_is_done():
    device = open_device("standin")
    there = torch.ones(8, device="standin")
    there += 1
    device.synchronize()
    configure(operator_ns=500 * MILLISECOND)
    start = time.perf_counter()
    there += 1
    returned = time.perf_counter() - start
    device.synchronize()
    taken = time.perf_counter() - start
    assert returned < 0.25, returned
    assert taken > 0.49, taken


@on_standin
def test_events_measure_the_set_duration_and_streams_run_side_by_side():
    device = open_device("standin")
    left, right = torch.ones(8, device="standin"), torch.ones(8, device="standin")
    stream = device.make_stream()
    left += 1
    device.synchronize()
    configure(operator_ns=200 * MILLISECOND)
    begin = device.mark_time()
    device.delay_stream(stream, begin)
    for _ in range(2):
        left += 1
    with device.use_stream(stream):
        right += 1
        side = device.mark_time()
    end = device.mark_time()
    device.synchronize()
    assert device.compute_seconds(begin, end) == pytest.approx(0.4, rel=0.1)
    assert device.compute_seconds(begin, side) == pytest.approx(0.2, rel=0.1)


@on_standin
def test_an_error_in_the_queue_is_raised_by_the_next_synchronisation():
    table = torch.zeros(3, device="standin")
    bad = torch.tensor([7], device="standin")
    table.index_select(0, bad)  # the shape is known, the wrong index is seen when the operator runs
    with pytest.raises(RuntimeError, match="asynchronous error on standin:0"):
        torch.accelerator.synchronize()


@on_standin
def test_memory_is_counted_limited_and_reused():
    device = open_device("standin")
    device.reset_peak_memory()
    before = device.read_memory().current
    one = torch.empty(1024, device="standin")
    assert device.read_memory().current - before == 4096
    del one
    memory = device.read_memory()
    assert (memory.current - before, memory.peak - before) == (0, 4096)
    configure(memory_bytes=1 << 20)
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 20, device="standin")
    assert torch.empty(1024, device="standin").shape == (1024,)


@on_standin
def test_random_numbers_follow_the_seed():
    draws = []
    for _ in range(2):
        torch.manual_seed(5)
        draws.append([torch.randn(4, device="standin").cpu(), torch.rand(3, device="standin:1").cpu()])
    assert all(torch.equal(one, other) for one, other in zip(*draws, strict=True))
    assert not torch.equal(draws[0][0], torch.randn(4, device="standin").cpu())


@on_standin
def test_a_lost_device_raises():
    there = torch.ones(3, device="standin:1")
    configure(lost_device=1)
    with pytest.raises(torch.AcceleratorError, match="device lost"):
        there + 1
