"""The nodes of an engine's own graph, and the operators of the network that they come from.

An engine times the graph that it really runs, in which operators are fused and reordered. The name of an exported node
tells its layer (`/layer1/layer1.0/conv1/Conv` is of `layer1.0.conv1`, `/layer1/layer1.0/relu_1/Relu` of the second call
of `layer1.0.relu`), and engines keep the name of one of the nodes that they fuse. A convolution that bears the name of
the activation after it is the nearest one before that has no node of its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.inference.attribution.in_place import Call
from tessera.inference.attribution.shares import Operator
from tessera.inference.engines.engine import Step

HEAVY = re.compile("conv|gemm|matmul|fullyconnected", re.IGNORECASE)  # kinds that hold the arithmetic, in any engine
AGAIN = re.compile(r"(.+)_(\d+)")  # how an exporter names a further call of the same layer

Places = Mapping[str, Sequence[int]]  # by scope, the numbers of the calls that its layer makes


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node comes from: the scope of its layer, and which of that layer's calls it is of."""

    scope: str
    turn: int


def scope_of(path: str) -> str:
    """How an exported node spells the path of its layer: a numbered child repeats the name of its parent.

    >>> scope_of("network.layer1.0.downsample.0")
    '/network/layer1/layer1.0/downsample/downsample.0/'
    """
    parts: list[str] = []
    for part in path.split("."):
        parts.append(f"{parts[-1]}.{part}" if part.isdigit() and parts else part)
    return "".join(f"/{part}" for part in parts) + "/"


def origin_of(node: str, places: Places) -> Origin | None:
    """The layer of a node by the longest part of its name that is one; None where there is none."""
    parts = node.strip("/").split("/")
    for end in range(len(parts), 0, -1):
        parents, last = "/".join(["", *parts[: end - 1]]), parts[end - 1]
        if f"{parents}/{last}/" in places:
            return Origin(f"{parents}/{last}/", 0)
        again = AGAIN.fullmatch(last)
        if again and f"{parents}/{again[1]}/" in places:
            return Origin(f"{parents}/{again[1]}/", int(again[2]))
    return None


def attributed(steps: Sequence[Step], calls: Sequence[Call]) -> list[Operator]:
    """An engine's steps as operators of the network's layers, with the work of the call that each one is of."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, call in enumerate(calls):
        numbers[scope_of(call.layer)].append(number)
    origins = [origin_of(step.name, numbers) for step in steps]
    of = _calls_of(steps, origins, numbers, calls)
    return [
        Operator(
            layer=calls[number].layer if number is not None else step.name,
            kind=step.kind,
            seconds=step.seconds,
            flops=calls[number].flops if number is not None else None,
            moved=calls[number].moved if number is not None else None,
        )
        for step, number in zip(steps, of, strict=True)
    ]


def _calls_of(
    steps: Sequence[Step], origins: Sequence[Origin | None], places: Places, calls: Sequence[Call]
) -> list[int | None]:
    """The call that each step is of, by its number; None where that cannot be told."""
    heavy = [bool(HEAVY.search(step.kind)) for step in steps]
    of = [
        _own(origin, places, calls, heavy=is_heavy) if origin is not None else None
        for origin, is_heavy in zip(origins, heavy, strict=True)
    ]
    free = [number for number, call in enumerate(calls) if call.flops and number not in of]
    for index, origin in enumerate(origins):  # fused: the nearest one before
        if of[index] is None and heavy[index] and origin is not None:
            before = [number for number in free if number < _place(origin, places)]
            if before:
                of[index] = before[-1]
                free.remove(before[-1])
    nameless = [index for index, number in enumerate(of) if number is None and heavy[index]]
    if len(nameless) == len(free):  # an engine may call the last node by the name of its output
        for index, number in zip(nameless, free, strict=True):
            of[index] = number
    return of


def _own(origin: Origin, places: Places, calls: Sequence[Call], *, heavy: bool) -> int | None:
    """The call of a step's own layer: of arithmetic that which has some, of the rest the only one."""
    own = places[origin.scope]
    if heavy:
        working = [number for number in own if calls[number].flops]
        return working[min(origin.turn, len(working) - 1)] if working else None
    return own[0] if len(own) == 1 else None


def _place(origin: Origin, places: Places) -> int:
    own = places[origin.scope]
    return own[min(origin.turn, len(own) - 1)]
