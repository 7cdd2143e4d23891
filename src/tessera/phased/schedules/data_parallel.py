"""The schedule `data-parallel`: all devices compute the same phase, each on its share of the batch."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.phased.devices.threads import DeviceThreads
from tessera.phased.memory.activations import Activations, Values
from tessera.phased.memory.stream import StreamClosed
from tessera.phased.memory.working import Weights
from tessera.phased.network.samples import find_moved_samples, find_sample_mixing
from tessera.phased.schedules.schedule import ScheduleSetup

SECONDARY_ERRORS = (threading.BrokenBarrierError, StreamClosed)  # raised on a device because another device failed


class DataParallel:
    """The schedule on device threads, which share one stream of weights.

    Each device computes whole mini-batches if their number is a multiple of the number of devices, or if the network
    may mix samples and there are more mini-batches than devices. Otherwise the samples of each mini-batch are split.

    Splitting by mini-batch is exact for any network. Splitting by sample is exact only if no call mixes samples; the
    calls are checked beforehand, and splitting a network that may mix samples is an error.
    """

    def __init__(self, setup: ScheduleSetup) -> None:
        self.setup = setup
        self._mixing = find_sample_mixing(setup.network)
        self._reasons: dict[object, str] = {}  # shapes and dtypes of a mini-batch -> why its samples cannot be split
        self._devices = [setup.build_device(number) for number in range(setup.devices)]
        self._stream = setup.open_stream(users=setup.devices)
        # One device widens the weights of a phase, and all devices compute with the result.
        self._barrier = threading.Barrier(setup.devices)
        self._widened: Weights = {}
        self._threads = DeviceThreads(setup.devices, setup.threads, pin=setup.pin)

    def run(self, batches: list[Values]) -> list[Values]:
        shares = self.setup.devices
        by_batch = len(batches) % shares == 0 or (self._mixing and len(batches) > shares)
        if by_batch:
            return _restore_batch_order(self._compute_shares([batches[number::shares] for number in range(shares)]))
        if reason := self._mixing or next(filter(None, map(self._find_split_obstacle, batches)), ""):
            raise TesseraError(
                f"cannot split the samples of a batch over {shares} devices: {reason}",
                do=f"run {shares} or more mini-batches (--batches-per-step {shares}), or use schedule 'overlapped'",
            )
        split = [_split_samples(values, shares) for values in batches]
        outputs = self._compute_shares(
            [[parts[number] for parts in split if parts[number]] for number in range(shares)]
        )
        counts = [[_count_samples(part) for part in parts] for parts in split]
        by_device = [iter(values) for values in outputs]
        names = self.setup.network.results
        return [
            _join_parts([next(by_device[n]) for n in range(shares) if count[n]], [c for c in count if c], names)
            for count in counts
        ]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._threads.close()

    def _find_split_obstacle(self, values: Values) -> str:
        """Return why the samples of a mini-batch cannot be split; empty if they can. Cached by shapes and dtypes."""
        key = tuple((n, (tuple(v.shape), v.dtype) if isinstance(v, Tensor) else repr(v)) for n, v in values.items())
        if key not in self._reasons:
            self._reasons[key] = find_moved_samples(self.setup.network, values)
        return self._reasons[key]

    def _compute_shares(self, shares: list[list[Values]]) -> list[list[Values]]:
        self._barrier.reset()
        try:
            running = self._threads.run_on_all(self._compute_share, list(enumerate(shares)), self._abort)
            errors = [error for error in (future.exception() for future in running) if error is not None]
            if errors:
                raise next((error for error in errors if not isinstance(error, SECONDARY_ERRORS)), errors[0])
        except BaseException:
            if self._stream is not None:
                self._stream.rewind()
            raise
        return [future.result() for future in running]

    def _abort(self) -> None:
        """Wake the devices that wait for another device or for weights, after a device has failed."""
        self._barrier.abort()
        if self._stream is not None:
            self._stream.abort()

    def _compute_share(self, number: int, batches: list[Values]) -> list[Values]:
        """Compute all phases for the mini-batches of one device."""
        activations = self.setup.build_activations(self.setup.devices)
        activations.begin_step(batches)
        try:
            for phase in self.setup.phases:
                self._compute_phase(number, phase, activations, len(batches))
            return activations.end()
        except BaseException:
            activations.drop()
            self._abort()
            raise

    def _compute_phase(self, number: int, phase: int, activations: Activations, batches: int) -> None:
        buffer = None
        if self._stream is not None and not self.setup.is_resident(phase):
            buffer = self._stream.acquire(phase, number)
        weights = None
        if buffer is not None and self.setup.memory.is_widened(phase):
            self._barrier.wait()
            if number == 0:
                with self.setup.memory.hold():
                    self._widened = self.setup.memory.get_weights(phase, buffer)
            self._barrier.wait()
            weights = self._widened
        self._devices[number].compute(phase, buffer, activations, range(batches), weights)
        if buffer is not None and self._stream is not None:
            self._stream.release(phase)


def _restore_batch_order(shares: list[list[Values]]) -> list[Values]:
    """Return the mini-batches of all devices in their original order."""
    return [shares[index % len(shares)][index // len(shares)] for index in range(sum(map(len, shares)))]


def _split_samples(values: Values, shares: int) -> list[Values]:
    """Split the values of a mini-batch by samples into `shares` parts; some are empty if there are too few samples."""
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    counts = {value.shape[0] if value.dim() else 0 for value in tensors.values()}
    if len(counts) != 1 or 0 in counts:
        raise TesseraError("schedule 'data-parallel' requires inputs with equal numbers of samples", got=counts)
    pieces = {name: torch.tensor_split(value, shares) for name, value in tensors.items()}
    parts: list[Values] = [values | {name: piece[number] for name, piece in pieces.items()} for number in range(shares)]
    return [part if _count_samples(part) else {} for part in parts]


def _count_samples(values: Values) -> int:
    return next((len(value) for value in values.values() if isinstance(value, Tensor)), 0)


def _join_parts(parts: list[Values], samples: list[int], names: Sequence[str]) -> Values:
    """Concatenate the results of the parts of a mini-batch."""
    for part, count in zip(parts, samples, strict=True):
        if any(not isinstance(part[name], Tensor) or part[name].shape[:1] != (count,) for name in names):
            raise TesseraError(
                "schedule 'data-parallel' requires one result per sample",
                do="use schedule 'overlapped'",
            )
    return {name: torch.cat([part[name] for part in parts]) for name in names}
