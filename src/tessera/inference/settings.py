"""What one replica runs: the network, the engine, the precision and the data, as plain values that are checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError, did_you_mean
from tessera.inference.engines import ENGINES
from tessera.inference.precision import PRECISIONS, spelled_out
from tessera.models import MODELS

LOCATIONS = ("host", "device", "none")
NORM_TYPES = ("batch", "group", "none")
HINTS = ("latency", "throughput")
GENERATED, SYNTHETIC = "generated", "synthetic"
TIMM, ONNX = "timm/", ".onnx"  # how models are written that are not registered here
MODEL_ALIASES = {"resnext50": "resnext50_32x4d", "resnext101": "resnext101_32x8d"}
ANYWAY = ("model", "engine", "precision", "batch_size")  # of every case, even where they are as usual


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that one replica needs to know, in the words of the options; only plain JSON values.

    An empty `norm_type` and an `image_size`, `group_dim` or `expand_ratio` of 0 leave the network as it was published.
    `min_agreement` of 0 is what the precision has to reach (see `agreement`).

    >>> Settings(model="resnet50", precision="int8", batch_size=8).params()
    {'model': 'resnet50', 'engine': 'onnxruntime', 'precision': 'int8', 'batch_size': 8}
    """

    model: str = "resnet50"
    weights: str = ""
    seed: int = 0
    image_size: int = 0
    norm_type: str = ""
    group_dim: int = 0
    expand_ratio: int = 0

    engine: str = "onnxruntime"
    precision: str = "32.32"
    half_partial: bool = False
    hint: str = "latency"
    streams: int = 1
    min_agreement: float = 0.0

    batch_size: int = 1
    device_iterations: int = 1

    data: str = GENERATED
    eight_bit_io: bool = False
    normalization_location: str = "host"
    prefetch: bool = True
    num_io_tiles: int = 1
    dataloader_worker: int = 1

    def __post_init__(self) -> None:
        for one in fields(self):
            _check_type(one, getattr(self, one.name))
        object.__setattr__(self, "precision", spelled_out(self.precision))
        if self.normalization_location == "ipu":  # what poprun's users call the device
            object.__setattr__(self, "normalization_location", "device")
        object.__setattr__(self, "model", _model(self.model))
        _one_of("engine", self.engine, ENGINES)
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("hint", self.hint, HINTS)
        _one_of("normalization_location", self.normalization_location, LOCATIONS)
        if self.norm_type:
            _one_of("norm_type", self.norm_type, NORM_TYPES)
        for name in ("batch_size", "device_iterations", "streams", "dataloader_worker"):
            _at_least(name, getattr(self, name), 1)
        for name in ("seed", "image_size", "group_dim", "expand_ratio", "num_io_tiles"):
            _at_least(name, getattr(self, name), 0)
        if not 0 <= self.min_agreement <= 1:
            raise TesseraError(_option("min_agreement"), got=self.min_agreement, allowed="a share between 0 and 1")
        self._check_data()
        ENGINES[self.engine].check(precision=self.precision, hint=self.hint, streams=self.streams)

    def _check_data(self) -> None:
        if self.data in (GENERATED, SYNTHETIC):
            return
        if not Path(self.data).is_dir():
            raise TesseraError(
                "--data is where the images come from",
                got=self.data,
                allowed=(GENERATED, SYNTHETIC, "a folder of images"),
                do=did_you_mean(self.data, (GENERATED, SYNTHETIC)),
            )

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Settings:
        """From the parameters of a case or the values of a config; a name that is not an option is refused."""
        known = [one.name for one in fields(cls)]
        for name in params:
            if name not in known:
                raise TesseraError("unknown setting", got=name, allowed=known, do=did_you_mean(name, known))
        return cls(**params)

    def params(self) -> dict[str, Any]:
        """The parameters of a case: what is as usual is left out, but for what every case is known by."""
        return {
            one.name: value
            for one in fields(self)
            if (value := getattr(self, one.name)) != one.default or one.name in ANYWAY
        }


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_type(one: Field[Any], value: object) -> None:
    """Values come from files as well: `batch_size = "8"` has to say so itself, rather than fail somewhere."""
    assert one.default is not MISSING
    wanted = type(one.default)
    fits = type(value) in ((int, float) if wanted is float else (wanted,))
    if not fits:
        words = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
        raise TesseraError(_option(one.name), got=value, allowed=words[wanted])


def _model(name: str) -> str:
    """The network's name as it is registered, for the ways in which others write it.

    >>> _model("resnext101"), _model("efficientnet-b0")
    ('resnext101_32x8d', 'efficientnet_b0')
    """
    registered = MODEL_ALIASES.get(name) or name.replace("-", "_")
    if registered in MODELS:
        return registered
    if ":" in name or name.startswith(TIMM) or name.endswith(ONNX):
        return name
    raise TesseraError(
        "unknown model",
        got=name,
        allowed=[*MODELS, "module:callable", f"{TIMM}NAME", f"FILE{ONNX}"],
        do=did_you_mean(name, [*MODELS, *MODEL_ALIASES]),
    )


def _one_of(name: str, value: str, allowed: Mapping[str, object] | tuple[str, ...]) -> None:
    if value not in allowed:
        raise TesseraError(f"unknown {_option(name)}", got=value, allowed=allowed, do=did_you_mean(value, allowed))


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise TesseraError(_option(name), got=value, allowed=f"{least} or more")
