"""The transport over torch.distributed: gloo on CPUs, or NCCL."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.transport.all_reduce import sum_in_place
from tessera.transport.packing import pack_by_peer
from tessera.transport.transport import Connection, Strip, TransportTraits

BACKEND_DEVICES = {"nccl": "cuda", "xccl": "xpu"}  # device of a backend's memory, if not the CPU


class DistributedTransport:
    """The torch.distributed transport: one message per neighbour and direction, transferred by gloo's threads or NCCL.

    It uses an existing process group (default: of all ranks), which its creator destroys. The transport has the name of
    the group's backend, and numbers the ranks of the group from 0.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.global_ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
        self.name = str(dist.get_backend(group))
        self._device = torch.device("cpu")
        if self.name in BACKEND_DEVICES:
            self._device = torch.device(BACKEND_DEVICES[self.name], torch.accelerator.current_device_index())
        self.traits = TransportTraits(messages=self.name, device_type=self._device.type)

    def empty(self, count: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(count, dtype=dtype, device=self._device)

    def free(self, memory: Tensor) -> None:
        """Do nothing: the memory is released with its last reference."""

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        return _DistributedConnection(sends, receives, self._group)

    def all_reduce(self, values: Tensor) -> None:
        sum_in_place(values, self._sum_on_device)

    def _sum_on_device(self, total: Tensor) -> None:
        """All-reduce a tensor in memory that the backend supports: a host tensor must not reach NCCL."""
        moved = total.to(self._device)
        dist.all_reduce(moved, group=self._group)
        if moved is not total:
            total.copy_(moved)

    def barrier(self) -> None:
        dist.barrier(group=self._group)

    def close(self) -> None:
        """Do nothing: the program that created the process group destroys it."""


class _DistributedConnection:
    def __init__(self, sends: Sequence[Strip], receives: Sequence[Strip], group: dist.ProcessGroup | None) -> None:
        out, into = pack_by_peer(sends), pack_by_peer(receives)
        self._pack = [copy for packed in out for copy in packed.pack]
        self._unpack = [copy for packed in into for copy in packed.unpack]
        self._messages = [
            dist.P2POp(function, packed.bytes, group=group, group_peer=packed.peer)
            for function, messages in ((dist.irecv, into), (dist.isend, out))
            for packed in messages
        ]
        self._under_way: list[dist.Work] = []

    def wait_until_sent(self) -> None:
        """Do nothing: `finish` has waited for the sends."""

    def start(self) -> None:
        for copy in self._pack:
            copy()
        if self._messages:  # in one batch: separate calls would deadlock with NCCL
            self._under_way = dist.batch_isend_irecv(self._messages)

    def finish(self) -> None:
        for work in self._under_way:
            work.wait()
        self._under_way = []
        for copy in self._unpack:
            copy()

    def close(self) -> None:
        """Do nothing: messages have no resources of their own."""
