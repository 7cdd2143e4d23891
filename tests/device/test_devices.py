"""Tests of the interface of devices, on the CPU and on the device for tests, with the mistakes that it prevents."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

from tessera.device import CPU, check_available, list_devices, open_device, parse_device
from tessera.errors import TesseraError
from tests.device.standin.build import find_missing, make_environment
from tests.device.standin.runner import on_standin
from tests.device.test_standin import MILLISECOND, configure


@pytest.mark.parametrize("text", ["", "cuda:", "cuda:-1", "cuda:x", "0", "cpu:0", "a b"])
def test_an_invalid_name_is_an_error(text):
    with pytest.raises(TesseraError, match="invalid device name"):
        parse_device(text)


def test_the_cpu_is_a_device():
    device = open_device("cpu")
    start = device.mark_time()
    time.sleep(0.01)
    end = device.mark_time()
    assert device.compute_seconds(start, end) >= 0.01
    with device.use_stream(device.make_stream()):
        target = torch.zeros(3)
        device.submit_copy(torch.ones(3), target)
    device.synchronize()
    assert target.tolist() == [1, 1, 1]
    assert (device.name, device.asynchronous, device.supports_dtype(torch.float64)) == ("cpu", False, True)
    assert device.read_memory() is None
    device.flush_cache()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
def test_a_device_that_torch_does_not_support_is_an_error_that_says_what_to_do():
    with pytest.raises(TesseraError, match=r"no such device: got 'cuda:0'; allowed: cpu; torch .* install its build"):
        open_device("cuda")
    assert list_devices() == [CPU]
    check_available(["cpu"])


@on_standin
def test_a_device_that_does_not_exist_is_an_error_that_lists_the_devices():
    for name in ("standin:2", "cuda"):
        with pytest.raises(TesseraError, match=f"got '{parse_device(name)}'; allowed: cpu, standin:0, standin:1"):
            open_device(name)


@on_standin
def test_description_and_dtypes():
    device = open_device("standin:1")
    description = device.describe()
    assert (description.name, description.model) == ("standin:1", "Stand-in device for tests")
    assert description.memory_bytes == 1 << 30
    assert torch.empty(1, device="standin").device == device.torch_device  # the opened device is the current one
    assert device.supports_dtype(torch.float64)


@pytest.mark.skipif(bool(find_missing()), reason=find_missing() or "the device for tests is there")
def test_a_dtype_that_the_device_lacks_is_noticed():
    program = "import torch; from tessera.device import open_device; d = open_device('standin')\n"
    program += "print(d.supports_dtype(torch.float64), d.supports_dtype(torch.float32))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=make_environment(lacks_float64=1), capture_output=True, text=True
    )
    assert done.stdout.split() == ["False", "True"], done.stderr


@on_standin
def test_importing_parsing_and_listing_initialise_nothing():
    import tessera_standin

    import tessera.device.accelerator
    import tessera.operators.bench

    assert tessera.device.accelerator
    assert tessera.operators.bench
    assert parse_device("standin:1") in list_devices()
    assert not tessera_standin.is_initialised()
    open_device("standin")
    assert tessera_standin.is_initialised()


@on_standin
def test_initialising_before_a_fork_is_an_error_in_the_child():
    from tessera.launch.fresh import FreshProcess

    with FreshProcess() as child:  # forked before: the child can use the device
        open_device("standin")
        assert child.call("tests.device.test_devices:add_on_device", 1.0) == 2.0
    with FreshProcess() as child, pytest.raises(TesseraError, match="was initialised before this process was forked"):
        child.call("tests.device.test_devices:add_on_device", 1.0)


def add_on_device(value: float) -> float:
    device = open_device("standin")
    return float(torch.tensor(value, device=device.torch_device) + 1)


@on_standin
def test_the_clock_of_the_host_is_right_only_after_synchronising():
    device = open_device("standin")
    there = torch.ones(8, device=device.torch_device)
    there += 1
    device.synchronize()
    configure(operator_ns=400 * MILLISECOND)

    def read_clock(*, synchronize: bool) -> float:
        start = time.perf_counter()
        there.add_(1)
        if synchronize:
            device.synchronize()
        seconds = time.perf_counter() - start
        device.synchronize()
        return seconds

    assert read_clock(synchronize=True) > 0.39
    assert read_clock(synchronize=False) < 0.2  # the mistake


@on_standin
def test_marks_on_the_wrong_stream_do_not_measure_the_work():
    device = open_device("standin")
    there = torch.ones(8, device=device.torch_device)
    other = device.make_stream()
    there += 1
    device.synchronize()
    configure(operator_ns=400 * MILLISECOND)
    start, wrong_start = device.mark_time(), device.mark_time(other)
    there += 1
    end, wrong_end = device.mark_time(), device.mark_time(other)
    device.synchronize()
    assert device.compute_seconds(start, end) == pytest.approx(0.4, rel=0.2)
    assert device.compute_seconds(wrong_start, wrong_end) < 0.2  # the mistake


@pytest.mark.parametrize("waits", [True, False])
@on_standin
def test_a_pinned_buffer_is_changed_only_after_its_copy(waits):
    device = open_device("standin")
    buffer = device.allocate_host((1000,), torch.float32)
    targets = [torch.zeros(1000, device=device.torch_device) for _ in range(3)]
    device.synchronize()
    configure(copy_bytes_per_second=40_000)  # 0.1 s per copy
    for number, target in enumerate(targets):
        buffer.fill_(number)
        device.submit_copy(buffer, target)
        if waits:
            device.wait_for(device.mark_time())
    device.synchronize()
    configure(copy_bytes_per_second=0)
    copied = [target.cpu().unique().tolist() for target in targets]
    assert (copied == [[0], [1], [2]]) == waits


@pytest.mark.parametrize("waits", [True, False])
@on_standin
def test_the_host_reads_a_pinned_buffer_only_after_its_copy(waits):
    device = open_device("standin")
    buffer = device.allocate_host((1000,), torch.float32).fill_(-1)
    source = torch.ones(1000, device=device.torch_device)
    device.synchronize()
    configure(copy_bytes_per_second=8_000)  # 0.5 s
    device.submit_copy(source, buffer)
    if waits:
        device.wait_for(device.mark_time())
    assert (buffer.unique().tolist() == [1]) == waits
    device.synchronize()


@pytest.mark.parametrize("waits", [True, False])
@on_standin
def test_another_stream_computes_only_after_the_copy(waits):
    device = open_device("standin")
    buffer = device.allocate_host((1000,), torch.float32).fill_(1)
    target = torch.zeros(1000, device=device.torch_device)
    copies = device.make_stream()
    _ = target * 2
    device.synchronize()
    configure(copy_bytes_per_second=8_000)  # 0.5 s
    with device.use_stream(copies):
        device.submit_copy(buffer, target)
        copied = device.mark_time()
    if waits:
        device.delay_stream(None, copied)
    result = target * 2
    device.synchronize()
    configure(copy_bytes_per_second=0)
    assert (result.cpu().unique().tolist() == [2]) == waits


@pytest.mark.parametrize("keeps", [True, False])
@on_standin
def test_freed_memory_is_reused_only_after_the_work_of_another_stream(keeps):
    device = open_device("standin")
    buffer = device.allocate_host((1000,), torch.float32)
    other = device.make_stream()
    source = torch.ones(1000, device=device.torch_device)
    address = source.data_ptr()
    device.synchronize()
    configure(copy_bytes_per_second=8_000)  # 0.5 s
    with device.use_stream(other):
        torch.ones(1000, device=device.torch_device)
        device.submit_copy(source, buffer)
        late = device.allocate_host((1000,), torch.float32)
        device.submit_copy(source, late)
    if keeps:
        device.keep_for(source, other)
    del source
    overwriting = torch.zeros(1000, device=device.torch_device)
    assert (overwriting.data_ptr() != address) == keeps
    device.synchronize()
    assert (late.unique().tolist() == [1]) == keeps


@on_standin
def test_peer_copies_are_ordered_with_both_devices():
    torch.manual_seed(int(os.environ.get("SEED", "0")))
    values = torch.randn(1000)
    configure(operator_ns=20 * MILLISECOND)
    one = values.to("standin:0") * 2
    other = one.to("standin:1") + 1
    assert torch.equal(other.cpu(), values * 2 + 1)
    assert other.device.index == 1
