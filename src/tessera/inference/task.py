"""One inference case: what a replica runs, where the replicas are, and how they are put to work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tessera.errors import TesseraError
from tessera.inference.modes.load import Load
from tessera.inference.replicas.placement import Placement
from tessera.inference.settings import Settings

BY_OPERATOR = "by_operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The parameters of a case, sorted by who reads them. `by_operator` times each operator instead of the whole.

    >>> task = Task(settings=Settings(model="resnet50"), placement=Placement(num_replicas=2))
    >>> Task.of(task.params()) == task
    True
    """

    settings: Settings
    placement: Placement = field(default_factory=Placement)
    load: Load = field(default_factory=Load)
    by_operator: bool = False

    def __post_init__(self) -> None:
        if self.by_operator and (self.placement.num_replicas > 1 or self.load.mode != "offline"):
            raise TesseraError("--by-operator looks into one replica, offline", do="leave out replicas and mode")
        if self.settings.streams > 1 and self.load.mode != "offline":
            raise TesseraError("--streams are batches at a time, of --mode offline", got=f"--mode {self.load.mode}")

        if self.settings.streams > self.placement.cores_per_replica:  # the engine would make fewer of them
            raise TesseraError(
                "--streams share the cores of a replica",
                got=f"{self.settings.streams} on {self.placement.cores_per_replica}",
                do=f"add --cores-per-replica {self.settings.streams}",
            )

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Task:
        """From the parameters of a case; what is unknown to all of its parts is refused."""
        rest = dict(params)
        parts: dict[str, Any] = {}
        for name, kind in (("placement", Placement), ("load", Load)):
            known = [one.name for one in fields(kind)]
            parts[name] = kind(**{key: rest.pop(key) for key in known if key in rest})
        by_operator = bool(rest.pop(BY_OPERATOR, False))
        return cls(settings=Settings.of(rest), by_operator=by_operator, **parts)

    def params(self) -> dict[str, Any]:
        said = self.settings.params() | self.placement.params() | self.load.params()
        return said | {BY_OPERATOR: True} if self.by_operator else said
