"""Findings on halo exchange: cost beside a copy and beside other transports, hidden share, networks, exactness."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.report.figures import format_bytes, format_percent, format_seconds
from tessera.report.findings import (
    MIN_DIFFERENCE,
    Bar,
    Finding,
    compare_records,
    estimate_precisely,
    format_estimate,
    get_speedup,
    group_variants,
    make_time_bar,
)
from tessera.results.metrics import read_share
from tessera.results.record import Record


def find_in_halo(records: Sequence[Record]) -> list[Finding]:
    """Return the findings on halo records."""
    return [
        *find_validation(records),
        *find_exchange_cost(records),
        *find_fastest_transport(records),
        *find_hidden_share(records),
        *find_network_cost(records),
    ]


def _describe_split(record: Record) -> str:
    params = record.case.params
    return f"{params.get('image_size')} px on {params.get('num_spatial_parts')} ranks"


def _format_image(record: Record) -> str:
    size = record.case.params.get("image_size")
    return "x".join(map(str, size)) if isinstance(size, list | tuple) else str(size)


def _get_transport(record: Record) -> str:
    return str(record.chosen.get("transport", record.case.params.get("transport", "")))


def find_validation(records: Sequence[Record]) -> list[Finding]:
    """Return whether split results equal the unsplit ones. Validations are exact comparisons without noise."""
    checked = [record for record in records if record.verdict in ("passed", "failed") and "tolerance" in record.metrics]
    if not checked:
        return []
    failed = [record for record in checked if record.verdict == "failed"]
    worst = max(checked, key=_get_largest_error)
    text = (
        f"{len(failed)} of {len(checked)} validations failed: the split convolution differs from the unsplit one."
        if failed
        else f"The split convolution equals the unsplit one in {len(checked)} of {len(checked)} validations: outputs "
        f"and gradients differ by at most {_get_largest_error(worst):.1e} (allowed: "
        f"{worst.metrics['tolerance'].value:.0e})."
    )
    parts = (failed or checked)[0].case.params.get("num_spatial_parts", 2)
    return [Finding(feature="halo", text=text, command=f"tessera halo validate --num-spatial-parts {parts}")]


def _get_largest_error(record: Record) -> float:
    return max((metric.value for name, metric in record.metrics.items() if name.startswith("error_")), default=0.0)


def find_exchange_cost(records: Sequence[Record]) -> list[Finding]:
    """Return the cost of the largest precise exchange beside a plain copy of the same bytes."""
    exchanges = [
        (record, seconds)
        for record in records
        if record.case.name == "exchange" and "copy" in record.metrics and (seconds := estimate_precisely(record))
    ]
    certain = [(r, s) for r, s in exchanges if s.low > r.metrics["copy"].value * (1 + MIN_DIFFERENCE)]
    if not certain:
        return []
    record, seconds = max(certain, key=lambda pair: pair[0].metrics["bytes"].value)
    copy = record.metrics["copy"].value
    text = (
        f"Exchanging the halos of {_describe_split(record)} ({format_bytes(record.metrics['bytes'].value)} per rank) "
        f"takes {format_estimate(seconds, format_seconds)} by {_get_transport(record)}, "
        f"{format_estimate(seconds.scale(1 / copy))} of a plain copy of these bytes."
    )
    params = record.case.params
    command = (
        f"tessera halo exchange --image-size {_format_image(record)} --in-channels {params.get('in_channels')} "
        f"--num-spatial-parts {params.get('num_spatial_parts')} --slice-method {params.get('slice_method')}"
    )
    bars = (make_time_bar(_get_transport(record), record), Bar(label="copy", value=copy, text=format_seconds(copy)))
    return [Finding(feature="halo", text=text, command=command, bars=bars)]


def find_fastest_transport(records: Sequence[Record]) -> list[Finding]:
    """Return the largest certain difference between two transports of the same exchange."""
    groups = group_variants([r for r in records if r.case.name == "exchange"], "transport")
    pairs = [(base, other) for group in groups for i, base in enumerate(group) for other in group[i + 1 :]]
    gains = [
        (base, other, gain)
        for (base, other), judged in zip(pairs, compare_records(pairs), strict=True)
        if (gain := get_speedup(judged)) and _get_transport(base) != _get_transport(other)
    ]
    if not gains:
        return []
    slow, fast, gain = max(gains, key=lambda each: max(each[2].value, 1 / each[2].value))
    if gain.value < 1:
        slow, fast, gain = fast, slow, gain.invert()
    text = (
        f"For {_describe_split(fast)}, {_get_transport(fast)} is {format_estimate(gain)} as fast as "
        f"{_get_transport(slow)}."
    )
    bars = (make_time_bar(_get_transport(fast), fast), make_time_bar(_get_transport(slow), slow))
    command = f"tessera halo exchange --sweep transport={_get_transport(fast)},{_get_transport(slow)}"
    return [Finding(feature="halo", text=text, command=command, bars=bars)]


def find_hidden_share(records: Sequence[Record]) -> list[Finding]:
    """Return the overlap that certainly hides the largest share of an exchange."""
    shares = [
        (record, share)
        for record in records
        if record.case.name == "compute" and record.status == "ok" and (share := read_share(record.metrics, "hidden"))
    ]
    certain = [(r, s) for r, s in shares if s.resolved and s.low is not None and s.high is not None and s.low > 0]
    if not certain:
        return []
    record, share = max(certain, key=lambda pair: pair[1].low or 0.0)
    assert share.low is not None
    assert share.high is not None
    text = (
        f"Overlap `{record.case.params.get('overlap')}` hides {_format_clipped(share.value)} "
        f"({_format_clipped(share.low)} to {_format_clipped(share.high)}) of the exchange behind a convolution of "
        f"{_describe_split(record)}."
    )
    command = (
        f"tessera halo compute --image-size {_format_image(record)} --sweep overlap=none,split,recompute "
        f"--num-spatial-parts {record.case.params.get('num_spatial_parts')}"
    )
    return [Finding(feature="halo", text=text, command=command)]


def _format_clipped(share: float) -> str:
    """Format a share of an exchange; more than all of it cannot be hidden."""
    return format_percent(min(1.0, max(0.0, share)))


def find_network_cost(records: Sequence[Record]) -> list[Finding]:
    """Return the time of a split network relative to the unsplit network on the same cores."""
    networks = [
        (record, seconds)
        for record in records
        if record.case.name == "network" and "uncut" in record.metrics and (seconds := estimate_precisely(record))
    ]
    certain = [
        (record, ratio)
        for record, seconds in networks
        if (ratio := seconds.scale(1 / record.metrics["uncut"].value)).low > 1 + MIN_DIFFERENCE
        or ratio.high < 1 - MIN_DIFFERENCE
    ]
    if not certain:
        return []
    record, ratio = min(certain, key=lambda pair: pair[1].value)
    step = "training step" if record.case.params.get("backward") else "forward pass"
    model, parts = record.case.params.get("model"), record.case.params.get("num_spatial_parts")
    text = (
        f"A {step} of {model} on an image of {_describe_split(record)} takes {format_estimate(ratio)} of the unsplit "
        f"network's time on the same cores."
    )
    uncut = record.metrics["uncut"].value
    bars = (make_time_bar(f"{parts} ranks", record), Bar(label="unsplit", value=uncut, text=format_seconds(uncut)))
    command = f"tessera halo explain {model} --image-size {_format_image(record)} --mesh 1x{parts}"
    return [Finding(feature="halo", text=text, command=command, bars=bars)]
