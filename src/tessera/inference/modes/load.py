"""What is asked of a network: which mode, at what rate, within what time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from tessera.errors import TesseraError

MODES = {
    "offline": "batches one after the other, on all replicas: the most images per second",
    "single-stream": "one batch at a time, the next when the last is answered: the latency",
    "server": "images arrive at random at a rate, and have to be answered in time: the highest rate that is held",
}
GENERATORS = ("auto", "tessera", "loadgen")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A mode with its terms: images per second (0: the highest rate that is held) within so many seconds.

    `generator` is who lets the questions of a server arrive: MLPerf LoadGen, or Tessera itself; `auto` is LoadGen where
    it is installed and there is one replica.

    >>> Load(mode="server", max_latency=0.1).params()
    {'mode': 'server', 'max_latency': 0.1}
    """

    mode: str = "offline"
    target_rate: float = 0.0
    max_latency: float = 0.0
    generator: str = "auto"

    def __post_init__(self) -> None:
        for name, value, allowed in (("mode", self.mode, MODES), ("load-generator", self.generator, GENERATORS)):
            if value not in allowed:
                raise TesseraError(f"--{name}", got=value, allowed=allowed)
        for name in ("target_rate", "max_latency"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or value < 0:
                raise TesseraError(f"--{name.replace('_', '-')}", got=value, allowed="above 0")
        if self.mode == "server" and not self.max_latency:
            raise TesseraError("a server answers in time: what is that?", do="add --max-latency, for example 50ms")
        if self.mode != "server":
            given = {"target-rate": self.target_rate, "max-latency": self.max_latency, "load-generator": self.generator}
            for name, term in given.items():
                if term not in (0, "auto"):
                    raise TesseraError(f"--{name} is of --mode server", got=f"--mode {self.mode}")

    def params(self) -> dict[str, Any]:
        """The parameters of a case; what is as usual is left out."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}
