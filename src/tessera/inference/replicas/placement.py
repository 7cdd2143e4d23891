"""Where replicas run: how many there are, on how many cores each, and what they find in their environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from tessera.errors import Refused, TesseraError
from tessera.launch import LaunchConfig

# How the run at hand launches: pinning, allocator, what is shown of the replicas' output. Replicas are not workers of
# the run but are started by its cases, which are told here; see `cases.launch`.
ASKED: ContextVar[LaunchConfig] = ContextVar("asked", default=LaunchConfig())  # noqa: B039


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """So many replicas, each a process of its own that is pinned to cores of its own, with a thread on each core.

    `env` has the last word on what the replicas find in their environment. `force` runs more replicas than there are
    cores for.

    >>> Placement(num_replicas=2).params()
    {'num_replicas': 2, 'cores_per_replica': 1}
    """

    num_replicas: int = 1
    cores_per_replica: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    force: bool = False

    def __post_init__(self) -> None:
        for name in ("num_replicas", "cores_per_replica"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise TesseraError(f"--{name.replace('_', '-')}", got=value, allowed="1 or more")

    @property
    def cores(self) -> int:
        """Cores that all replicas together ask for."""
        return self.num_replicas * self.cores_per_replica

    def params(self) -> dict[str, Any]:
        """The parameters of a case; what is as usual is left out."""
        said: dict[str, Any] = {"num_replicas": self.num_replicas, "cores_per_replica": self.cores_per_replica}
        if self.env:
            said["env"] = dict(self.env)
        if self.force and self.beyond(cores_here()):  # where it changes nothing it is not part of what is measured
            said["force"] = True
        return said

    def beyond(self, available: int) -> str:
        """What is wrong with so many cores; empty where nothing is.

        >>> Placement(num_replicas=4).beyond(2)
        '4 replicas of 1 core each on 2 cores: they share cores, and take turns rather than add up'
        """
        if self.cores <= available:
            return ""
        cores = "1 core" if self.cores_per_replica == 1 else f"{self.cores_per_replica} cores"
        return (
            f"{self.num_replicas} replicas of {cores} each on {available} cores: "
            "they share cores, and take turns rather than add up"
        )

    def check(self, available: int | None = None) -> tuple[str, ...]:
        """Refuse more replicas than there are cores for, unless forced; then give the warning as a note."""
        wrong = self.beyond(cores_here() if available is None else available)
        if wrong and not self.force:
            raise Refused(wrong, do="use fewer, or --force to run them all the same")
        return (wrong,) if wrong else ()

    def launch(self, base: LaunchConfig) -> LaunchConfig:
        """The launch of these replicas, pinned and tagged as the run was asked to."""
        return replace(
            base,
            spawn="processes",
            workers=self.num_replicas,
            threads=self.cores_per_replica,
            env={**base.env, **self.env},
        )


def cores_here() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def passed_on(names: Sequence[str], env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What `-x NAME` and `-x NAME=VALUE` give the replicas; a name that is not set here is a mistake.

    >>> passed_on(["A", "B=2"], {"A": "1"})
    {'A': '1', 'B': '2'}
    """
    found = {}
    for item in names:
        name, equals, value = item.partition("=")
        if not name:
            raise TesseraError("-x", got=item, allowed="NAME or NAME=VALUE")
        if not equals and name not in env:
            raise TesseraError("-x names a variable that is not set", got=name, do=f"set it, or -x {name}=VALUE")
        found[name] = value if equals else env[name]
    return found
