"""A suite: a named set of cases in a readable file, with a time budget."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.launch.fresh import resolve
from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.suites.features import feature

DATA = Path(__file__).parent / "data"
UNITS = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cases to run, how to sample each, in how many launches, and within how many seconds altogether."""

    name: str
    title: str
    budget: float
    launches: int
    sampling: Sampling
    cases: tuple[Case, ...]


def suite_names() -> list[str]:
    """The suites that come with Tessera, shortest first."""
    return ["quick", "standard", "nightly"]


def load_suite(name: str) -> Suite:
    """A shipped suite by name, or a suite file of one's own by its path."""
    path = DATA / f"{name}.toml" if name in suite_names() else Path(name)
    try:
        data = tomllib.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise TesseraError(
            "no such suite", got=name, allowed=suite_names(), do="or give a path to a .toml file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise TesseraError(f"{name} is not a suite file: {error}") from None
    return parse_suite(data, path.stem)


def parse_suite(data: dict[str, Any], name: str) -> Suite:
    """Check and expand what stands in a suite file."""
    allowed = ("title", "budget", "launches", "sampling", "cases")
    for key in data:
        if key not in allowed:
            raise TesseraError(f"suite {name}: unknown field", got=key, allowed=allowed)
    launches = data.get("launches", 1)
    if not isinstance(launches, int) or launches < 1:
        raise TesseraError(f"suite {name}: launches", got=launches, allowed="1 or more")
    blocks = data.get("cases", [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise TesseraError(f"suite {name}: cases are tables", do="write [[cases]] before each")
    cases = tuple(case for block in blocks for case in _expand(block, name))
    if not cases:
        raise TesseraError(f"suite {name} has no cases", do="add [[cases]] with a feature")
    return Suite(
        name=name,
        title=str(data.get("title", name)),
        budget=parse_duration(data.get("budget", "10 min")),
        launches=launches,
        sampling=_call(f"suite {name}: sampling", Sampling, data.get("sampling", {})),
        cases=cases,
    )


def _expand(block: dict[str, Any], suite: str) -> list[Case]:
    axes = dict(block)
    name = axes.pop("feature", None)
    found: list[Case] = _call(f"suite {suite}: {name}", resolve(feature(name).cases), axes)
    return found


def _call(what: str, function: Any, arguments: dict[str, Any]) -> Any:
    """Call with what stands in a file; a name that the function does not take is the file's mistake."""
    try:
        return function(**arguments)
    except TypeError as error:
        raise TesseraError(f"{what}: {error}", got=sorted(arguments)) from None


def parse_duration(text: str | float) -> float:
    """Seconds from `90`, `90s`, `4 min`, `1h`.

    >>> parse_duration("4 min")
    240.0
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(text))
    unit = UNITS.get(match[2] or "s") if match else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise TesseraError("not a duration", got=text, allowed="for example 90s, 4min, 1h")
    return float(match[1]) * unit
