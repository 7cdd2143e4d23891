"""Numbers as people read them: three digits and a fitting unit."""

from __future__ import annotations

import math

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
# Units that take a prefix; words such as images/s do not.
_SYMBOLS = ("FLOP/s", "FLOP", "B/s", "OP/s", "Hz")


def format_seconds(seconds: float) -> str:
    """A time.

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
    return _scaled(seconds, _TIMES)


def format_bytes(count: float) -> str:
    """A size in memory, in powers of 1024.

    >>> [format_bytes(n) for n in (0, 512, 1536, 1.5 * 2**20, 2**30)]
    ['0 B', '512 B', '1.50 KiB', '1.50 MiB', '1.00 GiB']
    """
    if not math.isfinite(count) or abs(count) < 1023.5:
        return f"{count:.0f} B" if math.isfinite(count) else f"{count:g} B"
    return _scaled(count, _SIZES)


def format_rate(value: float, unit: str) -> str:
    """Something per second, or any other figure: symbols get a prefix, words thousands marks.

    >>> format_rate(1.234e9, "FLOP/s"), format_rate(12345.6, "images/s"), format_rate(0.5, "images/s")
    ('1.23 GFLOP/s', '12,346 images/s', '0.500 images/s')
    """
    if unit in _SYMBOLS and math.isfinite(value) and abs(value) >= 999.5:
        return _scaled(value, tuple((scale, prefix + unit) for scale, prefix in _PREFIXES))
    return f"{_digits(value)} {unit}".rstrip()


def format_value(value: float, unit: str) -> str:
    """A figure of a record in the record's unit.

    >>> format_value(0.25, "s"), format_value(2048, "B"), format_value(3, "")
    ('250 ms', '2.00 KiB', '3.00')
    """
    if unit == "s":
        return format_seconds(value)
    if unit in ("B", "bytes"):
        return format_bytes(value)
    return format_rate(value, unit)


def format_percent(share: float, *, signed: bool = False) -> str:
    """A share or, signed, a change.

    >>> format_percent(0.031), format_percent(0.1, signed=True), format_percent(-0.25, signed=True)
    ('3.1%', '+10.0%', '-25.0%')
    """
    return f"{share:+.1%}" if signed else f"{share:.1%}"


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    """Three digits in the largest unit that leaves one before the point, after rounding."""
    for scale, name in units:
        if abs(value) >= scale * 0.9995:
            return f"{_digits(value / scale)} {name}"
    scale, name = units[-1]
    return f"{_digits(value / scale)} {name}"


def _digits(value: float) -> str:
    if not math.isfinite(value):
        return f"{value:g}"
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    if 0 < size < 0.001:
        return f"{value:.2e}"
    return f"{value:.{1 if size >= 9.995 else 2 if size >= 0.9995 else 3}f}"
