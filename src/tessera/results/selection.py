"""Selection of stored readings: cases by name, glob or key, and parameters by value."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice

from tessera.errors import NothingComparable, TesseraError, suggest_similar
from tessera.results.observation import Reading
from tessera.results.record import Case
from tessera.results.store import Store


def select_readings(
    store: Store, patterns: Sequence[str], filters: Mapping[str, Sequence[str]], metric: str
) -> list[Reading]:
    """Return one metric of all stored records that match a pattern (a name, glob or key) and all filters."""
    stored_cases = store.list_cases()
    for pattern in patterns:
        if not any(_matches_case_name(pattern, *case) for case in stored_cases):
            raise _make_unknown_case_error(pattern, stored_cases)
    cases = [case for case in stored_cases if any(_matches_case_name(pattern, *case) for pattern in patterns)]
    readings = [
        reading
        for reading in store.read_history(metric, cases)
        if matches_filters(reading.case, filters) and any(_matches_case(pattern, reading.case) for pattern in patterns)
    ]
    if not readings:
        filter_text = ", ".join(f"{name}={','.join(values)}" for name, values in filters.items())
        raise NothingComparable("no record of these cases has these parameters", got=filter_text or ", ".join(patterns))
    if all(reading.metric is None for reading in readings):
        raise _make_metric_error(store, metric, cases)
    return readings


def is_case_key(word: str) -> bool:
    """Return whether a word is the key of a case.

    >>> is_case_key("ops/add[size=small]"), is_case_key("size=small")
    (True, False)
    """
    return re.fullmatch(r"[^/\[]+/[^\[]+\[.*=.*\]", word) is not None


def matches_filters(case: Case, filters: Mapping[str, Sequence[str]]) -> bool:
    """Return whether every filtered parameter of a case has one of the accepted values.

    >>> case = Case(feature="ops", name="add", params={"size": "small", "n": 8})
    >>> matches_filters(case, {"size": ["small"], "n": ["8"]})
    True
    """
    return all(
        name in case.params and not {str(case.params[name]), json.dumps(case.params[name])}.isdisjoint(values)
        for name, values in filters.items()
    )


def _matches_case(pattern: str, case: Case) -> bool:
    """Return whether a pattern equals the key of a case, or matches its name as a glob."""
    return pattern == case.key if is_case_key(pattern) else _matches_case_name(pattern, case.feature, case.name)


def _matches_case_name(pattern: str, feature: str, name: str) -> bool:
    """Return whether a pattern can match a case of this feature and name.

    The pattern is a glob for `name` or `feature/name`, or a key, whose parameters are ignored here.
    """
    glob = pattern.partition("[")[0] if is_case_key(pattern) else pattern
    return fnmatchcase(name, glob) or ("/" in glob and fnmatchcase(f"{feature}/{name}", glob))


def _make_unknown_case_error(pattern: str, stored_cases: Sequence[tuple[str, str]]) -> TesseraError:
    if not stored_cases:
        return NothingComparable("the store holds no records", do="run a suite first")
    instead = "`tessera export latest -o -` lists the cases of the newest run"
    do = suggest_similar(pattern.rpartition("/")[2], dict.fromkeys(name for _, name in stored_cases), instead)
    return TesseraError("no such case in the store", got=pattern, do=do)


def _make_metric_error(store: Store, metric: str, cases: Collection[tuple[str, str]]) -> TesseraError:
    """Build the error for a metric that no record has; it lists the metrics of the newest records."""
    records = (
        r
        for run in reversed(store.list_runs())
        for r in store.read_records(run)
        if (r.case.feature, r.case.name) in cases
    )
    metric_names = sorted({name for record in islice(records, 20) for name in record.metrics})
    if metric in metric_names:
        return NothingComparable("no record with these parameters has a value of this metric", got=metric)
    return TesseraError("no record of these cases has this metric", got=metric, allowed=metric_names)
