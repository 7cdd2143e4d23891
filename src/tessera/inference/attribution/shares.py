"""Operators with their times, counted together: by kind, by layer, and what is left of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of a pass over a batch: the layer it is of, its kind, its seconds, its FLOPs and the bytes it moves.

    FLOPs and bytes are None where nothing says them, as of a kernel that an engine made up itself.
    """

    layer: str
    kind: str
    seconds: float
    flops: float | None = None
    moved: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Operators counted together: how many, their seconds, their part of all operators, the roofline.

    `roofline` is the time that the calibrated machine would need at least, over the time taken: 1 is no slower than the
    machine allows. None where this host is not calibrated, or the work is not known.
    """

    name: str
    calls: int
    seconds: float
    share: float
    flops: float | None
    moved: float | None
    roofline: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """All operators of a pass, with the seconds of the whole pass when nobody looks on.

    The operators add up to less than the whole by what happens between them (Python, the framework's dispatch), or to
    more by what looking at each one costs.
    """

    operators: tuple[Operator, ...]
    whole: float
    witness: str

    @property
    def sum(self) -> float:
        return sum(operator.seconds for operator in self.operators)

    @property
    def between(self) -> float:
        """What is left of the whole beside the operators; negative where looking on cost more than lies between."""
        return self.whole - self.sum


def counted(operators: Sequence[Operator], by: str, least_time: Least | None = None) -> list[Share]:
    """Operators counted together by `kind` or by `layer`, the most expensive first.

    >>> found = counted([Operator(layer="a", kind="conv", seconds=3.0), Operator(layer="b", kind="relu", seconds=1.0),
    ...                  Operator(layer="b", kind="conv", seconds=2.0)], "kind")
    >>> [(one.name, one.calls, one.seconds, round(one.share, 2)) for one in found]
    [('conv', 2, 5.0, 0.83), ('relu', 1, 1.0, 0.17)]
    """
    groups: dict[str, list[Operator]] = {}
    for operator in operators:
        groups.setdefault(str(getattr(operator, by)), []).append(operator)
    whole = sum(operator.seconds for operator in operators)
    found = [_share(name, group, whole, least_time) for name, group in groups.items()]
    return sorted(found, key=lambda share: share.seconds, reverse=True)


def _share(name: str, group: Sequence[Operator], whole: float, least_time: Least | None) -> Share:
    seconds = sum(one.seconds for one in group)
    flops = [one.flops for one in group if one.flops is not None]
    moved = [one.moved for one in group if one.moved is not None]
    return Share(
        name=name,
        calls=len(group),
        seconds=seconds,
        share=seconds / whole if whole else 0.0,
        flops=sum(flops) if flops else None,
        moved=sum(moved) if moved else None,
        roofline=_roofline(group, least_time) if least_time else None,
    )


def _roofline(group: Sequence[Operator], least_time: Least) -> float | None:
    """The least time over the time of those whose work is known: the others would make the rest look slow."""
    best = taken = 0.0
    for one in group:
        if one.flops is not None and one.moved is not None:
            best += least_time.seconds(one.flops, one.moved)
            taken += one.seconds
    return best / taken if best and taken else None


@dataclass(frozen=True, slots=True)
class Least:
    """The least time of work on a machine: FLOP/s and bytes/s of the cores that are used."""

    flops: float
    bandwidth: float

    def seconds(self, flops: float, moved: float) -> float:
        return max(flops / self.flops, moved / self.bandwidth)
