"""Parsing of option values: lists and ranges of sizes, latencies, rates."""

from __future__ import annotations

import math
import re

from tessera.axes import parse_fraction, split_list
from tessera.errors import TesseraError

LATENCY_UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
MAX_SIZES = 1000
ALL_SIZES = "all"  # value of --batch-size that stands for all batch sizes of the config


def parse_sizes(text: str) -> list[int]:
    """Parse a list of integers; `A..B` doubles from A up to B, `A..B:S` goes from A up to B in steps of S.

    >>> parse_sizes("1,2,4..80"), parse_sizes("1..10:3")
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 4, 7, 10])
    """
    sizes: list[int] = []
    for word in split_list(text):
        match = re.fullmatch(r"(\d+)(?:\.\.(\d+)(?::(\d+))?)?", word)
        if match is None:
            raise TesseraError("not a list of sizes", got=text, allowed="for example 8 or 1,2,4..80 or 1..80:8")
        first, last, step = (None if part is None else int(part) for part in match.groups())
        assert first is not None
        sizes += [first] if last is None else _expand_range(word, first, last, step)
    if not sizes:
        raise TesseraError("the list of sizes is empty", got=text, allowed="for example 8 or 1,2,4..80")
    return list(dict.fromkeys(sizes))


def parse_batch_sizes(text: str) -> list[int | str]:
    """Parse a list of batch sizes, or `all` for the batch sizes of the config."""
    return [ALL_SIZES] if text == ALL_SIZES else [*parse_sizes(text)]


def _expand_range(word: str, first: int, last: int, step: int | None) -> list[int]:
    if first < 1 or last < first or step == 0:
        raise TesseraError(
            "invalid range of sizes", got=word, allowed="A..B or A..B:STEP with 1 <= A <= B and STEP >= 1"
        )
    if step is not None and (last - first) // step >= MAX_SIZES:
        raise TesseraError("too many sizes", got=word, allowed=f"at most {MAX_SIZES}")
    sizes = [first]
    while sizes[-1] < last:
        sizes.append(sizes[-1] + step if step else 2 * sizes[-1])
    if sizes[-1] > last:
        sizes.pop()
    return sizes if step or sizes[-1] == last else [*sizes, last]


def parse_latency(text: str) -> float:
    """Parse a latency with a unit, such as `50ms`; return seconds.

    >>> parse_latency("50ms")
    0.05
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zµ]+)\s*", text)
    if match is None or match[2] not in LATENCY_UNITS or float(match[1]) <= 0:
        raise TesseraError("not a latency", got=text, allowed="for example 50ms or 0.2s")
    return float(match[1]) * LATENCY_UNITS[match[2]]


def parse_yes_no(text: str) -> bool:
    """Parse `yes` or `no`; return a bool."""
    if text not in ("yes", "no"):
        raise TesseraError("not yes or no", got=text, allowed="yes, no")
    return text == "yes"


def parse_rate(text: str) -> float:
    """Parse a rate in images per second."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise TesseraError("not a rate", got=text, allowed="images per second, above 0")
    return value


def parse_share(text: str) -> float:
    """Parse a fraction above 0 and up to 1, or a percentage.

    >>> parse_share("100%"), parse_share("0.95")
    (1.0, 0.95)
    """
    return 1.0 if text in ("1", "1.0", "100%") else parse_fraction(text)
