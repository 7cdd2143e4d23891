"""One inference case: the settings of a replica, the placement of the replicas, and the load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tessera.axes import collect_params, declare_axis
from tessera.errors import TesseraError
from tessera.inference.modes.load import Load
from tessera.inference.replicas.placement import Placement
from tessera.inference.settings import Settings

BY_OPERATOR = "by_operator"  # name of the case parameter


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The parameters of a case: settings, placement and load. `by_operator` enables per-operator profiling.

    >>> task = Task(settings=Settings(model="resnet50"), placement=Placement(num_replicas=2))
    >>> Task.of(task.params()) == task
    True
    """

    settings: Settings
    placement: Placement = field(default_factory=Placement)
    load: Load = field(default_factory=Load)
    by_operator: bool = declare_axis(
        False, action="flag", group="load", help="profile with the time of every operator of the network"
    )

    def __post_init__(self) -> None:
        if self.by_operator and (self.placement.num_replicas > 1 or self.load.mode != "offline"):
            raise TesseraError(
                "--by-operator requires one replica and --mode offline",
                got=f"--num-replicas {self.placement.num_replicas} --mode {self.load.mode}",
            )
        if self.settings.streams > 1 and self.load.mode != "offline":
            raise TesseraError("--streams applies only to --mode offline", got=f"--mode {self.load.mode}")
        if self.settings.streams > self.placement.cores_per_replica:  # the engine would silently reduce the streams
            raise TesseraError(
                "--streams requires one core per stream",
                got=f"{self.settings.streams} streams on {self.placement.cores_per_replica} cores",
                do=f"add --cores-per-replica {self.settings.streams}",
            )

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Task:
        """Build a task from the parameters of a case; an unknown parameter raises an error."""
        rest = dict(params)
        parts: dict[str, Any] = {}
        for name, kind in (("placement", Placement), ("load", Load)):
            known = [each.name for each in fields(kind)]
            parts[name] = kind(**{key: rest.pop(key) for key in known if key in rest})
        by_operator = bool(rest.pop(BY_OPERATOR, False))
        return cls(settings=Settings.of(rest), by_operator=by_operator, **parts)

    def params(self) -> dict[str, Any]:
        """Return the parameters of the case, including the name of the network."""
        return self.settings.params() | self.placement.params() | self.load.params() | collect_params(self)
