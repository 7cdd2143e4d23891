"""Identification of the process that writes a run, so that two commands never write one run at the same time."""

from __future__ import annotations

import os
import socket
from functools import lru_cache
from pathlib import Path

SEPARATOR = "|"


def describe_writer() -> str:
    """Return a text that identifies this process: host, boot and process namespace, process id, start time."""
    return SEPARATOR.join((_describe_host(), str(os.getpid()), _get_start_time(os.getpid())))


def is_writing(writer: str) -> bool:
    """Return whether a described process other than this one may still write; a process of another host may."""
    host, _, process = writer.partition(SEPARATOR)
    number, _, started = process.partition(SEPARATOR)
    if not writer or writer == describe_writer():
        return False
    if host != _describe_host() or not number.isdecimal() or len(number) > 9:
        here, there = _describe_host().split("/"), host.split("/")
        return here[0] != there[0] or here[1:2] == there[1:2]  # a process of an earlier boot of this host has ended
    return _get_start_time(int(number)) == started


def get_process_label(writer: str) -> str:
    """Return host and process id of a described process, for a message."""
    host, _, process = writer.partition(SEPARATOR)
    if host == "connection":
        return f"connection {process.partition(SEPARATOR)[0]} of the server"
    return f"process {process.partition(SEPARATOR)[0]} on {host.partition('/')[0]}"


def _get_start_time(process: int) -> str:
    """Return the start time of a running process in clock ticks; empty if it has ended."""
    fields = _read_text(f"/proc/{process}/stat").rpartition(")")[2].split()
    if len(fields) > 19:
        return "" if fields[0] in "ZX" else fields[19]
    if Path("/proc/self/stat").exists():
        return ""
    import psutil  # only without Linux's /proc: importing it takes longer than a command that reads a store

    return f"{psutil.Process(process).create_time():.2f}" if psutil.pid_exists(process) else ""


@lru_cache(maxsize=1)
def _describe_host() -> str:
    return "/".join((socket.gethostname(), _read_text("/proc/sys/kernel/random/boot_id"), _read_namespace()))


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _read_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
