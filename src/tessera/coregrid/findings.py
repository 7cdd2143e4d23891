"""Findings on the core grid: gain of the search over the chip's own choice, fit, and predicted networks.

Memory and bytes are counted and times on a chip are predicted, so that these findings have no noise.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.coregrid.convolution import SEARCH_LAYOUT
from tessera.report.figures import format_bytes, format_change, format_factor, format_seconds
from tessera.report.findings import MIN_DIFFERENCE, Bar, Finding, group_variants
from tessera.results.record import Record

AUTO_LAYOUT = "auto"


def find_in_core_grid(records: Sequence[Record]) -> list[Finding]:
    """Return the findings on core-grid records."""
    return [*find_search_gain(records), *find_fit(records), *find_network_rate(records)]


def _get_chip_seconds(record: Record) -> float | None:
    predicted = record.predicted.get("chip_time")
    return predicted.value if predicted else None


def _get_name(record: Record) -> str:
    params = record.case.params
    return str(params.get("layer") or f"{params.get('in_channels')} to {params.get('out_channels')} channels")


def find_search_gain(records: Sequence[Record]) -> list[Finding]:
    """Return the convolution on which the search beats the chip's own choice of layout most."""
    gains = []
    for group in group_variants([r for r in records if r.case.name == "conv2d"], "shard_layout"):
        layouts = {str(record.case.params.get("shard_layout")): record for record in group}
        if SEARCH_LAYOUT in layouts and AUTO_LAYOUT in layouts:
            searched, own = layouts[SEARCH_LAYOUT], layouts[AUTO_LAYOUT]
            fast, slow = _get_chip_seconds(searched), _get_chip_seconds(own)
            if fast and slow and slow > (1 + MIN_DIFFERENCE) * fast:
                gains.append((slow / fast, searched, own, fast, slow))
    if not gains:
        return []
    gain, searched, own, fast, slow = max(gains, key=lambda each: each[0])
    params = searched.case.params
    text = (
        f"For {_get_name(searched)} on {params.get('machine')}, the search picks layout {_describe_layout(searched)} "
        f"and needs {format_bytes(searched.metrics['high_water'].value)} per core: predicted {format_seconds(fast)}, "
        f"{format_factor(gain)} as fast as the chip's own choice {_describe_layout(own)} ({format_seconds(slow)})."
    )
    shape = " ".join(
        f"--{name.replace('_', '-')} {params[name]}"
        for name in ("image_size", "in_channels", "out_channels", "kernel", "padding")
        if name in params
    )
    bars = (
        Bar(label="search", value=fast, text=format_seconds(fast)),
        Bar(label="chip's own choice", value=slow, text=format_seconds(slow)),
    )
    return [Finding(feature="conv", text=text, command=f"tessera conv {shape} --shard-layout search", bars=bars)]


def _describe_layout(record: Record) -> str:
    return f"{record.chosen.get('layout')} on {record.chosen.get('cores')} cores"


def find_fit(records: Sequence[Record]) -> list[Finding]:
    """Return how many convolutions did not fit, with the reason of the first."""
    refused = [record for record in records if record.status == "refused"]
    if not refused:
        return []
    text = f"{len(refused)} of {len(records)} convolutions do not fit, for example {_get_name(refused[0])}: "
    command = f"tessera conv --shard-layout search --machine {refused[0].case.params.get('machine')}"
    return [Finding(feature="conv", text=text + refused[0].reason.rstrip(".") + ".", command=command)]


def find_network_rate(records: Sequence[Record]) -> list[Finding]:
    """Return the predicted rate of a network beside the published rate."""
    for record in records:
        predicted, published = (each.get("images_per_second") for each in (record.predicted, record.metrics))
        if record.status == "ok" and predicted and published and published.value:
            params = record.case.params
            error = predicted.value / published.value - 1
            text = (
                f"{params.get('network')} with batch {params.get('batch_size')} on {params.get('machine')}: predicted "
                f"{predicted.value:,.0f} images/s, published {published.value:,.0f} ({format_change(error)})."
            )
            command = f"tessera conv --network {params.get('network')} --machine {params.get('machine')}"
            bars = tuple(
                Bar(label=label, value=rate.value, text=f"{rate.value:,.0f} images/s")
                for label, rate in (("predicted", predicted), ("published", published))
            )
            return [Finding(feature="conv", text=text, command=command, bars=bars)]
    return []
