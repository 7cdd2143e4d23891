"""The phases of a pass in numbers, as every table of them shows them."""

from __future__ import annotations

from tessera.phased.profile.pass_profile import PassProfile
from tessera.report.figures import format_bytes, format_percent, format_rate, format_seconds

HEADS = (
    "phase",
    "layers",
    "loaded",
    "FLOPs / byte",
    "I/O alone",
    "compute alone",
    "bound by",
    "I/O",
    "compute",
    "hidden",
    "hand-over",
)


def phase_row(profile: PassProfile, number: int) -> list[str]:
    """A phase in words, in the order of `HEADS`."""
    part, seen = profile.parts[number], profile.figures(number)
    per_byte = part.flops_per_byte
    return [
        str(number),
        part.name,
        format_bytes(part.bytes),
        "" if per_byte is None else format_rate(per_byte, ""),
        format_seconds(part.load) if part.bytes else "",
        format_seconds(part.compute),
        part.bound if part.bytes else "",
        format_seconds(seen.load) if seen.load else "",
        format_seconds(seen.compute),
        format_percent(seen.hidden / seen.load) if seen.load else "",
        format_seconds(seen.hand_over) if seen.hand_over else "",
    ]
