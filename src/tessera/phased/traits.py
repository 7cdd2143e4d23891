"""Traits of schedules and weight stores, which planning and measuring depend on. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

WEIGHT_DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTraits:
    """Properties of a schedule, used by options, planning, measuring and the report.

    `buffers` is the smallest and the largest number of stream buffers: per device with `buffers_per_device`, otherwise
    shared by all devices. A schedule without buffers holds all weights in memory.
    `keeps_phases` permits resident phases in the memory left by the buffers. `overlaps_loads` means that a phase is
    loaded while another phase is computed. `computes_together` says when the devices compute at the same time.
    """

    name: str
    summary: str
    several_devices: bool = False
    buffers: tuple[int, int] = (0, 0)
    buffers_per_device: bool = False
    keeps_phases: bool = True
    overlaps_loads: bool = False
    computes_together: Literal["never", "several batches", "always"] = "never"
    is_baseline: bool = False

    @property
    def holds_all_weights(self) -> bool:
        """Whether all weights stay in memory, so that no budget applies and no weights are streamed."""
        return self.buffers == (0, 0)

    @property
    def default_devices(self) -> int:
        return 2 if self.several_devices else 1

    def count_buffers(self, devices: int) -> tuple[int, int]:
        """Return the smallest and the largest number of buffers for a number of devices."""
        least, most = self.buffers
        factor = devices if self.buffers_per_device else 1
        return least * factor, most * factor

    def limit_buffers(self, count: int, phases: int) -> int:
        """Return `count`, or the number of phases if that is smaller and the devices share the buffers."""
        return count if self.buffers_per_device else min(count, phases)

    def count_computing_devices(self, devices: int, batches: int) -> int:
        """Return how many devices compute at the same time in a step of several mini-batches."""
        together = self.computes_together == "always" or (self.computes_together == "several batches" and batches > 1)
        return devices if together else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightStoreTraits:
    """Properties of a weight store, which holds the weights that are not in working memory.

    `link` and `cold_link` name the links of a calibrated machine over which weights are loaded: from the page cache
    (None if nothing is copied), and past the page cache (None if not supported). `storage` and `cold_storage` are the
    descriptions of the store in records, warm and cold.
    """

    name: str
    summary: str
    storage: str
    link: str | None = None
    cold_link: str | None = None
    cold_storage: str = ""
    in_host_memory: bool = False
    mapped: bool = False

    @property
    def can_be_cold(self) -> bool:
        """Whether the store can be read past the page cache."""
        return self.cold_link is not None

    def get_link(self, *, cold: bool) -> str | None:
        """Return the name of the machine link (see `Machine.links`) that weights are loaded over.

        None if the store maps weights instead of copying them.
        """
        return self.cold_link if cold else self.link

    def describe(self, *, cold: bool) -> str:
        """Return a description of the storage that holds the weights when a pass begins, as records state it."""
        return self.cold_storage if cold else self.storage
