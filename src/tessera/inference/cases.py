"""One inference case: settings of a replica, placement of the replicas, load. The axes of cases and their expansion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tessera.axes import Axes, collect_axes, collect_params, declare_axis
from tessera.errors import TesseraError
from tessera.inference.configs import load_config
from tessera.inference.modes.load import Load
from tessera.inference.replicas.placement import Placement
from tessera.inference.settings import Settings
from tessera.launch import LaunchConfig
from tessera.results.record import Case

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


AXES = Axes("infer", collect_axes(Settings, Load, Placement, Task))


def cases(config: Sequence[str] = (), **axes: Sequence[Any]) -> list[Case]:
    """Return one case per combination of axis values; axis values override the settings of each config.

    >>> [case.key for case in cases(model=["resnet18"], batch_size=[1, 8])]
    ['infer/resnet18[batch_size=1,cores_per_replica=1,engine=onnxruntime,num_replicas=1,precision="32.32"]', \
'infer/resnet18[batch_size=8,cores_per_replica=1,engine=onnxruntime,num_replicas=1,precision="32.32"]']
    """
    AXES.check_values(axes)
    given_axes = Axes(AXES.feature, tuple(axis for axis in AXES if axis.name in axes))
    expanded = [
        make_case({**base, **params})
        for base in [load_config(name).settings for name in config] or [{}]
        for params in given_axes.expand(axes)
    ]
    return list({case.key: case for case in expanded}.values())


def make_case(values: Mapping[str, Any]) -> Case:
    """Build a case from plain parameter values; its name is the name of the network."""
    params = Task.of(values).params()
    return Case(feature="infer", name=str(params.pop("model")), params=params)


def get_task(case: Case) -> Task:
    """Return the parameters of a case as a `Task`."""
    return Task.of({"model": case.name, **case.params})


def launch_inline(case: Case, base: LaunchConfig) -> LaunchConfig:
    """Return the launch of a case: it runs in the calling process and starts its replicas itself."""
    return replace(base, spawn="inline", workers=1, threads=1)
