"""Named settings of the C allocator of workers.

By default, glibc returns large blocks to the kernel on every free, and the next allocation causes page faults: an eager
`relu(add) * 2` took 12 times longer with the setting `system` than with `steady`. The setting is part of the
environment of a record, because times under different settings are not comparable.
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
DEFAULT_ALLOCATOR = "steady"


def get_allocator_env(name: str) -> dict[str, str]:
    """Return the environment variables of a named setting; they affect only processes that are started with them."""
    if name not in ALLOCATORS:
        raise TesseraError("unknown allocator setting", got=name, allowed=ALLOCATORS)
    return dict(ALLOCATORS[name])


def detect_allocator() -> str:
    """Return the setting that this process was started with; `custom` for another allocator or other tunables."""
    if "malloc" in os.environ.get("LD_PRELOAD", "") + os.environ.get("GLIBC_TUNABLES", ""):
        return "custom"
    names = {key for env in ALLOCATORS.values() for key in env}
    present = {key: os.environ[key] for key in names if key in os.environ}
    return next((name for name, env in ALLOCATORS.items() if env == present), "custom")
