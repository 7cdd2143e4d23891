"""All devices compute the same phase, each on its share of the batch; one stream of weights feeds them."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.phased.devices.threads import DeviceThreads
from tessera.phased.memory.activations import Activations, Values
from tessera.phased.memory.stream import StreamOver
from tessera.phased.memory.working import Weights
from tessera.phased.network.samples import why_not_by_sample, why_not_divided
from tessera.phased.schedules.schedule import Setup

FOLLOWS = (threading.BrokenBarrierError, StreamOver)  # errors of a device because another one failed


class DataParallel:
    """Mini-batches are divided over the devices if they come out even, and the samples of each of them otherwise.

    Dividing mini-batches is exact for any network. Dividing samples is so where no call mixes them, which is looked
    at beforehand; a network that does is refused.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self._why_not = why_not_by_sample(setup.network)
        self._followed: dict[object, str] = {}  # by the kind of a mini-batch: why it cannot be divided
        self._devices = [setup.device(number) for number in range(setup.devices)]
        self._stream = setup.stream(users=setup.devices)
        # Where weights are widened, all compute from what one of them has widened.
        self._together = threading.Barrier(setup.devices)
        self._widened: Weights = {}
        self._threads = DeviceThreads(setup.devices, setup.threads, pin=setup.pin)

    def run(self, batches: list[Values]) -> list[Values]:
        shares = self.setup.devices
        whole = len(batches) % shares == 0 or (self._why_not and len(batches) > shares)
        if whole:
            return _interleaved(self._compute([batches[number::shares] for number in range(shares)]))
        if why_not := self._why_not or next(filter(None, map(self._follow, batches)), ""):
            raise TesseraError(
                f"the samples of a batch cannot be divided over {shares} devices: {why_not}",
                do=f"run {shares} mini-batches or more in a step, or take the schedule overlapped",
            )
        divided = [_divided(values, shares) for values in batches]
        found = self._compute([[parts[number] for parts in divided if parts[number]] for number in range(shares)])
        counts = [[_samples(part) for part in parts] for parts in divided]
        by_device = [iter(values) for values in found]
        names = self.setup.network.results
        return [
            _joined([next(by_device[n]) for n in range(shares) if count[n]], [c for c in count if c], names)
            for count in counts
        ]

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._threads.close()

    def _follow(self, values: Values) -> str:
        """Why a mini-batch cannot be divided, found out once for all that are like it; empty if it can."""
        kind = tuple((n, (tuple(v.shape), v.dtype) if isinstance(v, Tensor) else repr(v)) for n, v in values.items())
        if kind not in self._followed:
            self._followed[kind] = why_not_divided(self.setup.network, values)
        return self._followed[kind]

    def _compute(self, shares: list[list[Values]]) -> list[list[Values]]:
        self._together.reset()
        try:
            running = self._threads.on_all(self._share, list(enumerate(shares)), self._give_up)
            errors = [error for error in (future.exception() for future in running) if error is not None]
            if errors:
                raise next((error for error in errors if not isinstance(error, FOLLOWS)), errors[0])
        except BaseException:
            if self._stream is not None:
                self._stream.rewind()
            raise
        return [future.result() for future in running]

    def _give_up(self) -> None:
        """Wake all who wait for another device, or for weights: they may never come."""
        self._together.abort()
        if self._stream is not None:
            self._stream.give_up()

    def _share(self, number: int, batches: list[Values]) -> list[Values]:
        """What one device does in a step: all phases, on its share."""
        activations = self.setup.activations(self.setup.devices)
        activations.begin(batches)
        try:
            for phase in self.setup.phases:
                self._phase(number, phase, activations, len(batches))
            return activations.end()
        except BaseException:
            activations.drop()
            self._give_up()
            raise

    def _phase(self, number: int, phase: int, activations: Activations, batches: int) -> None:
        buffer = None
        if self._stream is not None and not self.setup.stays(phase):
            buffer = self._stream.acquire(phase, number)
        weights = None
        if buffer is not None and self.setup.memory.widens(phase):
            self._together.wait()
            if number == 0:
                with self.setup.memory.in_use():
                    self._widened = self.setup.memory.weights(phase, buffer)
            self._together.wait()
            weights = self._widened
        self._devices[number].compute(phase, buffer, activations, range(batches), weights)
        if buffer is not None and self._stream is not None:
            self._stream.release(phase)


def _interleaved(shares: list[list[Values]]) -> list[Values]:
    """Mini-batches in their order again."""
    return [shares[index % len(shares)][index // len(shares)] for index in range(sum(map(len, shares)))]


def _divided(values: Values, shares: int) -> list[Values]:
    """The values of a mini-batch by samples; shares beyond the samples are empty."""
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    counts = {value.shape[0] if value.dim() else 0 for value in tensors.values()}
    if len(counts) != 1 or 0 in counts:
        raise TesseraError("only inputs with the same number of samples can be divided over devices", got=counts)
    pieces = {name: torch.tensor_split(value, shares) for name, value in tensors.items()}
    parts: list[Values] = [values | {name: piece[number] for name, piece in pieces.items()} for number in range(shares)]
    return [part if _samples(part) else {} for part in parts]


def _samples(values: Values) -> int:
    return next((len(value) for value in values.values() if isinstance(value, Tensor)), 0)


def _joined(parts: list[Values], samples: list[int], names: Sequence[str]) -> Values:
    """The results of a mini-batch from those of its parts."""
    for part, count in zip(parts, samples, strict=True):
        if any(not isinstance(part[name], Tensor) or part[name].shape[:1] != (count,) for name in names):
            raise TesseraError(
                "the network does not give one result per sample, so that batches cannot be divided",
                do="take the schedule overlapped",
            )
    return {name: torch.cat([part[name] for part in parts]) for name in names}
