"""Suites: named sets of cases in TOML files, with a time budget."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.launch.fresh import load_object
from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.suites.features import get_feature

SUITE_DIRECTORY = Path(__file__).parent / "data"
SECONDS_PER_UNIT = {"s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """The cases of a suite, their sampling settings, the launches per case, and the budget of the run in seconds."""

    name: str
    title: str
    budget: float
    launches: int
    sampling: Sampling
    cases: tuple[Case, ...]


def list_suites() -> list[str]:
    """Return the names of the suites that Tessera ships, in order of duration."""
    return ["quick", "standard", "nightly"]


def load_suite(name: str) -> Suite:
    """Load a shipped suite by its name, or a suite file by its path."""
    path = SUITE_DIRECTORY / f"{name}.toml" if name in list_suites() else Path(name)
    try:
        data = tomllib.loads(path.read_text())
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise TesseraError("unknown suite", got=name, allowed=[*list_suites(), "a path to a TOML file"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise TesseraError(f"{name} is not a suite file: {error}") from None
    return parse_suite(data, path.stem)


def parse_suite(data: dict[str, Any], name: str) -> Suite:
    """Check the contents of a suite file and expand its cases."""
    allowed = ("title", "budget", "launches", "sampling", "cases")
    for key in data:
        if key not in allowed:
            raise TesseraError(f"suite {name}: unknown field", got=key, allowed=allowed)
    launches = data.get("launches", 1)
    if not isinstance(launches, int) or launches < 1:
        raise TesseraError(f"suite {name}: invalid value of launches", got=launches, allowed="1 or more")
    blocks = data.get("cases", [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise TesseraError(f"suite {name}: cases must be TOML tables", do="write [[cases]] before each block")
    cases = tuple(case for block in blocks for case in _expand_cases(block, name))
    if not cases:
        raise TesseraError(f"suite {name} has no cases", do="add a [[cases]] block with a feature")
    return Suite(
        name=name,
        title=str(data.get("title", name)),
        budget=parse_duration(data.get("budget", "10 min")),
        launches=launches,
        sampling=_call_with_arguments(f"suite {name}: sampling", Sampling, data.get("sampling", {})),
        cases=cases,
    )


def _expand_cases(block: dict[str, Any], suite: str) -> list[Case]:
    axes = dict(block)
    name = axes.pop("feature", None)
    hook = get_feature(name).cases
    if not hook:
        raise TesseraError(
            f"suite {suite}: this feature cannot be part of a suite", got=name, do=f"use `tessera {name}`"
        )
    expanded: list[Case] = _call_with_arguments(f"suite {suite}: {name}", load_object(hook), axes)
    return expanded


def _call_with_arguments(context: str, function: Any, arguments: dict[str, Any]) -> Any:
    """Call a function with arguments from a suite file; raise an error that names `context` for unknown arguments."""
    try:
        return function(**arguments)
    except TypeError as error:
        raise TesseraError(f"{context}: {error}", got=sorted(arguments)) from None


def parse_duration(text: str | float) -> float:
    """Parse a duration such as `90`, `90s`, `4 min` or `1h`, and return seconds.

    >>> parse_duration("4 min")
    240.0
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(text))
    unit = SECONDS_PER_UNIT.get(match[2] or "s") if match else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise TesseraError("not a duration", got=text, allowed="for example 90s, 4min, 1h")
    return float(match[1]) * unit
