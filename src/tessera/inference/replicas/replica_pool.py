"""The pool of replica processes: the side of the parent process, which starts and controls them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any

from tessera.inference.replicas.placement import Placement
from tessera.inference.replicas.windows import ThroughputWindow
from tessera.inference.settings import Settings
from tessera.launch import LaunchConfig, Workers

WORKER_MODULE = "tessera.inference.replicas.replica_worker"


class ReplicaPool:
    """A pool of pinned processes, each with a complete copy of a network, which start every window together.

    Every window is one call on all replicas, so earlier windows are kept if a replica dies. `folder` holds the files
    that all replicas share, such as exported networks; by default it is a temporary folder.
    """

    def __init__(self, placement: Placement, launch: LaunchConfig | None = None, *, folder: str = "") -> None:
        self.placement = placement
        self._folder = folder
        self._workers = Workers(placement.build_launch(launch or LaunchConfig()))

    def __enter__(self) -> ReplicaPool:
        with ExitStack() as stack:
            self._folder = self._folder or stack.enter_context(TemporaryDirectory(prefix="tessera-infer-"))
            stack.enter_context(self._workers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.__exit__(*exc)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        return self.placement.num_replicas

    def load(self, settings: Settings, name: str = "", *, check: bool = True) -> LoadedNetwork:
        """Load a network on all replicas; with `check`, the first replica compares its outputs with torch."""
        reports: list[LoadReport] = self.run(f"{WORKER_MODULE}:load_network", name, settings, self._folder, check)
        return LoadedNetwork(pool=self, name=name, settings=settings, reports=tuple(reports))

    def run(self, target: str, *args: Any) -> list[Any]:
        """Call a worker function, `package.module:function`, on all replicas."""
        return self._workers.run(target, *args)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedNetwork:
    """A network that is loaded on all replicas of a pool; `reports` has one entry per replica."""

    pool: ReplicaPool
    name: str
    settings: Settings
    reports: tuple[LoadReport, ...]

    @property
    def size(self) -> int:
        return self.pool.size

    def run_window(self, *, batches: int, seconds: float, alone: bool = False) -> ThroughputWindow:
        """Run at least `batches` batches and `seconds` seconds on every replica; with `alone`, on the first only."""
        times = self.pool.run(f"{WORKER_MODULE}:run_window", self.name, batches, seconds, alone)
        return ThroughputWindow(
            batch=self.settings.batch_size, replicas=tuple(replica for replica in times if replica is not None)
        )

    def is_ready(self) -> bool:
        """Return whether the network is loaded on all replicas; it is not after a replica died and was restarted."""
        return all(self.pool.run(f"{WORKER_MODULE}:is_ready", self.name))

    def summarise(self) -> list[ReplicaSummary]:
        """Return the summary of each replica at the end of a run."""
        return self.pool.run(f"{WORKER_MODULE}:summarise_replica", self.name)

    def unload(self) -> None:
        """Free the network on all replicas."""
        self.pool.run(f"{WORKER_MODULE}:unload_network", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The report of one replica after loading a network; times in seconds.

    `first_batch` is the time from the start of loading to the first answer, `first_batch_steps` its parts, and
    `batch_seconds` the time of a warm batch. `agreement` has the fields of `OutputAgreement`; it is
    None on replicas that did not check.
    """

    first_batch: float
    first_batch_steps: Mapping[str, float]
    batch_seconds: float
    compute_dtype: str
    notes: tuple[str, ...] = ()
    agreement: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSummary:
    """The summary of one replica at the end of a run: peak memory in bytes, notes, and its environment.

    `peak_device` is the peak memory on an accelerator, `conditions` holds the readings of its driver. Only the
    first replica counts the FLOPs per image, and only if the network is a torch module.
    """

    peak_rss: int
    notes: tuple[str, ...]
    environment: Mapping[str, Any]
    peak_device: int | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    flops_per_image: float | None = None
