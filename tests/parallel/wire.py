"""A link between two network namespaces for kernels without netem: python wire.py FIRST SECOND DEVICE SECONDS BITS/S

The program creates a tun device in each namespace, prints `ready`, and forwards packets between them. Every packet
is sent at the rate of the link and arrives after its delay. The program ends, and its devices are removed, when its
standard input is closed.

Forwarding takes CPU time that a real link would not take. To keep it small, the devices use segmentation offload
without checksums, as network cards do, so one read and one write move up to 64 KB. The process runs with real-time
priority, so that it never waits for a core.
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
PACKET_HEADER = struct.Struct(
    "=BBHHHH"
)  # header of a packet: flags, offload type, header bytes, segment bytes, checksum
HEADERS = 52  # header bytes of each segment: IP, and TCP with time stamps
LARGEST = PACKET_HEADER.size + (1 << 16)


def open_device(namespace: str, name: str) -> int:
    """Create a tun device in a namespace; its file works from any namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{namespace}") as where:
        if libc.setns(where.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(device, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4)
    return device


def forward_packets(ends: Sequence[int], delay: float, rate: float) -> None:
    """Forward packets between the devices until standard input is closed."""
    free, under_way = [0.0, 0.0], (deque[tuple[float, bytes]](), deque[tuple[float, bytes]]())
    while True:
        now = time.monotonic()
        for direction, packets in enumerate(under_way):
            while packets and packets[0][0] <= now:
                write_packet(ends[1 - direction], packets.popleft()[1])
        due = [packets[0][0] for packets in under_way if packets]
        ready, _, _ = select.select([*ends, sys.stdin], [], [], max(0.0, min(due) - now) if due else None)
        if sys.stdin in ready:
            return
        now = time.monotonic()
        for direction, end in enumerate(ends):
            while end in ready and (packet := read_packet(end)):
                free[direction] = max(now, free[direction]) + compute_wire_size(packet) * 8 / rate
                under_way[direction].append((free[direction] + delay, packet))


def compute_wire_size(packet: bytes) -> int:
    """Return the bytes of all segments that a large packet is split into, with a header for each."""
    _, offload, _, segment, _, _ = PACKET_HEADER.unpack_from(packet)
    size = len(packet) - PACKET_HEADER.size
    return size + HEADERS * (-(-size // segment) - 1) if offload else size


def read_packet(end: int) -> bytes | None:
    try:
        return os.read(end, LARGEST)
    except BlockingIOError:
        return None


def write_packet(end: int, packet: bytes) -> None:
    try:
        os.write(end, packet)
    except OSError:
        """The device is down or full: the packet is lost, as on a real link."""


if __name__ == "__main__":
    first, second, device, seconds, bits = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)  # the default would delay wake-ups by up to 50 microseconds
    ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, 1 << 26)  # keep freed pages, and reuse them for later packets
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    files = [open_device(first, device), open_device(second, device)]
    print("ready", flush=True)
    forward_packets(files, float(seconds), float(bits))
