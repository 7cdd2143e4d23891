"""Comparison of two runs, case by case: comparable cases get a verdict, all others are listed with a reason."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from tessera.errors import TesseraError
from tessera.measure.environment import DEVICE_FIELD, FINGERPRINT_FIELDS
from tessera.measure.statistics import Verdict
from tessera.results.judgement import Judgement, ValuePair, judge_pairs
from tessera.results.observation import Observation, make_observation
from tessera.results.record import Direction, Record
from tessera.tabular import Tabular

ExclusionKind = Literal[
    "newly failed",
    "newly refused",
    "fixed",
    "not measured",
    "only in A",
    "only in B",
    "version",
    "unit",
    "device",
    "fingerprint",
    "figure",
]
# Comparable runs may differ in software, because software versions are often compared. The header lists them.
_SOFTWARE_FIELDS = ("python", "system", "commit", "libraries")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """A compared case with its verdict. `before` and `after` are its typical values in runs A and B, in `unit`."""

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
class ExcludedCase:
    """A case that is not compared, with the reason."""

    key: str
    kind: ExclusionKind
    reason: str


@dataclass(frozen=True, slots=True)
class SoftwareDifference:
    """A setting that differs between the runs, e.g. `libraries.torch`."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Tabular):
    """The comparison of run B with run A. Ratios are B over A: a time that doubled has ratio 2."""

    threshold: float
    alpha: float
    cases: tuple[ComparedCase, ...]
    excluded: tuple[ExcludedCase, ...]
    software: tuple[SoftwareDifference, ...]

    def get_cases(self, verdict: Verdict) -> tuple[ComparedCase, ...]:
        """Return the cases with one verdict, the largest changes first."""
        cases = [case for case in self.cases if case.verdict == verdict]
        return tuple(sorted(cases, key=lambda case: -abs(math.log(case.judgement.ratio))))

    @property
    def newly_failed(self) -> tuple[ExcludedCase, ...]:
        return tuple(case for case in self.excluded if case.kind == "newly failed")

    @property
    def regressed(self) -> bool:
        """Whether any case is slower or newly failed."""
        return bool(self.newly_failed) or any(case.verdict == "slower" for case in self.cases)

    @property
    def common_ratio(self) -> float | None:
        """Median ratio of at least ten cases if beyond the threshold (a sign that the machine changed), else None."""
        ratios = [case.judgement.ratio for case in self.cases]
        if len(ratios) < 10:
            return None
        middle = statistics.median(ratios)
        return middle if abs(math.log(middle)) > math.log1p(self.threshold) else None

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per compared case: its key, verdict, ratio with confidence interval, and values in A and B."""
        return [
            {
                "case": case.key,
                **{name: getattr(case.judgement, name) for name in ("verdict", "ratio", "low", "high")},
                **{name: getattr(case, name) for name in ("before", "after", "unit")},
            }
            for case in self.cases
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        return {
            "threshold": self.threshold,
            "alpha": self.alpha,
            "cases": [
                {
                    "key": case.key,
                    **asdict(case.judgement),
                    **{name: getattr(case, name) for name in ("unit", "direction", "before", "after")},
                    "launches": list(case.launches),
                }
                for case in self.cases
            ],
            "apart": [asdict(case) for case in self.excluded],
            "software": [asdict(difference) for difference in self.software],
        }

    def __str__(self) -> str:
        lines = [f"{case.verdict}: {case.key}: {case.judgement.why}" for case in self.cases]
        return "\n".join([*lines, *(f"not compared: {case.key}: {case.reason}" for case in self.excluded)])


def compare(
    records_a: Iterable[Record | Observation],
    records_b: Iterable[Record | Observation],
    *,
    threshold: float = 0.03,
    alpha: float = 0.05,
) -> Comparison:
    """Compare run B with run A.

    `threshold` is the smallest relative change that is reported. `alpha` is the false discovery rate of the reported
    changes; `1 - alpha` is the confidence level of the intervals.
    """
    if not 0 <= threshold < 1:
        raise TesseraError("the threshold is not a fraction", got=threshold, allowed="0 or more, below 1; 0.03 is 3%")
    if not 0 < alpha < 1:
        raise TesseraError("alpha is not a probability", got=alpha, allowed="between 0 and 1")
    before, after = _index_by_key(records_a), _index_by_key(records_b)
    excluded: list[ExcludedCase] = []
    matched: list[tuple[Observation, Observation]] = []
    for key in before | after:
        a, b = before.get(key), after.get(key)
        if a is None or b is None:
            present, kind = (b, "only in B") if a is None else (a, "only in A")
            assert present is not None
            excluded.append(ExcludedCase(key, kind, f"{kind} ({present.status})"))  # type: ignore[arg-type]
        elif exclusion := _explain_exclusion(a, b):
            excluded.append(ExcludedCase(key, *exclusion))
        else:
            matched.append((a, b))
    pairs = [ValuePair(before=a.figures, after=b.figures, direction=a.direction) for a, b in matched]
    judgements = judge_pairs(pairs, threshold=threshold, alpha=alpha)
    return Comparison(
        threshold=threshold,
        alpha=alpha,
        cases=tuple(
            ComparedCase(
                key=a.key,
                unit=a.unit,
                direction=a.direction,
                before=compute_geometric_mean(a.figures),
                after=compute_geometric_mean(b.figures),
                launches=(len(a.figures), len(b.figures)),
                judgement=judgement,
            )
            for (a, b), judgement in zip(matched, judgements, strict=True)
        ),
        excluded=tuple(excluded),
        software=_compare_software(before.values(), after.values()),
    )


def _index_by_key(records: Iterable[Record | Observation]) -> dict[str, Observation]:
    seen = (record if isinstance(record, Observation) else make_observation(record) for record in records)
    return {observation.key: observation for observation in seen}


def _explain_exclusion(a: Observation, b: Observation) -> tuple[ExclusionKind, str] | None:
    """Return why two observations of a case are not comparable; None if they are comparable."""
    if a.status == "ok" and b.status != "ok":
        kind: ExclusionKind = "newly refused" if b.status == "refused" else "newly failed"
        return kind, f"{b.status.replace('_', ' ')} in B: {b.reason}"
    if a.status != "ok":
        was = f"{a.status.replace('_', ' ')} in A: {a.reason}"
        return ("fixed", was) if b.status == "ok" else ("not measured", was)
    if a.version != b.version:
        return "version", f"the benchmark was edited: version {a.version} in A, {b.version} in B"
    if (a.unit, a.direction) != (b.unit, b.direction):
        return "unit", f"{a.unit} ({a.direction} is better) in A, {b.unit} ({b.direction} is better) in B"
    devices = a.environment.get(DEVICE_FIELD, "cpu"), b.environment.get(DEVICE_FIELD, "cpu")
    if devices[0] != devices[1]:
        return "device", f"measured on another device: {devices[0]} in A, {devices[1]} in B"
    if a.fingerprint != b.fingerprint:
        return "fingerprint", f"other conditions: {_describe_settings(a.environment, b.environment)}"
    if not a.direction:
        return "figure", "neither lower nor higher is better"
    for run, figures in (("A", a.figures), ("B", b.figures)):
        if not figures:
            return "figure", f"no samples in {run}"
        if not all(0 < figure < math.inf for figure in figures):
            return "figure", f"a value in {run} is not a positive number, so there is no ratio"
    return None


def compute_geometric_mean(figures: tuple[float, ...]) -> float:
    """Return the geometric mean of the launches' values; ratios of runs are ratios of these means."""
    return math.exp(math.fsum(map(math.log, figures)) / len(figures))


def _describe_settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """Describe the differences between two environments that make their records incomparable."""
    changes = [
        f"{name} {a.get(name)} in A, {b.get(name)} in B" for name in FINGERPRINT_FIELDS if a.get(name) != b.get(name)
    ]
    named = f"fingerprint {a.get('fingerprint', 'none')} in A, {b.get('fingerprint', 'none')} in B"
    return "; ".join(changes) or named


def _compare_software(a: Iterable[Observation], b: Iterable[Observation]) -> tuple[SoftwareDifference, ...]:
    before, after = _collect_versions(a), _collect_versions(b)
    return tuple(
        SoftwareDifference(name, before.get(name, "none"), after.get(name, "none"))
        for name in before | after
        if before and after and before.get(name) != after.get(name)
    )


def _collect_versions(observations: Iterable[Observation]) -> dict[str, str]:
    """Return the software versions of a run by name; several versions of one name are joined."""
    # The records of a run have few distinct environments: process each once.
    environments = {id(o.environment): o.environment for o in observations}.values()
    versions: dict[str, dict[str, None]] = {}
    for environment in environments:
        for name, value in _iter_software(environment):
            versions.setdefault(name, {})[str(value)] = None
    return {name: " and ".join(sorted(values)) for name, values in versions.items()}


def _iter_software(environment: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in _SOFTWARE_FIELDS:
        value = environment.get(name)
        if isinstance(value, Mapping):
            yield from ((f"{name}.{key}", item) for key, item in value.items())
        elif value:
            yield name, value
