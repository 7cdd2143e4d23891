"""From what a user asks for to the cases of phased execution that answer it, and the cores that each is given."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tessera.errors import TesseraError, did_you_mean
from tessera.launch import LaunchConfig
from tessera.models import MODELS, image_size_of
from tessera.phased.choices import (
    DTYPES,
    HOLD_ALL,
    ON_PROCESSES,
    ONE_DEVICE,
    SCHEDULES,
    STORES,
    WORKERS,
    parse_bytes,
)
from tessera.results.record import Case

CHAIN = "chain"
TWO = 2  # devices of the schedules that take more than one

# Every axis with its usual value; none where the usual one depends on the rest.
AXES: dict[str, tuple[Any, ...]] = {
    "dsize": (250,),
    "num_layers": (3,),
    "image_size": (),
    "weights": (),
    "batch_size": (),
    "batches_per_step": (),
    "dtype": (),
    "schedule": ("phased",),
    "devices": (),
    "store": ("disk",),
    "cold": (False,),
    "budget": (),
    "activations": (),
    "threads": (1,),
    "workers": ("threads",),
}
OF_THE_CHAIN = ("dsize", "num_layers")
OF_A_NETWORK = ("image_size", "weights")
OF_A_STREAM = ("budget", "cold", "store")  # without meaning where all weights stay in memory
# What depends on the network: a batch of images is a thousand times the work of a batch of small matrices.
USUAL = {
    True: {"batch_size": 32, "batches_per_step": 100, "dtype": "float16"},  # of the chain
    False: {"batch_size": 1, "batches_per_step": 1, "dtype": "float32"},  # of a network
}
# Left out of a case where they are as usual.
UNSAID = {"cold": False, "threads": 1, "workers": "threads"}
WORDS: dict[str, tuple[Any, ...]] = {
    "schedule": tuple(SCHEDULES),
    "store": tuple(STORES),
    "dtype": DTYPES,
    "workers": tuple(WORKERS),
    "cold": (False, True),
}
COUNTS = ("dsize", "num_layers", "image_size", "batch_size", "batches_per_step", "devices", "threads")
SIZES = ("budget", "activations")


def cases(names: Sequence[str] = (CHAIN,), **axes: Sequence[Any]) -> list[Case]:
    """Every network named, with every combination of the axes that mean something for it.

    `chain` is the matrix chain; other names are those of models, or `module:callable`. Without `budget` a case gets
    room for a quarter of its weights, and at least for two of its largest layers; without `activations` all of them
    stay in memory.

    >>> [case.key for case in cases(schedule=["phased", "resident"], dsize=[64])]
    ['phases/chain[batch_size=32,batches_per_step=100,devices=2,dsize=64,dtype=float16,num_layers=3,schedule=phased,\
store=disk]', 'phases/chain[batch_size=32,batches_per_step=100,devices=1,dsize=64,dtype=float16,num_layers=3,\
schedule=resident]']
    """
    _check(names, axes)
    found = []
    for name in names:
        foreign = OF_A_NETWORK if name == CHAIN else OF_THE_CHAIN
        usual = USUAL[name == CHAIN]
        own = {axis: axes.get(axis) or value for axis, value in AXES.items() if axis not in foreign}
        own |= {axis: [value] for axis, value in usual.items() if not own[axis]}
        own = {axis: values for axis, values in own.items() if values}
        for combination in itertools.product(*own.values()):
            params = _params(name, dict(zip(own, combination, strict=True)))
            found.append(Case(feature="phases", name=name, params=params))
    return list({case.key: case for case in found}.values())


def _check(names: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> None:
    for name in names:
        if name != CHAIN and ":" not in name and name not in MODELS:
            known = [CHAIN, *MODELS]
            raise TesseraError(
                "unknown model", got=name, allowed=[*known, "module:callable"], do=did_you_mean(name, known)
            )
    for axis, values in axes.items():
        if axis not in AXES:
            raise TesseraError("unknown axis of phased execution", got=axis, allowed=AXES, do=did_you_mean(axis, AXES))
        for value in values:
            _check_value(axis, value)
    _check_meaning(names, axes)


def _check_value(axis: str, value: Any) -> None:
    option = f"--{axis.replace('_', '-')}"
    if axis in WORDS and value not in WORDS[axis]:
        raise TesseraError(f"unknown {axis}", got=value, allowed=[str(word) for word in WORDS[axis]])
    if axis in COUNTS and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise TesseraError(option, got=value, allowed="1 or more")
    if axis in SIZES:
        parse_bytes(value)


def _check_meaning(names: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> None:
    """Refuse what would change nothing in any case."""
    for axis in axes:
        if (axis in OF_THE_CHAIN and CHAIN not in names) or (axis in OF_A_NETWORK and set(names) == {CHAIN}):
            raise TesseraError(
                f"--{axis.replace('_', '-')} has no meaning for {' and '.join(names)}", do="leave it out"
            )
    schedules = list(axes.get("schedule") or AXES["schedule"])
    for axis in OF_A_STREAM:
        if axis in axes and set(schedules) <= set(HOLD_ALL):
            raise TesseraError(
                f"--{axis} has no meaning for {' and '.join(schedules)}: nothing is streamed", do="leave it out"
            )
    if axes.get("weights") and axes.get("dtype"):
        raise TesseraError("--weights and --dtype: the file says how its weights are stored", do="leave --dtype out")
    stores = list(axes.get("store") or AXES["store"])
    if any(axes.get("cold", ())) and set(stores) != {"disk"}:
        raise TesseraError("--cold is of weights on disk", got=f"--store {','.join(stores)}", allowed="disk")
    alone = [schedule for schedule in schedules if schedule in ONE_DEVICE]
    if alone and any(count > 1 for count in axes.get("devices", ())):
        raise TesseraError(
            f"{' and '.join(alone)} runs on one device",
            got=f"--devices {max(axes['devices'])}",
            allowed="1",
            do=f"choose --schedule {' or '.join(name for name in SCHEDULES if name not in ONE_DEVICE)}",
        )
    if "processes" in axes.get("workers", ()):
        _check_processes(schedules, axes)


def _check_processes(schedules: Sequence[str], axes: Mapping[str, Sequence[Any]]) -> None:
    if others := [schedule for schedule in schedules if schedule not in ON_PROCESSES]:
        raise TesseraError(
            f"devices of {' and '.join(others)} are no processes",
            got="--workers processes",
            do=f"choose --schedule {' or '.join(ON_PROCESSES)}",
        )
    if axes.get("activations"):
        raise TesseraError("--activations: devices that are processes share them in memory", do="leave it out")


def _params(name: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a case: defaults that follow from the others filled in, what means nothing left out."""
    chosen.setdefault("devices", 1 if chosen["schedule"] in ONE_DEVICE else TWO)
    if "weights" in chosen:
        del chosen["dtype"]  # the file says it
    if name != CHAIN:
        chosen.setdefault("image_size", image_size_of(name))
    gone = set(OF_A_STREAM) if chosen["schedule"] in HOLD_ALL else set()
    gone |= {axis for axis, usual in UNSAID.items() if chosen[axis] == usual}
    return {axis: value for axis, value in chosen.items() if axis not in gone}


def launch(case: Case, base: LaunchConfig) -> LaunchConfig:
    """One worker, with the cores of two devices whatever its schedule: schedules differ in what they do with them."""
    devices, threads = int(case.params["devices"]), int(case.params.get("threads", 1))
    return replace(
        base, spawn="inline" if base.spawn == "inline" else "processes", workers=1, threads=max(devices, TWO) * threads
    )
