"""Translation of accelerator options to a CPU host, and notes about options that have no effect."""

from __future__ import annotations

import os
from pathlib import Path

from tessera.inference.settings import SYNTHETIC_DATA, Settings


def get_normalization_location(settings: Settings) -> str:
    """Return the place of normalisation (`host`, `device` or `none`).

    8-bit input cannot represent normalised pixels, so it is normalised on the device.
    """
    return "device" if _needs_device_normalization(settings) else settings.normalization_location


def count_io_threads(settings: Settings) -> int:
    """Return the number of threads that prepare input: at most the number of cores, 0 without prefetching."""
    return min(settings.num_io_tiles, len(os.sched_getaffinity(0))) if settings.prefetch else 0


def make_option_notes(settings: Settings) -> tuple[str, ...]:
    """Return notes about options that have no effect or a different meaning on a host.

    >>> make_option_notes(Settings(half_partial=True))
    ('--half-partial has no effect: engines on a host accumulate in float32, or in int32 for int8',)
    """
    notes = []
    if settings.hint == "throughput" and settings.streams == 1:
        notes.append("--hint throughput has no effect with one stream: add --streams")
    if settings.half_partial:
        notes.append("--half-partial has no effect: engines on a host accumulate in float32, or in int32 for int8")
    if _needs_device_normalization(settings):
        notes.append("--eight-bit-io input cannot hold normalised pixels: they are normalised on the device")
    if settings.data == SYNTHETIC_DATA:
        notes.append("--data synthetic: input is in the engine's memory; latency does not include preparing input")
        if settings.num_io_tiles > 1 or not settings.prefetch:
            notes.append("--num-io-tiles and --prefetch have no effect: there is no input to prepare")
    elif settings.num_io_tiles > 1:
        threads = count_io_threads(settings)
        notes.append(f"--num-io-tiles {settings.num_io_tiles}: on a host, threads that prepare input; {threads} here")
    if settings.dataloader_worker > 1 and not Path(settings.data).is_dir():
        notes.append("--dataloader-worker has no effect: only image files are decoded by separate processes")
    return tuple(notes)


def make_sampling_notes(settings: Settings, *, mode: str, iterations: int | None) -> tuple[str, ...]:
    """Return notes about sampling options that have no effect in this mode.

    >>> make_sampling_notes(Settings(device_iterations=128), mode="offline", iterations=None)
    ('--device-iterations has no effect without --iterations: windows then have a fixed time',)
    """
    notes = []
    if mode == "server" and iterations is not None:
        notes.append("--iterations has no effect in --mode server: a trial lasts a quarter of the --budget")
    if settings.device_iterations > 1 and (mode == "server" or iterations is None):
        notes.append("--device-iterations has no effect without --iterations: windows then have a fixed time")
    return tuple(notes)


def _needs_device_normalization(settings: Settings) -> bool:
    return settings.eight_bit_io and settings.normalization_location == "host"
