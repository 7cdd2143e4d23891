"""Processes on one machine keep step over sockets that they inherit: no files, no ports, no library."""

from __future__ import annotations

import pickle
import socket
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


def star(size: int) -> list[list[socket.socket]]:
    """The sockets that each rank inherits: rank 0 one to every other rank, the others one to rank 0."""
    pairs = [socket.socketpair() for _ in range(size - 1)]
    return [[ours for ours, _ in pairs], *([theirs] for _, theirs in pairs)]


class Star:
    """Every rank is connected to rank 0, which waits for all before it lets all go on."""

    def __init__(self, rank: int, links: list[Connection]) -> None:
        self._rank, self._links = rank, links

    def barrier(self) -> None:
        if self._rank:
            self._links[0].send_bytes(b"\0")
        for link in self._links:
            link.recv_bytes()
        if self._rank == 0:
            for link in self._links:
                link.send_bytes(b"\0")

    def agree(self, value: T) -> T:
        if self._rank == 0:
            data = pickle.dumps(value)
            for link in self._links:
                link.send_bytes(data)
            return value
        agreed: T = pickle.loads(self._links[0].recv_bytes())
        return agreed
