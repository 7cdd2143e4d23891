"""Named settings of the C allocator with which workers start.

glibc gives large blocks back to the kernel on every free, and every following call pays for fresh pages: one
eager `relu(add) * 2` took 12 times longer with the system's setting than with the one below. The setting is part
of a record's environment, because records under different settings say nothing about each other.
"""

from __future__ import annotations

import os

from tessera.errors import TesseraError

ALLOCATORS: dict[str, dict[str, str]] = {
    "steady": {
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "MALLOC_TRIM_THRESHOLD_": "2147483647",
        "MALLOC_TOP_PAD_": "67108864",
    },
    "system": {},
}
DEFAULT = "steady"


def allocator_env(name: str) -> dict[str, str]:
    """The environment variables of a named setting; they act only on a process started with them."""
    if name not in ALLOCATORS:
        raise TesseraError("unknown allocator setting", got=name, allowed=ALLOCATORS)
    return dict(ALLOCATORS[name])


def current_allocator() -> str:
    """The setting this process was started with; another allocator, or its tunables, make it `custom`."""
    if "malloc" in os.environ.get("LD_PRELOAD", "") + os.environ.get("GLIBC_TUNABLES", ""):
        return "custom"
    names = {key for env in ALLOCATORS.values() for key in env}
    here = {key: os.environ[key] for key in names if key in os.environ}
    return next((name for name, env in ALLOCATORS.items() if env == here), "custom")
