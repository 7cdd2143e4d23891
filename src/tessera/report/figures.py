"""Number formatting: three significant digits and a readable unit."""

from __future__ import annotations

import math

from tessera.results.metrics import MetricFormat

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZE_UNITS = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SI_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# Units that take an SI prefix; units that are words, such as images/s, do not.
_UNITS_WITH_SI_PREFIX = ("FLOP/s", "FLOP", "B/s", "OP/s", "Hz")


def format_seconds(seconds: float) -> str:
    """Format a duration in seconds.

    >>> [format_seconds(t) for t in (1.23e-5, 0.9996e-3, 2.5, 0.0, 200.0, 7322.0)]
    ['12.3 µs', '1.00 ms', '2.50 s', '0 s', '3 min 20 s', '2 h 2 min']
    """
    if seconds == 0 or not math.isfinite(seconds):
        return f"{seconds:g} s"
    if abs(seconds) >= 119.5:
        minutes, rest = divmod(round(abs(seconds)), 60)
        sign = "-" if seconds < 0 else ""
        if minutes < 60:
            return f"{sign}{minutes} min {rest} s"
        return f"{sign}{minutes // 60} h {minutes % 60} min"
    return _format_scaled(seconds, _TIME_UNITS)


def format_bytes(count: float) -> str:
    """Format a size in memory, in powers of 1024.

    >>> [format_bytes(n) for n in (0, 512, 1536, 1.5 * 2**20, 2**30)]
    ['0 B', '512 B', '1.50 KiB', '1.50 MiB', '1.00 GiB']
    """
    if not math.isfinite(count) or abs(count) < 1023.5:
        return f"{count:.0f} B" if math.isfinite(count) else f"{count:g} B"
    return _format_scaled(count, _SIZE_UNITS)


def format_rate(value: float, unit: str) -> str:
    """Format a rate: unit symbols (FLOP/s) get an SI prefix, unit words (images/s) a thousands separator.

    >>> format_rate(1.234e9, "FLOP/s"), format_rate(12345.6, "images/s"), format_rate(0.5, "images/s")
    ('1.23 GFLOP/s', '12,346 images/s', '0.500 images/s')
    """
    if unit in _UNITS_WITH_SI_PREFIX and math.isfinite(value) and abs(value) >= 999.5:
        return _format_scaled(value, tuple((scale, prefix + unit) for scale, prefix in _SI_PREFIXES))
    return f"{_format_digits(value)} {unit}".rstrip()


def format_value(value: float, unit: str) -> str:
    """Format a value with its unit, scaled to a readable prefix.

    >>> format_value(0.25, "s"), format_value(2048, "B"), format_value(3, "")
    ('250 ms', '2.00 KiB', '3.00')
    """
    if unit == "s":
        return format_seconds(value)
    if unit in ("B", "bytes"):
        return format_bytes(value)
    return format_rate(value, unit)


def format_metric(value: float, unit: str, format: MetricFormat) -> str:
    """Format the value of a metric in a declared metric format.

    >>> [format_metric(0.0123456, "", form) for form in ("percent", "whole percent", "count", "error", "correlation")]
    ['1.2%', '1%', '0', '1.2e-02', '0.012346']
    """
    if format == "unit":
        return format_value(value, unit)
    if format == "bare":
        return format_rate(value, "")
    if format == "percent":
        return format_percent(value)
    if format == "whole percent":
        return f"{value:.0%}"
    if format == "error":
        return f"{value:.1e}" if value else "0"
    return f"{value:.{_DECIMAL_PLACES[format]}f}" if math.isfinite(value) else f"{value:g}"


_DECIMAL_PLACES: dict[MetricFormat, int] = {"count": 0, "ratio": 4, "correlation": 6}


def format_percent(share: float, *, signed: bool = False) -> str:
    """Format a fraction in per cent; with `signed`, with its sign, as for a change.

    >>> format_percent(0.031), format_percent(0.1, signed=True), format_percent(-0.25, signed=True)
    ('3.1%', '+10.0%', '-25.0%')
    """
    return f"{share:+.1%}" if signed else f"{share:.1%}"


def format_factor(ratio: float) -> str:
    """Format a ratio as a factor with three significant digits.

    >>> format_factor(2.0), format_factor(0.0276), format_factor(151.3)
    ('2.00x', '0.028x', '151x')
    """
    return f"{_format_digits(ratio)}x"


def format_change(change: float) -> str:
    """Format a relative change: in per cent up to a factor of 2, beyond as a factor.

    >>> [format_change(change) for change in (0.031, -0.25, 1.5, 58.84, -0.75)]
    ['+3.1%', '-25.0%', '2.50x', '59.8x', '0.250x']
    """
    return format_percent(change, signed=True) if -0.5 <= change <= 1 else format_factor(1 + change)


def _format_scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Format a value with three significant digits, in the largest unit in which it is at least 1."""
    for scale, name in units:
        if abs(value) >= scale * 0.9995:
            return f"{_format_digits(value / scale)} {name}"
    scale, name = units[-1]
    return f"{_format_digits(value / scale)} {name}"


def _format_digits(value: float) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if 0 < size < 0.001:
        return f"{value:.2e}"
    return f"{value:.{1 if size >= 9.995 else 2 if size >= 0.9995 else 3}f}"
