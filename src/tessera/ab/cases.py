"""Cases of an A/B comparison: cases of another feature, with the labels of both sides as extra parameters."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.launch.commands import THREAD_VARIABLES
from tessera.results.record import Case, Record

BURST_TIME_LIMIT = 300.0  # time limit of one burst in seconds; a callable that hangs ends the comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a comparison: an interpreter, and the environment variables that it is started with."""

    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name of the side in case keys and tables.

        >>> Side(env={"OMP_NUM_THREADS": "2"}).label
        'this OMP_NUM_THREADS=2'
        """
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return " ".join(["this" if self.python == sys.executable else self.python, *variables])

    def configure_launch(self, *, threads: int, allocator: str) -> LaunchConfig:
        """Return the launch configuration of the interpreters of this side.

        A variable that sets the number of threads also sets the number of cores that the side is pinned to.
        """
        counts = sorted({self.env[name] for name in THREAD_VARIABLES if name in self.env}) or [str(threads)]
        if len(counts) > 1 or not counts[0].isdecimal():
            raise TesseraError(
                "the thread variables of one side must all have the same number",
                got=" and ".join(counts),
                do=f"set {', '.join(THREAD_VARIABLES)} to one number",
            )
        return LaunchConfig(
            threads=int(counts[0]), allocator=allocator, python=self.python, env=self.env, time_limit=BURST_TIME_LIMIT
        )


def pair_cases(cases: Iterable[Case], a: Side, b: Side) -> list[Case]:
    """Return the cases of another feature as cases of an A/B comparison of two sides."""
    labels = {"a": a.label, "b": b.label}
    return [Case(feature="ab", name=case.name, params={**case.params, **labels}) for case in cases]


def mark_sides(record: Record, labels: Mapping[str, str]) -> Record:
    """Return the record of a gated case as a record of an A/B comparison, with the labels of both sides."""
    case = record.case
    if reserved := sorted(set(labels) & set(case.params)):
        raise TesseraError("a gated benchmark cannot have a parameter of this name", got=reserved[0])
    stored = Case(feature="ab", name=case.name, params={**case.params, **labels})
    return replace(record, case=stored, details={**record.details, "gated_feature": case.feature})


def parse_variables(option: str, items: Iterable[str]) -> dict[str, str]:
    """Parse NAME=VALUE items of an option."""
    variables = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not (equals and name):
            raise TesseraError(option, got=item, allowed="NAME=VALUE")
        variables[name] = value
    return variables


def launch_inline(case: Case, base: LaunchConfig) -> LaunchConfig:
    """Return an inline launch configuration: the calling process holds the interpreters of both sides (launch hook)."""
    return replace(base, spawn="inline", workers=1, threads=1)
