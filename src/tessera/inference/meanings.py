"""What options of another machine mean on a host: how each is understood, and when it has nothing to act on."""

from __future__ import annotations

import os
from pathlib import Path

from tessera.inference.settings import SYNTHETIC, Settings


def normalised_on(settings: Settings) -> str:
    """Where pixels are normalised: eight bits have no room for it on the host, so the device does it then."""
    return "device" if _contradicts(settings) else settings.normalization_location


def io_threads(settings: Settings) -> int:
    """The threads that prepare input beside the loop: none without prefetching, never more than there are cores."""
    return min(settings.num_io_tiles, len(os.sched_getaffinity(0))) if settings.prefetch else 0


def notes(settings: Settings) -> tuple[str, ...]:
    """What a reader of the results has to be told about the options.

    >>> notes(Settings(half_partial=True))
    ('--half-partial has no effect: engines on a host add up in float32, or in int32 for int8',)
    """
    found = []
    if settings.hint == "throughput" and settings.streams == 1:
        found.append("--hint throughput has no effect with one stream: add --streams")
    if settings.half_partial:
        found.append("--half-partial has no effect: engines on a host add up in float32, or in int32 for int8")
    if _contradicts(settings):
        found.append("--eight-bit-io leaves no room to normalise on the host: pixels are normalised on the device")
    if settings.data == SYNTHETIC:
        found.append("--data synthetic: input lies in the engine's memory, so that latency has no input in it")
        if settings.num_io_tiles > 1 or not settings.prefetch:
            found.append("--num-io-tiles and --prefetch have no effect: there is no input to prepare")
    elif settings.num_io_tiles > 1:
        threads = io_threads(settings)
        found.append(f"--num-io-tiles {settings.num_io_tiles}: on a host, threads that prepare input; {threads} here")
    if settings.dataloader_worker > 1 and not Path(settings.data).is_dir():
        found.append("--dataloader-worker has no effect: only image files are decoded by processes of their own")
    return tuple(found)


def sampling_notes(settings: Settings, *, mode: str, iterations: int | None) -> tuple[str, ...]:
    """What has to be told about how long the windows last.

    >>> sampling_notes(Settings(device_iterations=128), mode="offline", iterations=None)
    ('--device-iterations has no effect without --iterations: a window then ends by the clock',)
    """
    found = []
    if mode == "server" and iterations is not None:
        found.append("--iterations has no effect in --mode server: a trial lasts a quarter of the --budget")
    if settings.device_iterations > 1 and (mode == "server" or iterations is None):
        found.append("--device-iterations has no effect without --iterations: a window then ends by the clock")
    return tuple(found)


def _contradicts(settings: Settings) -> bool:
    return settings.eight_bit_io and settings.normalization_location == "host"
