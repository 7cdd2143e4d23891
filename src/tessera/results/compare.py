"""Two runs, case by case: what may be compared gets a verdict, the rest is listed apart with the reason."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from tessera.errors import TesseraError
from tessera.measure.verdict import Verdict
from tessera.results.observation import Observation, observe
from tessera.results.record import Direction, Record
from tessera.results.verdict import Judgement, Pair, judge

Kind = Literal[
    "newly failed",
    "newly refused",
    "mended",
    "not measured",
    "only in A",
    "only in B",
    "version",
    "unit",
    "fingerprint",
    "figure",
]
# Software may differ between comparable runs, for it is what people compare; these differences head the
# table.
_SOFTWARE = ("python", "system", "commit", "libraries")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One case with its verdict. `before` and `after` are its typical figures in A and B, in `unit`."""

    key: str
    unit: str
    direction: Direction
    before: float
    after: float
    launches: tuple[int, int]
    judgement: Judgement

    @property
    def verdict(self) -> Verdict:
        return self.judgement.verdict


@dataclass(frozen=True, slots=True)
class Apart:
    """A case that is not compared, and why."""

    key: str
    kind: Kind
    reason: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting that differs between the runs, e.g. `libraries.torch`."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Run B against run A. Ratios are B over A, so a time that doubled has ratio 2."""

    threshold: float
    alpha: float
    cases: tuple[Compared, ...]
    apart: tuple[Apart, ...]
    software: tuple[Difference, ...]

    def of(self, verdict: Verdict) -> tuple[Compared, ...]:
        """The cases with one verdict, those that changed most first."""
        found = [case for case in self.cases if case.verdict == verdict]
        return tuple(sorted(found, key=lambda case: -abs(math.log(case.judgement.ratio))))

    @property
    def newly_failed(self) -> tuple[Apart, ...]:
        return tuple(case for case in self.apart if case.kind == "newly failed")

    @property
    def regressed(self) -> bool:
        """Whether any case is slower, or failed and did not before."""
        return bool(self.newly_failed) or any(case.verdict == "slower" for case in self.cases)

    @property
    def moved_together(self) -> float | None:
        """The median ratio of ten cases or more where it is beyond the threshold: did the machine change?"""
        ratios = [case.judgement.ratio for case in self.cases]
        if len(ratios) < 10:
            return None
        middle = statistics.median(ratios)
        return middle if abs(math.log(middle)) > math.log1p(self.threshold) else None

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return {
            "threshold": self.threshold,
            "alpha": self.alpha,
            "cases": [
                {
                    "key": case.key,
                    **{f.name: getattr(case.judgement, f.name) for f in fields(Judgement)},
                    "unit": case.unit,
                    "direction": case.direction,
                    "before": case.before,
                    "after": case.after,
                    "launches": list(case.launches),
                }
                for case in self.cases
            ],
            "apart": [{"key": a.key, "kind": a.kind, "reason": a.reason} for a in self.apart],
            "software": [{"name": d.name, "before": d.before, "after": d.after} for d in self.software],
        }


def compare(
    records_a: Iterable[Record | Observation],
    records_b: Iterable[Record | Observation],
    *,
    threshold: float = 0.03,
    alpha: float = 0.05,
) -> Comparison:
    """Compare run B with run A; changes smaller than the threshold do not matter.

    `alpha` is the share of false alarms accepted among the changes called, and one minus it the confidence of
    each interval.
    """
    if not 0 <= threshold < 1:
        raise TesseraError("the threshold is a fraction", got=threshold, allowed="0 or more, below 1; 0.03 is 3%")
    if not 0 < alpha < 1:
        raise TesseraError("alpha is a share of false alarms", got=alpha, allowed="between 0 and 1")
    before, after = _by_key(records_a), _by_key(records_b)
    apart: list[Apart] = []
    matched: list[tuple[Observation, Observation]] = []
    for key in before | after:
        a, b = before.get(key), after.get(key)
        if a is None or b is None:
            present, kind = (b, "only in B") if a is None else (a, "only in A")
            assert present is not None
            apart.append(Apart(key, kind, f"{kind} ({present.status})"))  # type: ignore[arg-type]
        elif found := _obstacle(a, b):
            apart.append(Apart(key, *found))
        else:
            matched.append((a, b))
    pairs = [Pair(before=a.figures, after=b.figures, direction=a.direction) for a, b in matched]
    judgements = judge(pairs, threshold=threshold, alpha=alpha)
    return Comparison(
        threshold=threshold,
        alpha=alpha,
        cases=tuple(
            Compared(
                key=a.key,
                unit=a.unit,
                direction=a.direction,
                before=typical(a.figures),
                after=typical(b.figures),
                launches=(len(a.figures), len(b.figures)),
                judgement=judgement,
            )
            for (a, b), judgement in zip(matched, judgements, strict=True)
        ),
        apart=tuple(apart),
        software=_software(before.values(), after.values()),
    )


def _by_key(records: Iterable[Record | Observation]) -> dict[str, Observation]:
    seen = (record if isinstance(record, Observation) else observe(record) for record in records)
    return {observation.key: observation for observation in seen}


def _obstacle(a: Observation, b: Observation) -> tuple[Kind, str] | None:
    """Why two observations of one case may not be compared, if so."""
    if a.status == "ok" and b.status != "ok":
        kind: Kind = "newly refused" if b.status == "refused" else "newly failed"
        return kind, f"{b.status.replace('_', ' ')} in B: {b.reason}"
    if a.status != "ok":
        was = f"{a.status.replace('_', ' ')} in A: {a.reason}"
        return ("mended", was) if b.status == "ok" else ("not measured", was)
    if a.version != b.version:
        return "version", f"the benchmark was edited: version {a.version} in A, {b.version} in B"
    if (a.unit, a.direction) != (b.unit, b.direction):
        return "unit", f"{a.unit} ({a.direction} is better) in A, {b.unit} ({b.direction} is better) in B"
    if a.fingerprint != b.fingerprint:
        return "fingerprint", f"other conditions: {_settings(a.environment, b.environment)}"
    if not a.direction:
        return "figure", "neither lower nor higher is better"
    for run, figures in (("A", a.figures), ("B", b.figures)):
        if not figures:
            return "figure", f"no samples in {run}"
        if not all(0 < figure < math.inf for figure in figures):
            return "figure", f"a figure of {run} is not a positive number: there is no ratio"
    return None


def typical(figures: tuple[float, ...]) -> float:
    """The geometric mean: what the ratio is a ratio of."""
    return math.exp(math.fsum(map(math.log, figures)) / len(figures))


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """What of the identity of two environments differs, in words."""
    from tessera.measure.environment import IDENTITY

    changes = [f"{name} {a.get(name)} in A, {b.get(name)} in B" for name in IDENTITY if a.get(name) != b.get(name)]
    named = f"fingerprint {a.get('fingerprint', 'none')} in A, {b.get('fingerprint', 'none')} in B"
    return "; ".join(changes) or named


def _software(a: Iterable[Observation], b: Iterable[Observation]) -> tuple[Difference, ...]:
    before, after = _versions(a), _versions(b)
    return tuple(
        Difference(name, before.get(name, "none"), after.get(name, "none"))
        for name in before | after
        if before and after and before.get(name) != after.get(name)
    )


def _versions(observations: Iterable[Observation]) -> dict[str, str]:
    """What software a run used, by name; several versions of one are joined."""
    # Records of a run share few environments: each is looked at once.
    environments = {id(o.environment): o.environment for o in observations}.values()
    found: dict[str, dict[str, None]] = {}
    for environment in environments:
        for name, value in _entries(environment):
            found.setdefault(name, {})[str(value)] = None
    return {name: " and ".join(sorted(values)) for name, values in found.items()}


def _entries(environment: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in _SOFTWARE:
        value = environment.get(name)
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", item) for key, item in value.items())
        elif value:
            yield name, value
