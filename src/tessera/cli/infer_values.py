"""How the values of `tessera infer` are read: sizes in lists and ranges, latencies with their unit, yes and no."""

from __future__ import annotations

import math
import re

from tessera.cli.options import names, parse_fraction
from tessera.errors import TesseraError

LATENCIES = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
MOST_SIZES = 1000


def sizes(text: str) -> list[int]:
    """Numbers in a list; `A..B` doubles from A on and ends with B, `A..B:S` goes in steps of S.

    >>> sizes("1,2,4..80"), sizes("1..10:3")
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 4, 7, 10])
    """
    found: list[int] = []
    for word in names(text):
        match = re.fullmatch(r"(\d+)(?:\.\.(\d+)(?::(\d+))?)?", word)
        if match is None:
            raise TesseraError("not a list of sizes", got=text, allowed="for example 8 or 1,2,4..80 or 1..80:8")
        first, last, step = (None if part is None else int(part) for part in match.groups())
        assert first is not None
        found += [first] if last is None else _range(word, first, last, step)
    if not found:
        raise TesseraError("no sizes", got=text, allowed="for example 8 or 1,2,4..80")
    return list(dict.fromkeys(found))


def _range(word: str, first: int, last: int, step: int | None) -> list[int]:
    if first < 1 or last < first or step == 0:
        raise TesseraError("not a range of sizes", got=word, allowed="A..B with A of 1 or more and B not below it")
    if step is not None and (last - first) // step >= MOST_SIZES:
        raise TesseraError("too many sizes", got=word, allowed=f"at most {MOST_SIZES}")
    found = [first]
    while found[-1] < last:
        found.append(found[-1] + step if step else 2 * found[-1])
    if found[-1] > last:
        found.pop()
    return found if step or found[-1] == last else [*found, last]


def latency(text: str) -> float:
    """Seconds from `50ms`, `0.2s`.

    >>> latency("50ms")
    0.05
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zµ]+)\s*", text)
    if match is None or match[2] not in LATENCIES or float(match[1]) <= 0:
        raise TesseraError("not a latency", got=text, allowed="for example 50ms or 0.2s")
    return float(match[1]) * LATENCIES[match[2]]


def yes_or_no(text: str) -> bool:
    """As in `--numa-aware=yes`."""
    if text not in ("yes", "no"):
        raise TesseraError("not yes or no", got=text, allowed="yes, no")
    return text == "yes"


def rate(text: str) -> float:
    """Images per second."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise TesseraError("not a rate", got=text, allowed="images per second, above 0")
    return value


def share(text: str) -> float:
    """A fraction that may be all of it.

    >>> share("100%"), share("0.95")
    (1.0, 0.95)
    """
    return 1.0 if text in ("1", "1.0", "100%") else parse_fraction(text)
