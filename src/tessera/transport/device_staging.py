"""A transport for tensors of an accelerator, over a transport that moves host memory.

Strips are copied to pinned host memory on a side stream of the device, sent from there, and copied back on the side
stream. Events order the side stream and the computing stream: a copy starts when the strips are written, work that is
submitted after `finish` starts when the received strips are complete, and work that is submitted between `start` and
`finish` runs meanwhile. The message itself leaves in `finish`, where the host waits for the copy: the device does not
wait, because the work was submitted before.

Tensors on the device never reach the host's transport, and host tensors never reach a collective of the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tessera.device import ComputeDevice, open_device
from tessera.transport.transport import Connection, Strip, Transport


class StagedTransport:
    """The transport of ranks with an accelerator each; `hosts` moves the host memory."""

    def __init__(self, hosts: Transport, device: ComputeDevice) -> None:
        self._hosts, self._device = hosts, device
        self._stream = device.make_stream()
        self.name, self.rank, self.size = hosts.name, hosts.rank, hosts.size
        self.traits = replace(hosts.traits, copies_from_peer=False, device_type=device.torch_device.type)

    @property
    def global_ranks(self) -> list[int]:
        """Ranks in torch.distributed; missing if torch.distributed does not connect the ranks."""
        ranks: list[int] = self._hosts.global_ranks  # type: ignore[attr-defined]
        return ranks

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype, device=self._device.torch_device)

    def free(self, memory: Tensor) -> None:
        """Do nothing: the memory is released with its last reference."""

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        return _StagedConnection(self._hosts, self._device, self._stream, sends, receives)

    def all_reduce(self, values: Tensor) -> None:
        if values.device.type == "cpu":
            self._hosts.all_reduce(values)
            return
        plain = values.detach()
        host = plain.to("cpu")  # waits for the work on the values
        self._hosts.all_reduce(host)
        plain.copy_(host)

    def barrier(self) -> None:
        self._hosts.barrier()

    def close(self) -> None:
        self._hosts.close()


class _StagedStrip:
    """A strip on the device, pinned memory for its copy, and memory of the host's transport for its message."""

    def __init__(self, strip: Strip, hosts: Transport, device: ComputeDevice) -> None:
        self.on_device = strip.tensor
        self.pinned = device.allocate_host(tuple(strip.tensor.shape), strip.tensor.dtype)
        self.message = hosts.empty(strip.tensor.numel(), strip.tensor.dtype)
        self.strip = Strip(strip.peer, self.message)

    def pack(self) -> None:
        self.message.view(self.pinned.shape).copy_(self.pinned)

    def unpack(self) -> None:
        self.pinned.copy_(self.message.view(self.pinned.shape))


class _StagedConnection:
    """A connection of strips on a device. `_copied` and `_returned` mark the end of the copies of a round."""

    def __init__(
        self, hosts: Transport, device: ComputeDevice, stream: Any, sends: Sequence[Strip], receives: Sequence[Strip]
    ) -> None:
        self._hosts, self._device, self._stream = hosts, device, stream
        self._sends, self._receives = ([_StagedStrip(s, hosts, device) for s in strips] for strips in (sends, receives))
        self._inner = hosts.connect([s.strip for s in self._sends], [s.strip for s in self._receives])
        self._copied: Any = None
        self._returned: Any = None

    def wait_until_sent(self) -> None:
        """Let the computing stream wait for the copies of the sent strips; the host does not wait."""
        if self._copied is not None:
            self._device.delay_stream(None, self._copied)

    def start(self) -> None:
        device = self._device
        # The strips to send are written, and the received strips of the last round are read.
        device.delay_stream(self._stream, device.mark_time())
        with device.use_stream(self._stream):
            for staged in self._sends:
                device.submit_copy(staged.on_device, staged.pinned)
        self._copied = device.mark_time(self._stream)

    def finish(self) -> None:
        device = self._device
        self._inner.wait_until_sent()
        device.wait_for(self._copied)
        for staged in self._sends:
            staged.pack()
        self._inner.start()
        self._inner.finish()
        if self._returned is not None:  # the pinned memory may still be read by the last copy
            device.wait_for(self._returned)
        with device.use_stream(self._stream):
            for staged in self._receives:
                staged.unpack()
                device.submit_copy(staged.pinned, staged.on_device)
        self._returned = device.mark_time(self._stream)
        device.delay_stream(None, self._returned)

    def close(self) -> None:
        for mark in (self._copied, self._returned):
            if mark is not None:
                self._device.wait_for(mark)
        self._inner.close()
        for staged in (*self._sends, *self._receives):
            self._hosts.free(staged.message)
        self._sends, self._receives = [], []


def stage_for_device(transport: Transport, device: torch.device) -> Transport:
    """Return a transport for tensors of a device: the given one, if its memory is on the device, or a staged one.

    Repeated calls return the same transport.
    """
    if transport.traits.device_type == device.type:
        return transport
    staged: dict[torch.device, Transport] = vars(transport).setdefault("staged_transports", {})
    if device not in staged:
        staged[device] = StagedTransport(transport, open_device(str(device)))
    return staged[device]
