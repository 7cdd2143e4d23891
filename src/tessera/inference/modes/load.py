"""The options of a load mode, and the outcome of its measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tessera.axes import check_fields, collect_params, declare_axis
from tessera.errors import BenchmarkFailed, TesseraError
from tessera.inference.parsing import parse_latency, parse_rate
from tessera.measure.samples import Samples
from tessera.results.record import Direction, Metric

MODE_DESCRIPTIONS = {
    "offline": "maximum throughput: all replicas compute one batch after the other",
    "single-stream": "latency: one batch at a time, the next after the answer",
    "server": "highest rate of randomly arriving images that are answered within --max-latency",
}
LOAD_GENERATORS = ("auto", "tessera", "loadgen")
_declare_load = partial(declare_axis, group="load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load mode with its options: `target_rate` in images/s (0: search for the highest), `max_latency` in seconds.

    `generator` selects the generator of queries in mode server: MLPerf LoadGen or Tessera. `auto` is LoadGen if it is
    installed and there is one replica, else Tessera.

    >>> Load(mode="server", max_latency=0.1).params()
    {'mode': 'server', 'max_latency': 0.1}
    """

    mode: str = _declare_load(
        "offline",
        choices=tuple(MODE_DESCRIPTIONS),
        help="offline (throughput), single-stream (latency) or server (random arrivals)",
    )
    target_rate: float = _declare_load(
        0.0,
        parse=parse_rate,
        minimum=0,
        metavar="RATE",
        default_text="highest rate within --max-latency",
        help="arrival rate of --mode server in images per second",
    )
    max_latency: float = _declare_load(
        0.0,
        parse=parse_latency,
        minimum=0,
        metavar="TIME",
        default_text="none",
        help="latency bound of --mode server and --tune, for example 50ms",
    )
    generator: str = _declare_load(
        "auto", option="--load-generator", choices=LOAD_GENERATORS, help="generator of the queries in --mode server"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.mode == "server" and not self.max_latency:
            raise TesseraError("--mode server requires --max-latency", do="add --max-latency, for example 50ms")
        if self.mode != "server":
            options = {
                "target-rate": self.target_rate,
                "max-latency": self.max_latency,
                "load-generator": self.generator,
            }
            for name, value in options.items():
                if value not in (0, "auto"):
                    raise TesseraError(f"--{name} applies only to --mode server", got=f"--mode {self.mode}")

    def params(self) -> dict[str, Any]:
        """Return the case parameters of this load: all options that differ from their defaults."""
        return collect_params(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeOutcome:
    """The outcome of a load mode.

    `rate` (images/s) is compared with the machine's peak. `error` is the error that ended the run early, if any.
    """

    samples: Samples
    unit: str
    direction: Direction
    rate: float
    metrics: Mapping[str, Metric]
    chosen: Mapping[str, Any] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: BenchmarkFailed | None = None
