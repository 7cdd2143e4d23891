"""From what a user or a suite asks for to the inference cases that answer it, and how each is launched."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tessera.errors import TesseraError, did_you_mean
from tessera.inference.configs import load_config
from tessera.inference.modes.load import Load
from tessera.inference.replicas.placement import ASKED, Placement
from tessera.inference.settings import Settings
from tessera.inference.task import BY_OPERATOR, Task
from tessera.launch import LaunchConfig
from tessera.results.record import Case

# Everything that may vary from case to case.
AXES = (*(one.name for kind in (Settings, Load, Placement) for one in fields(kind)), BY_OPERATOR)


def cases(config: Sequence[str] = (), **given: Sequence[Any]) -> list[Case]:
    """Every combination of the values given for each setting, on top of those of each config.

    >>> [case.key for case in cases(model=["resnet18"], batch_size=[1, 8])]
    ['infer/resnet18[batch_size=1,cores_per_replica=1,engine=onnxruntime,num_replicas=1,precision="32.32"]', \
'infer/resnet18[batch_size=8,cores_per_replica=1,engine=onnxruntime,num_replicas=1,precision="32.32"]']
    """
    for name, values in given.items():
        if name not in AXES:
            raise TesseraError("unknown axis of an inference case", got=name, do=did_you_mean(name, AXES))
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise TesseraError(f"{name} of an inference case is a list of values", got=values)
        if not values:
            raise TesseraError(f"{name} of an inference case has no values", do="give one or more, or leave it out")
    order = [name for name in AXES if name in given]
    found = []
    for base in [load_config(name).settings for name in config] or [{}]:
        for combination in itertools.product(*(given[name] for name in order)):
            found.append(case_of({**base, **dict(zip(order, combination, strict=True))}))
    return list({case.key: case for case in found}.values())


def case_of(values: Mapping[str, Any]) -> Case:
    """One case from plain values; its name is that of the network."""
    params = Task.of(values).params()
    return Case(feature="infer", name=str(params.pop("model")), params=params)


def task_of(case: Case) -> Task:
    """What a case asks for."""
    return Task.of({"model": case.name, **case.params})


def launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """A case starts its replicas itself, from the process that runs the cases; they are told what the run was asked."""
    ASKED.set(base)
    return replace(base, spawn="inline", workers=1, threads=1)
