"""Load the network to run: a registered name, `module:callable`, `timm/NAME` or an ONNX file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tessera.errors import MissingExtra, TesseraError, get_first_line, suggest_similar
from tessera.models import MODELS, ModelInfo, build, compute_model_info, get_image_size

if TYPE_CHECKING:
    from torch import nn

TIMM_PREFIX, ONNX_SUFFIX = "timm/", ".onnx"  # mark model names outside the registry: `timm/NAME`, `FILE.onnx`
DEFAULT_CHANNELS = 3  # input channels of every registered network
BATCH_DIM = "batch"  # name of the dynamic batch dimension in every exported ONNX file


class NetworkSettings(Protocol):
    """The settings that choose a network (see `inference.settings.Settings`)."""

    @property
    def model(self) -> str: ...
    @property
    def weights(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def image_size(self) -> int: ...
    @property
    def norm_type(self) -> str: ...
    @property
    def group_dim(self) -> int: ...
    @property
    def expand_ratio(self) -> int: ...
    @property
    def batch_size(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class InferenceNetwork:
    """A network whose torch module is built on first use; an engine that runs an exported file never builds it.

    `file` is the ONNX file of a network without a torch module, and `dtype` the dtype of its input. `random_weights`
    is True for registered and timm networks without `--weights`. Equal networks have equal `identity` strings.
    """

    name: str
    image_shape: tuple[int, int, int]
    identity: str
    build: Callable[[], nn.Module] | None = None
    file: Path | None = None
    dtype: str = ""
    random_weights: bool = False

    @cached_property
    def module(self) -> nn.Module:
        """The torch module in evaluation mode."""
        if self.build is None:
            raise TesseraError(
                f"{self.name} is an ONNX file, not a torch module", do="use an engine that runs ONNX files"
            )
        return self.build().eval()


def load_network(settings: NetworkSettings) -> InferenceNetwork:
    """Return the network that the settings name, with its image size; its module is not built yet."""
    if settings.model.endswith(ONNX_SUFFIX):
        from tessera.inference.networks.onnx_files import load_onnx_network

        return load_onnx_network(settings)
    identity = "|".join(
        [settings.model, _identify_file(settings.weights), str(settings.seed), str(_collect_model_options(settings))]
    )
    registered = settings.model in MODELS
    build_module = cache(partial(build_network, settings))
    if registered and not settings.image_size:
        size, channels = get_image_size(settings.model), DEFAULT_CHANNELS
    else:  # a network of the user or a changed image size: check that the network accepts the shape
        module = build_module()
        size = settings.image_size or _find_image_size(settings.model, module)
        channels = _count_input_channels(module)
        _check_input_shape(module, (1, channels, size, size))
    return InferenceNetwork(
        name=settings.model,
        image_shape=(channels, size, size),
        identity=f"{identity}|{channels}x{size}",
        build=build_module,
        random_weights=(registered or settings.model.startswith(TIMM_PREFIX)) and not settings.weights,
    )


def build_network(settings: NetworkSettings) -> nn.Module:
    """Build the torch module of the settings in evaluation mode, with its weights."""
    if settings.model.startswith(TIMM_PREFIX):
        module = _build_timm(settings)
    else:
        options = _collect_model_options(settings)
        module = build(settings.model, weights=settings.weights or None, seed=settings.seed, **options)
    _check_norm(settings, module)
    return module.eval()


def compute_network_info(settings: NetworkSettings) -> ModelInfo | None:
    """Count the parameters of the network, and the FLOPs and bytes of a batch.

    Returns None for an ONNX file, and for a network that cannot run on the meta device.
    """
    if settings.model.endswith(ONNX_SUFFIX):
        return None
    network = load_network(settings)
    return _try_count(network.module, (settings.batch_size, *network.image_shape))


def _try_count(module: nn.Module, input_shape: tuple[int, ...]) -> ModelInfo | None:
    """Count parameters, FLOPs and bytes on the meta device; return None if the network cannot run there."""
    try:
        return compute_model_info(module, input_shape)
    except TesseraError:
        return None


def _check_input_shape(module: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Raise an error if the network does not accept the input shape.

    The network runs on the meta device or, if that fails, on a tensor of zeros.
    """
    import torch

    if _try_count(module, input_shape) is not None:
        return
    try:
        with torch.no_grad():
            module(torch.zeros(input_shape))
    except Exception as error:  # the user's code may raise any exception
        raise TesseraError(
            f"the forward pass of the model failed: {get_first_line(error)}", got=f"input of shape {input_shape}"
        ) from None


def _collect_model_options(settings: NetworkSettings) -> dict[str, Any]:
    """Return the keyword arguments for the function that builds the network, from the settings."""
    options: dict[str, Any] = {
        name: value for name in ("group_dim", "expand_ratio") if (value := getattr(settings, name))
    }
    parameters = inspect.signature(MODELS[settings.model].factory).parameters if settings.model in MODELS else ()
    if settings.norm_type and "norm" in parameters:
        options["norm"] = settings.norm_type
    return options


def _check_norm(settings: NetworkSettings, module: nn.Module) -> None:
    """Raise an error if the norm layers of the network are not of the type of `--norm-type`."""
    from torch import nn

    if not settings.norm_type:
        return
    kinds = {"batch": nn.BatchNorm2d, "group": nn.GroupNorm}
    present = [name for name, kind in kinds.items() if any(isinstance(layer, kind) for layer in module.modules())]
    if (present or ["none"]) != [settings.norm_type]:
        raise TesseraError(
            f"{settings.model} does not support --norm-type {settings.norm_type}",
            allowed=" and ".join(present) or "none",
            do="use an EfficientNet (batch or group) or a VGG (none; batch as vgg16_bn)",
        )


def _build_timm(settings: NetworkSettings) -> nn.Module:
    """Build a timm network; its weights are random unless `--weights` names a file."""
    if find_spec("timm") is None:
        raise MissingExtra("timm", "timm")
    try:
        import timm
    except Exception as error:  # timm imports torchvision, which fails in many ways if built for another torch
        raise TesseraError(
            f"timm cannot be imported: {get_first_line(error)}", do="fix the installation, or use a registered model"
        ) from None
    import torch

    from tessera.models.weights import load_weights

    if settings.group_dim or settings.expand_ratio:
        raise TesseraError("--group-dim and --expand-ratio apply only to registered EfficientNets", got=settings.model)
    name = settings.model.removeprefix(TIMM_PREFIX)
    if not timm.is_model(name):
        known = timm.list_models()
        raise TesseraError(
            "timm has no model of this name", got=name, do=suggest_similar(name, known, "see timm.list_models()")
        )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(settings.seed)
        module: nn.Module = timm.create_model(name)
    if settings.weights:
        load_weights(module, Path(settings.weights))
    return module


def _find_image_size(model: str, module: nn.Module) -> int:
    """Return the image size of a network that is not registered: from its timm config, else the default."""
    size = getattr(module, "pretrained_cfg", {}).get("input_size", ()) if model.startswith(TIMM_PREFIX) else ()
    return int(size[-1]) if size else get_image_size(model)


def _count_input_channels(module: nn.Module) -> int:
    """Return the number of input channels of the first convolution; 3 if there is no convolution."""
    from torch import nn

    return next((layer.in_channels for layer in module.modules() if isinstance(layer, nn.Conv2d)), DEFAULT_CHANNELS)


def _identify_file(path: str) -> str:
    """Return a string that changes when the file is replaced; empty without a path."""
    if not path:
        return ""
    try:
        status = Path(path).stat()
    except OSError:
        raise TesseraError("weights file not found", got=path) from None
    return f"{Path(path).resolve()}:{status.st_size}:{status.st_mtime_ns}"
