"""The transport of torch.distributed ranks on several hosts: shared memory within a host, messages between hosts.

Each strip uses shared memory if its peer is on the same host, and a message otherwise. All-reduce is hierarchical: it
sums within each host, then between one rank per host. Each value crosses the network once per host, not once per rank.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from tessera.transport.all_reduce import sum_in_place
from tessera.transport.distributed import DistributedTransport
from tessera.transport.host import HostTransport
from tessera.transport.transport import Connection, Strip, Transport, TransportTraits

NO_SHARING = -1  # host of a rank that cannot share memory
SUM_TAG = 1  # message tag of all-reduces; borders have tag 0


class MixedTransport(HostTransport):
    """The transport of torch.distributed ranks on several hosts. `hosts` has the host number of each rank."""

    def __init__(self, hosts: Sequence[int], group: dist.ProcessGroup | None = None) -> None:
        own = hosts[dist.get_rank(group)]
        super().__init__(group, [rank for rank, host in enumerate(hosts) if host == own])
        self.name = f"{self.name}+{self.traits.messages}"
        self.traits = TransportTraits(messages=self.traits.messages, shares_memory=True)
        self._leaders = sorted({hosts.index(host) for host in hosts})  # the first rank of each host

    def connect(self, sends: Sequence[Strip], receives: Sequence[Strip]) -> Connection:
        local, remote = (
            [[strip for strip in strips if (strip.peer in self._host_ranks) == on_host] for strips in (sends, receives)]
            for on_host in (True, False)
        )
        return _MixedConnection(super().connect(*local), DistributedTransport.connect(self, *remote))

    def all_reduce(self, values: Tensor) -> None:
        sum_in_place(values, self._sum)

    def _sum(self, total: Tensor) -> None:
        self._sum_on_host(total)
        if self.rank in self._leaders:
            self._sum_over_leaders(total.view(-1))
        else:
            total.zero_()
        self._sum_on_host(total)  # only the leader's values are not zero

    def _sum_over_leaders(self, values: Tensor) -> None:
        """All-reduce between one rank per host (reduce-scatter, then all-gather). The order of summation is fixed."""
        shares = values.tensor_split(len(self._leaders))
        own = shares[self._leaders.index(self.rank)]
        parts = [own if leader == self.rank else torch.empty_like(own) for leader in self._leaders]
        self._send_to_leaders(shares, parts)
        own.copy_(torch.stack(parts).sum(0, dtype=own.dtype))
        self._send_to_leaders([own] * len(shares), shares)

    def _send_to_leaders(self, sends: Sequence[Tensor], receives: Sequence[Tensor]) -> None:
        messages = [
            dist.P2POp(function, values[index], group=self._group, group_peer=leader, tag=SUM_TAG)
            for function, values in ((dist.irecv, receives), (dist.isend, sends))
            for index, leader in enumerate(self._leaders)
            if leader != self.rank and values[index].numel()
        ]
        for work in dist.batch_isend_irecv(messages) if messages else ():
            work.wait()

    def barrier(self) -> None:
        dist.barrier(group=self._group)


class _MixedConnection:
    """A local connection (peers on this host) and a remote one. Messages start first, because they take longer."""

    def __init__(self, local: Connection, remote: Connection) -> None:
        self._local, self._remote = local, remote

    def wait_until_sent(self) -> None:
        self._local.wait_until_sent()
        self._remote.wait_until_sent()

    def start(self) -> None:
        self._remote.start()
        self._local.start()

    def finish(self) -> None:
        self._local.finish()
        self._remote.finish()

    def close(self) -> None:
        self._local.close()
        self._remote.close()


def open_fastest(group: dist.ProcessGroup | None = None) -> Transport:
    """Return the fastest transport of a group: shared memory within hosts, messages between hosts.

    All ranks must call it at the same point.
    """
    hosts = find_hosts(group)
    if not shares_memory(hosts):
        return DistributedTransport(group)
    return HostTransport(group) if len(set(hosts)) == 1 else MixedTransport(hosts, group)


def shares_memory(hosts: Sequence[int]) -> bool:
    """Return whether shared memory is useful and possible: some ranks are on the same host, and every rank can map it.

    `hosts` is the result of `find_hosts`.
    """
    return NO_SHARING not in hosts and len(set(hosts)) < len(hosts)


def find_hosts(group: dist.ProcessGroup | None = None) -> list[int]:
    """Return the host number of each rank. All ranks must call this function; all get the same result.

    Ranks with the same number can map each other's memory: they run under one kernel, in the same PID and
    network namespaces, as the same user.
    """
    can = hasattr(os, "memfd_create") and str(dist.get_backend(group)) == "gloo"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespaces = [os.stat(f"/proc/self/ns/{kind}").st_ino for kind in ("pid", "net")]
    except OSError:
        can, boot, namespaces = False, "", []
    digest = sha256(f"{boot} {namespaces} {os.getuid()}".encode()).digest()
    keys = torch.zeros(dist.get_world_size(group), dtype=torch.int64)
    keys[dist.get_rank(group)] = int.from_bytes(digest[:7], "big") if can else NO_SHARING
    if str(dist.get_backend(group)) != "gloo":
        return [NO_SHARING] * len(keys)
    dist.all_reduce(keys, group=group)
    order = list(dict.fromkeys(keys.tolist()))
    return [NO_SHARING if key == NO_SHARING else order.index(key) for key in keys.tolist()]
