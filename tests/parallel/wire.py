"""A wire between two network namespaces, for kernels without netem: python wire.py ONE OTHER DEVICE SECONDS BITS/S

It makes a device in each namespace, says `ready`, and carries packets from one to the other: each leaves at the rate
of the wire and arrives after its delay. It ends, and the devices with it, when its standard input is closed.

A wire of copper takes no time of the hosts' cores; this one does, and should take little. As network cards do, its
devices take many packets as one large one that they would cut themselves, without checksums, so that a read and a
write carry 64 KB. And it never waits for its turn: it goes before everything else on the cores.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence

TUNSETIFF, IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x400454CA, 0x0001, 0x1000, 0x4000
TUNSETOFFLOAD, TUN_F_CSUM, TUN_F_TSO4 = 0x400454D0, 0x01, 0x02
CLONE_NEWNET = 0x40000000
PR_SET_TIMERSLACK = 29
M_TRIM_THRESHOLD = -1
ABOUT = struct.Struct("=BBHHHH")  # before every packet: flags, kind, bytes of headers, bytes of a piece, checksum
HEADERS = 52  # bytes before each piece: of IP, and of TCP with its times
LARGEST = ABOUT.size + (1 << 16)


def device_in(namespace: str, name: str) -> int:
    """A device in a namespace; its file carries the packets, whatever namespace this process is in."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{namespace}") as where:
        if libc.setns(where.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return device


def carry(ends: Sequence[int], delay: float, rate: float) -> None:
    """Until standard input is closed."""
    free, under_way = [0.0, 0.0], (deque[tuple[float, bytes]](), deque[tuple[float, bytes]]())
    while True:
        now = time.monotonic()
        for way, packets in enumerate(under_way):
            while packets and packets[0][0] <= now:
                deliver(ends[1 - way], packets.popleft()[1])
        due = [packets[0][0] for packets in under_way if packets]
        ready, _, _ = select.select([*ends, sys.stdin], [], [], max(0.0, min(due) - now) if due else None)
        if sys.stdin in ready:
            return
        now = time.monotonic()
        for way, end in enumerate(ends):
            while end in ready and (packet := taken(end)):
                free[way] = max(now, free[way]) + size_on_the_wire(packet) * 8 / rate
                under_way[way].append((free[way] + delay, packet))


def size_on_the_wire(packet: bytes) -> int:
    """Bytes of the pieces that a large packet is cut into, each with the headers before it."""
    _, kind, _, piece, _, _ = ABOUT.unpack_from(packet)
    size = len(packet) - ABOUT.size
    return size + HEADERS * (-(-size // piece) - 1) if kind else size


def taken(end: int) -> bytes | None:
    try:
        return os.read(end, LARGEST)
    except BlockingIOError:
        return None


def deliver(end: int, packet: bytes) -> None:
    try:
        os.write(end, packet)
    except OSError:
        """The device is down, or full: packets get lost on wires."""


if __name__ == "__main__":
    one, other, device, seconds, bits = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # a delay of microseconds would be rounded to 50 of them
    ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, 1 << 26)  # or every packet would be read into new pages
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    files = [device_in(one, device), device_in(other, device)]
    print("ready", flush=True)
    carry(files, float(seconds), float(bits))
