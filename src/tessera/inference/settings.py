"""The settings of one replica: network, engine, precision and input. Each field is an axis of inference cases.

Accelerator options are translated to a CPU host; notes tell which options have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from tessera.affinity import get_affinity
from tessera.axes import check_fields, collect_params, declare_axis
from tessera.device import CPU, parse_device_choice
from tessera.errors import TesseraError, suggest_similar
from tessera.inference.engines import ENGINES
from tessera.inference.networks.loading import ONNX_SUFFIX, TIMM_PREFIX
from tessera.inference.parsing import parse_batch_sizes, parse_share
from tessera.inference.precision import PRECISIONS, resolve_precision
from tessera.models import MODELS

NORMALIZATION_LOCATIONS = ("host", "device", "none")
DEVICE_ALIAS = "ipu"  # normalization location `device` in the options of poprun
NORM_TYPES = ("batch", "group", "none")  # kinds of normalisation layers
PERFORMANCE_HINTS = ("latency", "throughput")
GENERATED_DATA, SYNTHETIC_DATA = "generated", "synthetic"  # values of --data
MODEL_ALIASES = {"resnext50": "resnext50_32x4d", "resnext101": "resnext101_32x8d"}
_declare_network, _declare_input, _declare_engine = (  # fields of one group of the help text
    partial(declare_axis, group=group) for group in ("network", "input", "engine")
)


def _check_precision(name: str) -> None:
    if resolve_precision(name) not in PRECISIONS:
        raise TesseraError("unknown precision", got=name, allowed=PRECISIONS, do=suggest_similar(name, PRECISIONS))


def _check_agreement(share: float) -> None:
    if not 0 <= share <= 1:
        raise TesseraError("invalid --min-agreement", got=share, allowed="a fraction from 0 to 1")


def _check_data(source: str) -> None:
    if source not in (GENERATED_DATA, SYNTHETIC_DATA) and not Path(source).is_dir():
        raise TesseraError(
            "unknown --data",
            got=source,
            allowed=(GENERATED_DATA, SYNTHETIC_DATA, "a folder of images"),
            do=suggest_similar(source, (GENERATED_DATA, SYNTHETIC_DATA)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one replica: plain JSON values, with fields named after the options.

    An empty `norm_type` and an `image_size`, `group_dim` or `expand_ratio` of 0 keep the network as published. A
    `min_agreement` of 0 selects the limit of the precision (see `agreement`).

    >>> Settings(model="resnet50", precision="int8", batch_size=8).params()
    {'model': 'resnet50', 'engine': 'onnxruntime', 'precision': 'int8', 'batch_size': 8}
    """

    model: str = _declare_network(
        "resnet50",
        in_key="always",
        several=True,
        metavar="NAME,…",
        default_text="none",
        help="network: a name, module:callable, timm/NAME or a .onnx file",
    )
    weights: str = _declare_network(
        "", metavar="FILE", default_text="random weights", help="weights file in safetensors or torch format"
    )
    seed: int = _declare_network(0, minimum=0, help="seed of random weights and images")
    image_size: int = _declare_network(
        0, minimum=0, default_text="image size of the network", help="height and width of the images in pixels"
    )
    norm_type: str = _declare_network("", choices=("", *NORM_TYPES), help="normalisation layers of the network")
    group_dim: int = _declare_network(
        0, minimum=0, default_text="as published", help="channels per group of an EfficientNet"
    )
    expand_ratio: int = _declare_network(
        0, minimum=0, default_text="as published", help="expansion ratio of an EfficientNet"
    )

    engine: str = _declare_engine(
        "onnxruntime", in_key="always", several=True, choices=tuple(ENGINES), help="inference engine"
    )
    precision: str = _declare_engine(
        "32.32",
        in_key="always",
        several=True,
        check=_check_precision,
        help=f"number formats of activations and weights: {', '.join(PRECISIONS)}",
    )
    device: str = _declare_engine(
        CPU,
        several=True,
        parse=parse_device_choice,
        check=parse_device_choice,
        help="devices that compute: cpu, torch's accelerator (cuda:0, xpu, …; without a number, replicas use all "
        "devices in turns), tensorrt, dml or coreml for onnxruntime, gpu or npu for openvino",
    )
    half_partial: bool = _declare_engine(False, action="on_off", help="partial sums in half precision")
    hint: str = _declare_engine(
        "latency", choices=PERFORMANCE_HINTS, help="performance hint, for engines that support hints"
    )
    streams: int = _declare_engine(
        1, minimum=1, help="number of batches computed concurrently, for engines that support streams"
    )
    min_agreement: float = _declare_engine(
        0.0,
        parse=parse_share,
        check=_check_agreement,
        metavar="FRACTION",
        default_text="set by the precision",
        help="minimum top-1 agreement with torch; a case below it is refused",
    )

    batch_size: int = _declare_network(
        1,
        in_key="always",
        several=True,
        parse_list=parse_batch_sizes,
        minimum=1,
        metavar="SIZES",
        help="images per batch: numbers, ranges (1..80 doubles, 1..80:8 has steps), or the sizes of the config (all)",
    )
    device_iterations: int = declare_axis(1, minimum=1, group="sampling", help="batches per window, with --iterations")

    data: str = _declare_input(
        GENERATED_DATA,
        check=_check_data,
        metavar="SOURCE",
        help="images: generated (through the input pipeline), synthetic (in the engine's memory), or a folder",
    )
    eight_bit_io: bool = _declare_input(False, action="on_off", help="uint8 input of the engine")
    normalization_location: str = _declare_input(
        "host", choices=(*NORMALIZATION_LOCATIONS, DEVICE_ALIAS), help="where pixels are normalised (ipu means device)"
    )
    prefetch: bool = _declare_input(True, action="on_off", help="prefetching of input; latency is lowest without it")
    num_io_tiles: int = _declare_input(1, minimum=0, help="number of threads that prepare input")
    dataloader_worker: int = _declare_input(1, minimum=1, help="number of processes that decode image files")

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "precision", resolve_precision(self.precision))
        if self.normalization_location == DEVICE_ALIAS:
            object.__setattr__(self, "normalization_location", "device")
        object.__setattr__(self, "model", resolve_model(self.model))
        object.__setattr__(self, "device", parse_device_choice(self.device))
        ENGINES[self.engine].check(
            is_file=self.model.endswith(ONNX_SUFFIX),
            precision=self.precision,
            hint=self.hint,
            streams=self.streams,
            device=self.device,
        )

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Settings:
        """Build settings from the parameters of a case or a config; an unknown name raises an error."""
        known = [each.name for each in fields(cls)]
        for name in params:
            if name not in known:
                raise TesseraError("unknown setting", got=name, allowed=known, do=suggest_similar(name, known))
        return cls(**params)

    def params(self) -> dict[str, Any]:
        """Return the case parameters: the mandatory settings, and the settings that differ from their defaults."""
        return collect_params(self)


def resolve_model(name: str) -> str:
    """Return the registered name of a network for a name or an alias used by other projects.

    >>> resolve_model("resnext101"), resolve_model("efficientnet-b0")
    ('resnext101_32x8d', 'efficientnet_b0')
    """
    registered = MODEL_ALIASES.get(name) or name.replace("-", "_")
    if registered in MODELS:
        return registered
    if ":" in name or name.startswith(TIMM_PREFIX) or name.endswith(ONNX_SUFFIX):
        return name
    raise TesseraError(
        "unknown model",
        got=name,
        allowed=[*MODELS, "module:callable", f"{TIMM_PREFIX}NAME", f"FILE{ONNX_SUFFIX}"],
        do=suggest_similar(name, [*MODELS, *MODEL_ALIASES]),
    )


def get_normalization_location(settings: Settings) -> str:
    """Return the place of normalisation (`host`, `device` or `none`).

    8-bit input cannot represent normalised pixels, so it is normalised on the device.
    """
    return "device" if _needs_device_normalization(settings) else settings.normalization_location


def count_io_threads(settings: Settings) -> int:
    """Return the number of threads that prepare input: at most the number of cores, 0 without prefetching."""
    return min(settings.num_io_tiles, len(get_affinity())) if settings.prefetch else 0


def make_option_notes(settings: Settings) -> tuple[str, ...]:
    """Return notes about options that have no effect or a different meaning on a host.

    >>> make_option_notes(Settings(half_partial=True))
    ('--half-partial has no effect: engines on a host accumulate in float32, or in int32 for int8',)
    """
    notes = []
    if settings.hint == "throughput" and settings.streams == 1:
        notes.append("--hint throughput has no effect with one stream: add --streams")
    if settings.half_partial:
        notes.append("--half-partial has no effect: engines on a host accumulate in float32, or in int32 for int8")
    if _needs_device_normalization(settings):
        notes.append("--eight-bit-io input cannot hold normalised pixels: they are normalised on the device")
    if settings.data == SYNTHETIC_DATA:
        notes.append("--data synthetic: input is in the engine's memory; latency does not include preparing input")
        if settings.num_io_tiles > 1 or not settings.prefetch:
            notes.append("--num-io-tiles and --prefetch have no effect: there is no input to prepare")
    elif settings.num_io_tiles > 1:
        threads = count_io_threads(settings)
        notes.append(f"--num-io-tiles {settings.num_io_tiles}: on a host, threads that prepare input; {threads} here")
    if settings.dataloader_worker > 1 and not Path(settings.data).is_dir():
        notes.append("--dataloader-worker has no effect: only image files are decoded by separate processes")
    return tuple(notes)


def make_sampling_notes(settings: Settings, *, mode: str, iterations: int | None) -> tuple[str, ...]:
    """Return notes about sampling options that have no effect in this mode.

    >>> make_sampling_notes(Settings(device_iterations=128), mode="offline", iterations=None)
    ('--device-iterations has no effect without --iterations: windows then have a fixed time',)
    """
    notes = []
    if mode == "server" and iterations is not None:
        notes.append("--iterations has no effect in --mode server: a trial lasts a quarter of the --budget")
    if settings.device_iterations > 1 and (mode == "server" or iterations is None):
        notes.append("--device-iterations has no effect without --iterations: windows then have a fixed time")
    return tuple(notes)


def _needs_device_normalization(settings: Settings) -> bool:
    return settings.eight_bit_io and settings.normalization_location == "host"
