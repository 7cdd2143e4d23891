"""Suites: named sets of cases in TOML files, with a time budget."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError, get_first_line, suggest_similar
from tessera.launch.fresh import load_object
from tessera.measure.samples import Sampling
from tessera.results.record import Case
from tessera.suites.features import get_feature
from tessera.validation import check_fields, check_value, parse_toml, read_bounded

SUITE_DIRECTORY = Path(__file__).parent / "data"
MAX_LAUNCHES = 10_000
MAX_CASES = 100_000  # of one block
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


def load_suite(name: str, *, allow_code: bool = False) -> Suite:
    """Load a shipped suite by its name, or a suite file by its path.

    A suite file of a user that names Python code (`module:callable`, a `.py` file) is refused unless `allow_code` is
    set, because listing its cases would already run the code.
    """
    path = SUITE_DIRECTORY / f"{name}.toml" if name in list_suites() else Path(name)
    try:
        data = parse_toml(read_bounded(path))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise TesseraError(
            "unknown suite",
            got=name,
            allowed=[*list_suites(), "a path to a TOML file"],
            do=suggest_similar(name, list_suites()),
        ) from None
    except (ValueError, OSError) as error:  # not TOML, not UTF-8, or not readable
        raise TesseraError(f"{name} is not a suite file: {error}") from None
    shipped = name in list_suites()
    return parse_suite(data, path.stem, allow_code=allow_code or shipped)


def parse_suite(data: dict[str, Any], name: str, *, allow_code: bool = False) -> Suite:
    """Check the contents of a suite file and expand its cases; see `load_suite` for `allow_code`."""
    allowed = ("title", "budget", "launches", "sampling", "cases")
    for key in data:
        if key not in allowed:
            raise TesseraError(f"suite {name}: unknown field", got=key, allowed=allowed)
    launches = data.get("launches", 1)
    check_value(int, launches, f"suite {name}: launches")
    if not 1 <= launches <= MAX_LAUNCHES:
        raise TesseraError(f"suite {name}: invalid value of launches", got=launches, allowed=f"1 to {MAX_LAUNCHES}")
    check_value(str, data.get("title", ""), f"suite {name}: title")
    check_fields(Sampling, data.get("sampling", {}), f"suite {name}: sampling")
    blocks = data.get("cases", [])
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise TesseraError(f"suite {name}: cases must be TOML tables", do="write [[cases]] before each block")
    cases: list[Case] = []
    for block in blocks:
        _check_count(block, name)
        if not allow_code:
            _check_no_code(block, name)
        cases += _expand_cases(block, name)
    if not cases:
        raise TesseraError(f"suite {name} has no cases", do="add a [[cases]] block with a feature")
    return Suite(
        name=name,
        title=data.get("title", name),
        budget=parse_duration(data.get("budget", "10 min")),
        launches=launches,
        sampling=_call_with_arguments(f"suite {name}: sampling", Sampling, data.get("sampling", {})),
        cases=tuple(cases),
    )


def _check_count(block: dict[str, Any], suite: str) -> None:
    """Raise an error before the combinations of a block are expanded if there are too many of them."""
    count = math.prod(len(values) for values in block.values() if isinstance(values, list) and values)
    if count > MAX_CASES:
        raise TesseraError(f"suite {suite}: too many cases", got=f"{count:,}", allowed=f"up to {MAX_CASES:,} per block")


# `module:callable`, `folder/file.py:callable` and `file.py`; not devices such as `cuda:0`.
_CODE_PATTERN = re.compile(r"(?s).*:\s*[^\W\d].*|.*\.py\b.*")


def _check_no_code(block: dict[str, Any], suite: str) -> None:
    for values in block.values():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, str) and _CODE_PATTERN.fullmatch(value):
                raise TesseraError(
                    f"suite {suite} names code to run", got=value, do="add --allow-code if you trust the suite file"
                )


def _expand_cases(block: dict[str, Any], suite: str) -> list[Case]:
    axes = dict(block)
    name = axes.pop("feature", None)
    check_value(str, name, f"suite {suite}: feature")
    check_value(dict[str, Any], axes, f"suite {suite}: {name}")
    hook = get_feature(name).cases
    if not hook:
        raise TesseraError(
            f"suite {suite}: this feature cannot be part of a suite", got=name, do=f"use `tessera {name}`"
        )
    expanded: list[Case] = _call_with_arguments(f"suite {suite}: {name}", load_object(hook), axes)
    return expanded


def _call_with_arguments(context: str, function: Any, arguments: dict[str, Any]) -> Any:
    """Call a function with arguments from a suite file; raise an error that names `context` for invalid arguments."""
    try:
        return function(**arguments)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise TesseraError(f"{context}: {get_first_line(error)}", got=sorted(arguments)) from None


def parse_duration(text: str | float) -> float:
    """Parse a duration such as `90`, `90s`, `4 min` or `1h`, and return seconds.

    >>> parse_duration("4 min")
    240.0
    """
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(text))
    unit = SECONDS_PER_UNIT.get(match[2] or "s") if match else None
    if match is None or unit is None or not 0 < float(match[1]) < math.inf:
        raise TesseraError("not a duration", got=text, allowed="for example 90s, 4min, 1h")
    return float(match[1]) * unit
