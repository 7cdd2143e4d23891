"""Tests of device threads: they are pinned, have their own number of torch threads, and affect no other threads."""

from __future__ import annotations

import os
import threading

import pytest
import torch

from tessera.phased.devices.threads import DeviceThreads


@pytest.mark.timeout(30)
def test_devices_are_pinned_and_the_caller_is_not():
    before = os.sched_getaffinity(0), torch.get_num_threads(), set(threading.enumerate())
    devices = DeviceThreads(2, 1)
    places = [devices.submit(number, os.sched_getaffinity, 0).result() for number in range(2)]
    assert [devices.submit(number, torch.get_num_threads).result() for number in range(2)] == [1, 1]
    assert all(len(place) == 1 for place in places)
    if len(before[0]) > 1:
        assert places[0] != places[1]
    with pytest.raises(ZeroDivisionError):
        devices.submit(0, divmod, 1, 0).result()
    devices.close()
    free = DeviceThreads(2, 1, pin=False)
    assert [free.submit(number, os.sched_getaffinity, 0).result() for number in range(2)] == [before[0]] * 2
    free.close()
    assert (os.sched_getaffinity(0), torch.get_num_threads(), set(threading.enumerate())) == before
