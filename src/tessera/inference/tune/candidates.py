"""What a tuning chooses from: engines, replicas with their threads, and batch sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.errors import TesseraError

BATCHES = (1, 2, 4, 8, 16, 32)
# Engines that usually win come first, so that they had their turn when time runs out; last what takes long to start.
LIKELY = ("onnxruntime", "openvino", "torch-channels-last", "torch-eager")
SLOW_TO_START = ("torch-compile",)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Team:
    """Replicas that run one engine on so many threads each: what is started together, whatever the batch."""

    engine: str
    replicas: int
    threads: int

    def __str__(self) -> str:
        return f"{self.engine} {self.replicas}x{self.threads}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Candidate:
    """A team with a batch size.

    >>> str(Candidate(team=Team(engine="openvino", replicas=2, threads=1), batch=8))
    'openvino 2x1 batch 8'
    """

    team: Team
    batch: int

    def __str__(self) -> str:
        return f"{self.team} batch {self.batch}"


def placements(cores: int, replicas: Sequence[int] = (), threads: Sequence[int] = ()) -> list[tuple[int, int]]:
    """Replicas and threads that fill the cores, replicas of one thread first: they disturb one another least.

    What is asked for is taken as it is; of what is not, everything that uses all cores is tried.

    >>> placements(4)
    [(4, 1), (2, 2), (1, 4)]
    >>> placements(4, replicas=[1])
    [(1, 4)]
    """
    if replicas and threads:
        return [(count, each) for count in replicas for each in threads]
    if threads:
        return [(max(1, cores // each), each) for each in threads]
    counts = replicas or [count for count in range(cores, 0, -1) if cores % count == 0]
    return [(count, max(1, cores // count)) for count in counts]


def teams(engines: Sequence[str], places: Sequence[tuple[int, int]]) -> list[Team]:
    """Every engine in every placement, in the order in which they are worth a look.

    >>> [str(team) for team in teams(["torch-compile", "torch-eager", "openvino"], [(2, 1), (1, 2)])][:4]
    ['openvino 2x1', 'torch-eager 2x1', 'openvino 1x2', 'torch-eager 1x2']
    """
    if not engines or not places:
        raise TesseraError("nothing to choose from", got=f"{len(engines)} engines, {len(places)} placements")
    known = [name for name in LIKELY if name in engines]
    quick = known + [name for name in engines if name not in (*LIKELY, *SLOW_TO_START)]
    slow = [name for name in engines if name in SLOW_TO_START]
    return [
        Team(engine=engine, replicas=replicas, threads=threads)
        for group in (quick, slow)
        for replicas, threads in places
        for engine in group
    ]
