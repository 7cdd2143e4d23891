"""Replicas as the process that measures sees them: start them, make a network ready on all, let them run a window."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from tessera.inference.measures.windows import Window
from tessera.inference.replicas.loaded import Aftermath, Loaded
from tessera.inference.replicas.placement import ASKED, Placement
from tessera.inference.settings import Settings
from tessera.launch import Workers

REPLICA = "tessera.inference.replicas.inside"


class Replicas:
    """Pinned processes, each with a whole copy of a network, that work in windows which begin together.

    Every window is one call on all of them: what was measured before one of them dies is here already and is kept. The
    files that engines are given, such as an exported network, lie in a `folder` that all replicas share; without one it
    is made, and removed with them.
    """

    def __init__(self, placement: Placement, *, folder: str = "") -> None:
        self.placement = placement
        self._folder = folder
        self._workers = Workers(placement.launch(ASKED.get()))

    def __enter__(self) -> Replicas:
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

    def load(self, settings: Settings, name: str = "", *, check: bool = True) -> OnReplicas:
        """Make a network ready on all replicas; the first holds it against torch, unless told not to."""
        loaded: list[Loaded] = self.run(f"{REPLICA}:load", name, settings, self._folder, check)
        return OnReplicas(replicas=self, name=name, settings=settings, loaded=tuple(loaded))

    def run(self, target: str, *args: Any) -> list[Any]:
        """Call a worker function, `package.module:function`, on all of them."""
        return self._workers.run(target, *args)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnReplicas:
    """One network that is ready on all replicas."""

    replicas: Replicas
    name: str
    settings: Settings
    loaded: tuple[Loaded, ...]

    @property
    def size(self) -> int:
        return self.replicas.size

    def window(self, *, batches: int, seconds: float, alone: bool = False) -> Window:
        """One window: at least so many batches and at least so long on every replica, or on the first alone."""
        stretches = self.replicas.run(f"{REPLICA}:window", self.name, batches, seconds, alone)
        return Window(
            batch=self.settings.batch_size,
            stretches=tuple(stretch for stretch in stretches if stretch is not None),
        )

    def is_ready(self) -> bool:
        """Whether all replicas still hold it: those that were started anew after one died hold nothing."""
        return all(self.replicas.run(f"{REPLICA}:is_ready", self.name))

    def aftermath(self) -> list[Aftermath]:
        """What each replica knows when all is over."""
        return self.replicas.run(f"{REPLICA}:aftermath", self.name)

    def unload(self) -> None:
        self.replicas.run(f"{REPLICA}:unload", self.name)
