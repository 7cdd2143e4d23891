"""`tessera.cases`, `tessera.run` and `tessera.compare`: run cases of any feature from Python and compare the runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, overload

from tessera.errors import NothingComparable, TesseraError
from tessera.functions.benchmark import Benchmark, check_not_loading, share_with_workers
from tessera.functions.cases import expand_cases
from tessera.launch import LaunchConfig
from tessera.launch.fresh import load_object
from tessera.measure.samples import Sampling
from tessera.results.compare import Comparison
from tessera.results.compare import compare as compare_records
from tessera.results.export import read_source
from tessera.results.record import Case, Record
from tessera.results.store import Run, Store
from tessera.suites.features import get_feature
from tessera.suites.plan import RunPlan
from tessera.suites.run import run_plan
from tessera.suites.suite import load_suite
from tessera.tabular import Tabular

Runnable = Case | Benchmark | str


@dataclass(frozen=True, slots=True)
class RunResult(Tabular):
    """The records of one run, in the order of its cases. It behaves like a sequence of records."""

    run: Run
    records: tuple[Record, ...]

    @property
    def name(self) -> str:
        """The name of the run in its store."""
        return self.run.name

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Record, ...]: ...

    def __getitem__(self, index: int | slice) -> Record | tuple[Record, ...]:
        return self.records[index]

    def to_rows(self) -> list[dict[str, Any]]:
        return [row for record in self.records for row in record.to_rows()]

    def to_dict(self) -> dict[str, Any]:
        """Return the run and its records as plain values, samples included."""
        return {"run": self.run.name, "records": [record.to_dict() for record in self.records]}


class _ProgressPrinter:
    """A listener that prints one line per finished launch to standard error, or nothing."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def on_start(self, case: Case, launch: int) -> None:
        pass

    def on_end(self, record: Record, launch: int) -> None:
        if not self._quiet:
            print(f"{record.case.key}: launch {launch}: {record.status}", file=sys.stderr)


def cases(feature: str, **axes: Any) -> list[Case]:
    """Return the cases of a feature for every combination of axis values; `axes` are the keys of a suite's `[[cases]]`.

    >>> [case.key for case in cases("ops", names=["add"], size=["small"], passes=["forward"])]
    ['ops/add[backend=torch,dtype=float32,pass=forward,seed=0,size=small]']
    """
    try:
        expanded: list[Case] = load_object(get_feature(feature).cases)(**axes)
    except TypeError as error:
        raise TesseraError(f"invalid arguments for cases of {feature}: {error}", got=sorted(axes)) from None
    return expanded


def run(
    what: Runnable | Iterable[Runnable],
    *,
    name: str | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    launches: int = 3,
    budget: float | None = None,
    target: float | None = None,
    warmup: int | None = None,
    iterations: int | None = None,
    threads: int = 1,
    quiet: bool = False,
) -> RunResult:
    """Run cases, each in `launches` fresh pinned processes, and store the records.

    `what` is a case, a function decorated with `@tessera.benchmark`, the name of a shipped suite or a path to a suite
    file, or a list of these. `store` is an open `Store` or a path (default: `$TESSERA_STORE` or
    `.tessera/results.sqlite`). `budget`, `target`, `warmup` and `iterations` are as in `tessera.time`, for each case
    and launch. A script must call this function under `if __name__ == "__main__":`, because workers import the script.

    Raises:
        TesseraError: every case was refused, or the cases cannot be run.
    """
    check_not_loading()
    items = [what] if isinstance(what, Runnable) else list(what)
    share_with_workers([item for item in items if isinstance(item, Benchmark)])
    selected = tuple({case.key: case for item in items for case in _expand_item(item)}.values())
    if not selected:
        raise TesseraError("no cases to run", got=what)
    if any(isinstance(item, Benchmark) and not item.file for item in items):
        launches = 1  # a function defined in an interactive session runs in this process, so there is one launch
    options = {"budget": budget, "target": target, "warmup": warmup, "iterations": iterations}
    plan = RunPlan(
        cases=selected,
        sampling=Sampling(**{option: value for option, value in options.items() if value is not None}),  # type: ignore[arg-type]
        launch=LaunchConfig(threads=threads),
        launches=launches,
    )
    with nullcontext(store) if isinstance(store, Store) else Store(store) as opened:
        started = opened.start_run(name, command="tessera.run()", suite="api")
        try:
            run_plan(plan, opened, started, _ProgressPrinter(quiet))
        except BaseException:
            if not opened.count_statuses(started):
                opened.delete_run(started)
            raise
        records = tuple(opened.read_records(started))
        if all(record.status == "refused" for record in records):
            opened.delete_run(started)
            raise TesseraError(records[0].reason)
        return RunResult(opened.finish_run(started), records)


def _expand_item(item: Runnable) -> Sequence[Case]:
    if isinstance(item, Case):
        return [item]
    if isinstance(item, Benchmark):
        return expand_cases(item)
    return load_suite(item).cases


def compare(
    before: RunResult | Iterable[Record] | str,
    after: RunResult | Iterable[Record] | str,
    *,
    threshold: float = 0.03,
    store: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Compare two runs case by case: faster, slower, same or unresolved.

    Each side is the result of `tessera.run`, a list of records, the name of a stored run (`latest`, `latest~1`) or a
    file written by `tessera export`. `threshold` is the smallest relative change that matters.
    """
    sides = [
        read_source(side, None if store is None else str(store)).observations if isinstance(side, str) else list(side)
        for side in (before, after)
    ]
    for label, observations in zip(("before", "after"), sides, strict=True):
        if not observations:
            raise NothingComparable(f"the run `{label}` has no records")
    return compare_records(*sides, threshold=threshold)
