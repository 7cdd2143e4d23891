"""Tuning candidates: combinations of engine, replicas, threads per replica, and batch size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import TesseraError
from tessera.inference.engines import ENGINES

DEFAULT_TUNE_TIME = 300.0  # seconds
BATCH_SIZES = (1, 2, 4, 8, 16, 32)  # default batch sizes of tuning


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ReplicaSet:
    """A set of replicas of one engine that start together; `threads` is the number of threads per replica."""

    engine: str
    replicas: int
    threads: int

    @property
    def slow_start(self) -> bool:
        """Whether building a session of the engine takes long; False for engines that are not registered."""
        return self.engine in ENGINES and ENGINES[self.engine].slow_start

    def __str__(self) -> str:
        return f"{self.engine} {self.replicas}x{self.threads}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TuningCandidate:
    """A replica set with a batch size.

    >>> str(TuningCandidate(replica_set=ReplicaSet(engine="openvino", replicas=2, threads=1), batch=8))
    'openvino 2x1 batch 8'
    """

    replica_set: ReplicaSet
    batch: int

    def __str__(self) -> str:
        return f"{self.replica_set} batch {self.batch}"


def list_placements(cores: int, replicas: Sequence[int] = (), threads: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Return pairs (replicas, threads per replica) that use all cores, one thread per replica first.

    If `replicas` or `threads` is given, only these numbers are used.

    >>> list_placements(4)
    [(4, 1), (2, 2), (1, 4)]
    >>> list_placements(4, replicas=[1])
    [(1, 4)]
    """
    if replicas and threads:
        return [(count, each) for count in replicas for each in threads]
    if threads:
        return [(max(1, cores // each), each) for each in threads]
    counts = replicas or [count for count in range(cores, 0, -1) if cores % count == 0]
    return [(count, max(1, cores // count)) for count in counts]


def list_replica_sets(engines: Sequence[str], places: Sequence[tuple[int, int]]) -> list[ReplicaSet]:
    """Return a replica set for every engine and placement, in the order in which tuning tries them.

    Engines that start slowly come last; all other engines are sorted by `tuning_order`.

    >>> sets = list_replica_sets(["torch-compile", "torch-eager", "openvino"], [(2, 1), (1, 2)])
    >>> [str(replica_set) for replica_set in sets][:4]
    ['openvino 2x1', 'torch-eager 2x1', 'openvino 1x2', 'torch-eager 1x2']
    """
    if not engines or not places:
        raise TesseraError(
            "tuning requires at least one engine and one placement",
            got=f"{len(engines)} engines, {len(places)} placements",
        )
    ordered = sorted(engines, key=lambda name: ENGINES[name].tuning_order if name in ENGINES else math.inf)
    sets = [
        ReplicaSet(engine=engine, replicas=replicas, threads=threads)
        for replicas, threads in places
        for engine in ordered
    ]
    return sorted(sets, key=lambda replica_set: replica_set.slow_start)
