"""Axes of inference benchmarks, their expansion to cases, and the launch of a case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.axes import Axes, collect_axes
from tessera.inference.configs import load_config
from tessera.inference.modes.load import Load
from tessera.inference.replicas.placement import Placement
from tessera.inference.settings import Settings
from tessera.inference.task import Task
from tessera.launch import LaunchConfig
from tessera.results.record import Case

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
