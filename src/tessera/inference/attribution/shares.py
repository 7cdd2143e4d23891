"""Group timed operators by kind or layer, with their share of the time and their roofline fraction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOperator:
    """One operator of a pass over a batch: its layer, kind, seconds, FLOPs and bytes moved.

    FLOPs and bytes are None if they are unknown, as for a kernel that the engine added itself.
    """

    layer: str
    kind: str
    seconds: float
    flops: float | None = None
    moved: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOperatorShare:
    """A group of operators: number of calls, seconds, share of the time of all operators, roofline fraction.

    `roofline` is the minimum time on the calibrated machine over the measured time; 1 is as fast as the machine allows.
    It is None if this host is not calibrated or the work is unknown.
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
class OperatorAttribution:
    """All operators of a pass, with the seconds of the whole pass measured without timing operators.

    The sum of the operators is less than the whole by the time between them (Python, dispatch of the framework), or
    more by the overhead of timing each operator.
    """

    operators: tuple[TimedOperator, ...]
    whole: float

    @property
    def operator_seconds(self) -> float:
        """The sum of the seconds of all operators."""
        return sum(operator.seconds for operator in self.operators)

    @property
    def seconds_between(self) -> float:
        """Seconds of the whole pass minus the sum of the operators.

        Negative if the overhead of timing operators exceeds the time between operators.
        """
        return self.whole - self.operator_seconds


def group_operators(
    operators: Sequence[TimedOperator], by: str, roofline: Roofline | None = None
) -> list[EngineOperatorShare]:
    """Group operators by `kind` or by `layer`, the most expensive group first.

    >>> shares = group_operators([
    ...     TimedOperator(layer="a", kind="conv", seconds=3.0), TimedOperator(layer="b", kind="relu", seconds=1.0),
    ...     TimedOperator(layer="b", kind="conv", seconds=2.0)], "kind")
    >>> [(share.name, share.calls, share.seconds, round(share.share, 2)) for share in shares]
    [('conv', 2, 5.0, 0.83), ('relu', 1, 1.0, 0.17)]
    """
    groups: dict[str, list[TimedOperator]] = {}
    for operator in operators:
        groups.setdefault(str(getattr(operator, by)), []).append(operator)
    whole = sum(operator.seconds for operator in operators)
    shares = [_build_share(name, group, whole, roofline) for name, group in groups.items()]
    return sorted(shares, key=lambda share: share.seconds, reverse=True)


def _build_share(
    name: str, group: Sequence[TimedOperator], whole: float, roofline: Roofline | None
) -> EngineOperatorShare:
    seconds = sum(operator.seconds for operator in group)
    flops = [operator.flops for operator in group if operator.flops is not None]
    moved = [operator.moved for operator in group if operator.moved is not None]
    return EngineOperatorShare(
        name=name,
        calls=len(group),
        seconds=seconds,
        share=seconds / whole if whole else 0.0,
        flops=sum(flops) if flops else None,
        moved=sum(moved) if moved else None,
        roofline=_compute_roofline_share(group, roofline) if roofline else None,
    )


def _compute_roofline_share(group: Sequence[TimedOperator], roofline: Roofline) -> float | None:
    """Return the roofline time over the measured time of the operators with known FLOPs and bytes."""
    best = seconds = 0.0
    for operator in group:
        if operator.flops is not None and operator.moved is not None:
            best += roofline.compute_seconds(operator.flops, operator.moved)
            seconds += operator.seconds
    return best / seconds if best and seconds else None


@dataclass(frozen=True, slots=True)
class Roofline:
    """The peak FLOP/s and bytes/s of the cores in use."""

    flops: float
    bandwidth: float

    def compute_seconds(self, flops: float, moved: float) -> float:
        """Return the roofline time in seconds of `flops` FLOPs and `moved` bytes."""
        return max(flops / self.flops, moved / self.bandwidth)
