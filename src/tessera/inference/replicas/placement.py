"""The placement of replicas: their number, their cores, and their environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tessera.affinity import get_affinity
from tessera.axes import check_fields, declare_axis
from tessera.errors import Refused, TesseraError
from tessera.inference.parsing import parse_sizes
from tessera.launch import LaunchConfig

_declare_placement = partial(declare_axis, group="replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The number of replicas and of cores per replica. A replica is a pinned process with one thread per core.

    `env` overrides environment variables of the replicas. `force` allows replicas to share cores if there are too few.

    >>> Placement(num_replicas=2).params()
    {'num_replicas': 2, 'cores_per_replica': 1}
    """

    num_replicas: int = _declare_placement(
        1,
        in_key="always",
        several=True,
        parse_list=parse_sizes,
        minimum=1,
        help="number of copies of the network, each in its own process",
    )
    cores_per_replica: int = _declare_placement(
        1,
        in_key="always",
        aliases=("--ipus-per-replica", "--threads"),
        several=True,
        parse_list=parse_sizes,
        minimum=1,
        help="number of cores that a replica is pinned to, with one thread per core",
    )
    env: Mapping[str, str] = _declare_placement(
        default_factory=dict,
        option="-x",
        action="append",
        metavar="NAME[=VALUE]",
        help="environment variable of the replicas; repeatable",
    )
    force: bool = _declare_placement(False, action="flag", help="replicas that share cores, if there are too few cores")

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def cores(self) -> int:
        """The total number of cores of all replicas."""
        return self.num_replicas * self.cores_per_replica

    @property
    def used_cores(self) -> int:
        """The number of cores that the replicas use: replicas that share cores use all available ones."""
        return min(self.cores, count_cores())

    def params(self) -> dict[str, Any]:
        """Return the case parameters of this placement: both numbers, and other fields that are not defaults."""
        params: dict[str, Any] = {"num_replicas": self.num_replicas, "cores_per_replica": self.cores_per_replica}
        if self.env:
            params["env"] = dict(self.env)
        # If there are enough cores, `force` has no effect and is not part of the case.
        if self.force and self.explain_oversubscription(count_cores()):
            params["force"] = True
        return params

    def explain_oversubscription(self, available: int) -> str:
        """Return a message if the replicas require more than `available` cores, else an empty string.

        >>> Placement(num_replicas=4).explain_oversubscription(2)
        '4 replicas of 1 core each on 2 cores: they share cores, so their rates do not add up'
        """
        if self.cores <= available:
            return ""
        cores = "1 core" if self.cores_per_replica == 1 else f"{self.cores_per_replica} cores"
        return (
            f"{self.num_replicas} replicas of {cores} each on {available} cores: "
            "they share cores, so their rates do not add up"
        )

    def check(self, available: int | None = None) -> tuple[str, ...]:
        """Raise Refused if there are too few cores; with `force`, return the message as a note instead."""
        message = self.explain_oversubscription(count_cores() if available is None else available)
        if message and not self.force:
            raise Refused(message, do="use fewer replicas, or add --force")
        return (message,) if message else ()

    def build_launch(self, base: LaunchConfig) -> LaunchConfig:
        """Return the launch configuration of the replicas, with the pinning and allocator of `base`."""
        return replace(
            base,
            spawn="processes",
            workers=self.num_replicas,
            threads=self.cores_per_replica,
            env={**base.env, **self.env},
        )


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(get_affinity())


def parse_env_options(names: Sequence[str], env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment variables of `-x NAME` and `-x NAME=VALUE`; the value of a bare NAME comes from `env`.

    >>> parse_env_options(["A", "B=2"], {"A": "1"})
    {'A': '1', 'B': '2'}
    """
    variables = {}
    for item in names:
        name, equals, value = item.partition("=")
        if not name:
            raise TesseraError("-x requires the name of a variable", got=item, allowed="NAME or NAME=VALUE")
        if not equals and name not in env:
            raise TesseraError("-x names a variable that is not set", got=name, do=f"set it, or use -x {name}=VALUE")
        variables[name] = value if equals else env[name]
    return variables
