"""The cases of a user's own benchmark functions: one case per combination of axis values."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from tessera.errors import TesseraError, suggest_similar
from tessera.functions.benchmark import Benchmark, get_benchmark, load_benchmarks, share_with_workers
from tessera.launch import LaunchConfig
from tessera.launch.worker import Worker
from tessera.results.record import Case

FEATURE = "function"  # feature name in case keys


class LocatedCase(NamedTuple):
    """A case of a benchmark function, with the file and the line that define the function."""

    case: Case
    file: str
    line: int


def cases(file: str, names: Sequence[str] = ("*",), **axes: Sequence[Any]) -> list[Case]:
    """Return the cases of the benchmarks in a file; `axes` replaces values of axes that the benchmarks declare."""
    return make_cases(select_benchmarks(file, names), axes)


def select_benchmarks(file: str, names: Sequence[str] = ("*",)) -> list[Benchmark]:
    """Load a benchmark file in this process and in later workers; return the benchmarks that match names or globs."""
    loaded = load_benchmarks(file)
    share_with_workers(loaded)
    for name in names:
        if not any(fnmatchcase(entry.name, name) for entry in loaded):
            known = [entry.name for entry in loaded]
            raise TesseraError(
                "the file has no benchmark of this name", got=name, allowed=known, do=suggest_similar(name, known)
            )
    return [entry for entry in loaded if any(fnmatchcase(entry.name, name) for name in names)]


def load_files(worker: Worker, files: Sequence[str]) -> list[LocatedCase]:
    """Load benchmark files in this process, and return the cases of all benchmarks (worker function).

    The files may import packages that only the interpreter of the worker has.
    """
    loaded: dict[str, Benchmark] = {}
    for file in files:
        for entry in load_benchmarks(file):
            if entry.name in loaded:
                raise TesseraError("two files define a benchmark of the same name", got=entry.name, do="rename one")
            loaded[entry.name] = entry
    return [
        LocatedCase(case, entry.file, entry.function.__code__.co_firstlineno)
        for entry in loaded.values()
        for case in expand_cases(entry)
    ]


def make_cases(benchmarks: Sequence[Benchmark], axes: Mapping[str, Sequence[Any]]) -> list[Case]:
    """Return the cases of benchmarks; `axes` replaces values of axes, each declared by at least one benchmark."""
    declared = {axis for entry in benchmarks for axis in entry.axes}
    for axis in axes:
        if axis not in declared:
            raise TesseraError(
                "no selected benchmark has this axis", got=axis, allowed=declared, do=suggest_similar(axis, declared)
            )
    return [case for entry in benchmarks for case in expand_cases(entry, **axes)]


def expand_cases(entry: Benchmark, **axes: Sequence[Any]) -> list[Case]:
    """Return one case per combination of axis values of one benchmark.

    >>> from tessera.functions.benchmark import benchmark
    >>> @benchmark(size=[1, 2], dtype=["float32"])
    ... def add(size, dtype):
    ...     return size
    >>> [case.key for case in expand_cases(add)]
    ['function/add[dtype=float32,size=1]', 'function/add[dtype=float32,size=2]']
    """
    values = {axis: axes.get(axis, default) for axis, default in entry.axes.items()}
    return [
        Case(feature=FEATURE, name=entry.name, params=dict(zip(values, combination, strict=True)))
        for combination in itertools.product(*values.values())
    ]


def choose_launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """Return the launch configuration of a case: inline for a function that workers cannot import (launch hook).

    A function of an interactive session has no file, so only this process can call it.
    """
    if get_benchmark(case.name).file:
        return base
    return replace(base, spawn="inline", workers=1)
