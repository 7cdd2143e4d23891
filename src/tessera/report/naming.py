"""Short names for cases as plain words, such as `softmax small forward`.

A name holds only the parameters that are necessary to tell the cases of a feature apart. A value that nearly all cases
share, such as the backend torch, is left out of names as well; `describe_shared_params` states it once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.report.blocks import Cell
from tessera.report.record_tables import format_param, split_params
from tessera.report.runs import RunView
from tessera.results.record import Case

# A text value of at least this fraction of the cases is left out of their names.
DEFAULT_FRACTION = 0.7


@dataclass(frozen=True, slots=True)
class CaseName:
    """The names of a case: its key, its feature, and a short name within the feature, e.g. `add small`."""

    key: str
    feature: str
    words: str

    @property
    def cell(self) -> Cell:
        """Table cell with the short name, and the key as its tooltip."""
        return Cell(self.words, hint=self.key)

    @property
    def phrase(self) -> str:
        """The feature and the short name."""
        return f"{self.feature} {self.words}"

    def __str__(self) -> str:
        return self.phrase


CaseNames = Mapping[str, CaseName]


def name_cases_of_runs(runs: Sequence[RunView]) -> CaseNames:
    """Return the names of all cases in some runs, by case key."""
    return name_cases([record.case for run in runs for record in run.records])


def name_cases(cases: Sequence[Case]) -> CaseNames:
    """Return the names of some cases, by case key.

    >>> cases = [Case(feature="ops", name="add", params={"size": size, "seed": 0}) for size in ("small", "large")]
    >>> [name.words for name in name_cases(cases).values()]
    ['add small', 'add large']
    """
    names = {}
    for feature in dict.fromkeys(case.feature for case in cases):
        distinct = list({case.key: case for case in cases if case.feature == feature}.values())
        params, defaults = _choose_params(distinct)
        words: dict[str, str] = {}
        for name in dict.fromkeys(case.name for case in distinct):
            own = [case for case in distinct if case.name == name]
            needed = _drop_numbers(own, params, defaults)
            words |= {case.key: _join_words(case, needed, defaults) for case in own}
        counts = Counter(words.values())
        for key, text in words.items():
            unique = counts[text] == 1
            names[key] = CaseName(key, feature, text if unique else key.removeprefix(f"{feature}/"))
    return names


def describe_shared_params(cases: Sequence[Case]) -> str:
    """Return the parameters that the names of cases of one feature leave out because (nearly) all cases share them.

    >>> cases = [Case(feature="ops", name=name, params={"dtype": "float32", "seed": 0}) for name in ("add", "exp")]
    >>> describe_shared_params(cases)
    'dtype float32, seed 0'
    >>> lower = Case(feature="ops", name="add", params={"dtype": "bfloat16", "seed": 0})
    >>> more = [Case(feature="ops", name=name, params={"dtype": "float32", "seed": 0}) for name in ("sum", "sin")]
    >>> describe_shared_params([*cases, *more, lower])
    'seed 0; else dtype float32'
    """
    _, fixed = split_params(cases)
    _, defaults = _choose_params(list({case.key: case for case in cases}.values()))
    shared, usual = (
        ", ".join(f"{_spell(name)} {value}" for name, value in values.items()) for values in (fixed, defaults)
    )
    return "; ".join(filter(None, [shared, f"else {usual}" if usual else ""]))


def _choose_params(cases: Sequence[Case]) -> tuple[list[str], dict[str, str]]:
    """Return the parameters that names consist of, and the text values that are left out of names."""
    params, _ = split_params(cases) if cases else ([], {})
    # Numbers and lists are dropped before words, which are easier to read.
    for name in sorted(params, key=lambda name: all(isinstance(c.params.get(name, ""), str) for c in cases)):
        rest = [each for each in params if each != name]
        if _are_distinct(cases, rest, {}):
            params = rest
    defaults: dict[str, str] = {}
    for name in params:
        values = [case.params.get(name) for case in cases]
        texts = Counter(value for value in values if isinstance(value, str))
        value, count = texts.most_common(1)[0] if texts else ("", 0)
        if count >= DEFAULT_FRACTION * len(cases) and _are_distinct(cases, params, {**defaults, name: value}):
            defaults[name] = value
    return params, defaults


def _drop_numbers(cases: Sequence[Case], params: Sequence[str], defaults: Mapping[str, str]) -> list[str]:
    """Return the parameters without the numbers and lists that cases of one name do not need to be told apart."""
    kept = list(params)
    for name in params:
        rest = [each for each in kept if each != name]
        texts = all(isinstance(case.params.get(name, ""), str | bool) for case in cases)
        if not texts and _are_distinct(cases, rest, defaults):
            kept = rest
    return kept


def _are_distinct(cases: Sequence[Case], params: Sequence[str], defaults: Mapping[str, str]) -> bool:
    return len({_join_words(case, params, defaults) for case in cases}) == len(cases)


def _join_words(case: Case, params: Iterable[str], defaults: Mapping[str, str]) -> str:
    words = [
        _format_word(name, case.params[name])
        for name in params
        if name in case.params and case.params[name] != defaults.get(name)
    ]
    return " ".join(filter(None, [case.name, *words]))


def _format_word(name: str, value: Any) -> str:
    """Return the words of a parameter: a text as it is, a flag by its name, a number after its name."""
    if isinstance(value, bool):
        return _spell(name) if value else f"no {_spell(name)}"
    if isinstance(value, str):
        return value
    return f"{_spell(name)} {format_param(value)}"


def _spell(name: str) -> str:
    return name.replace("_", " ")
