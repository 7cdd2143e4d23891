"""Times of asynchronous calls: by marks on the device, and beside them the host time per launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from tessera.device.device import ComputeDevice

AUTO = "auto"  # as many calls in flight as the sampler puts into a sample
InFlight = int | str
LAUNCH_BOUND_SHARE = 0.9  # a launch of this share of a call's time, or more, leaves the device idle


class DeviceTimer:
    """The timer of a callable on a device, for `measure.sampler.sample(timer=…)`.

    The time of a sample is the time between two marks on the device. The calls are launched while the device still
    works on a preceding call (or on the untimed work before a sample, `has_work_before`), so that the first launch is
    not part of the time. With `in_flight=1` the device is idle before each call: the time holds the delay until the
    call starts. Otherwise `in_flight` is the number of calls between the marks.
    """

    def __init__(
        self, device: ComputeDevice, fn: Callable[[], Any], *, in_flight: InFlight = AUTO, has_work_before: bool = False
    ) -> None:
        self._device, self._fn = device, fn
        self._calls = in_flight if isinstance(in_flight, int) else 1
        self._alone = in_flight == 1
        self._leads = not self._alone and not has_work_before
        self._launch_seconds: list[float] = []

    def __call__(self, iterations: Iterable[None], wall: Callable[[], int]) -> tuple[int, int]:
        """Run the calls of a sample; return two clock readings whose difference is the device's time."""
        device, fn = self._device, self._fn
        if self._alone:
            device.synchronize()
        if self._leads:
            fn()
        count = 0
        start = device.mark_time()
        before = wall()
        for _ in iterations:
            for _ in range(self._calls):
                fn()
            count += self._calls
        launched = wall()
        end = device.mark_time()
        device.synchronize()
        seconds = device.compute_seconds(start, end)
        self._launch_seconds.append((launched - before) / 1e9 / max(1, count))
        after = wall()
        return after - round(seconds * 1e9 / self._calls), after

    def compute_launch_seconds(self, samples: int) -> float:
        """Return the median time of the host per launched call over the last `samples` samples."""
        return median(self._launch_seconds[-samples:])

    def is_launch_bound(self, seconds: float, samples: int) -> bool:
        """Return whether launching a call takes the host about as long as `seconds`, the call's time on the device."""
        return self.compute_launch_seconds(samples) >= LAUNCH_BOUND_SHARE * seconds
