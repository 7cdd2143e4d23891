"""The network that is run: a registered name, `module:callable`, `timm/NAME` or an ONNX file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.errors import MissingExtra, TesseraError, did_you_mean, first_line
from tessera.inference.settings import ONNX, TIMM, Settings
from tessera.models import MODELS, ModelInfo, build, count, image_size_of

if TYPE_CHECKING:
    from torch import nn

CHANNELS = 3  # of every registered network as it is built here


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network that is not built before it is needed: where its files lie ready, an engine does without.

    `file` is the ONNX file of one that has no torch module, `element` the type of the images that it takes.
    `random_weights` are those of a registered network, or one of timm, without `--weights`. `identity` is equal for
    equal networks.
    """

    name: str
    image_shape: tuple[int, int, int]
    identity: str
    make: Callable[[], nn.Module] | None = None
    file: Path | None = None
    element: str = ""
    random_weights: bool = False

    @cached_property
    def module(self) -> nn.Module:
        """The torch module in evaluation mode."""
        if self.make is None:
            raise TesseraError(f"{self.name} is an ONNX file, not a torch module", do="use onnxruntime or openvino")
        return self.make().eval()


def load_network(settings: Settings) -> Network:
    """Find the network that the settings name, and how large its images are."""
    if settings.model.endswith(ONNX):
        from tessera.inference.networks.onnx_files import network_of_file

        return network_of_file(settings)
    identity = "|".join([settings.model, _file_identity(settings.weights), str(settings.seed), str(_options(settings))])
    registered = settings.model in MODELS
    make = cache(partial(build_network, settings))
    if registered and not settings.image_size:
        size, channels = image_size_of(settings.model), CHANNELS
    else:  # one's own network, or another size of image: see now whether the two go together
        made = make()
        size, channels = settings.image_size or _own_size(settings.model, made), _channels(made)
        _check_takes(made, (1, channels, size, size))
    return Network(
        name=settings.model,
        image_shape=(channels, size, size),
        identity=f"{identity}|{channels}x{size}",
        make=make,
        random_weights=(registered or settings.model.startswith(TIMM)) and not settings.weights,
    )


def build_network(settings: Settings) -> nn.Module:
    """The torch module of the settings, in evaluation mode, with its weights."""
    if settings.model.startswith(TIMM):
        module = _timm(settings)
    else:
        options = _options(settings)
        module = build(settings.model, weights=settings.weights or None, seed=settings.seed, **options)
    _check_norm(settings, module)
    return module.eval()


def network_info(settings: Settings) -> ModelInfo | None:
    """Parameters, FLOPs and bytes of a batch; None of an ONNX file, and of what runs on values only."""
    if settings.model.endswith(ONNX):
        return None
    network = load_network(settings)
    return _counted(network.module, (settings.batch_size, *network.image_shape))


def _counted(module: nn.Module, input_shape: tuple[int, ...]) -> ModelInfo | None:
    """What a network costs on paper; None of one that only runs on values, such as one whose code looks at them."""
    try:
        return count(module, input_shape)
    except TesseraError:
        return None


def _check_takes(module: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Refuse images that a network does not take: on paper, or by running one where that cannot be told there."""
    import torch

    if _counted(module, input_shape) is not None:
        return
    try:
        with torch.no_grad():
            module(torch.zeros(input_shape))
    except Exception as error:  # it is somebody else's code, and raises what it likes
        raise TesseraError(f"the model does not take this input: {first_line(error)}", got=input_shape) from None


def _options(settings: Settings) -> dict[str, Any]:
    """What the settings say to the function that lays out the network."""
    options: dict[str, Any] = {
        name: value for name in ("group_dim", "expand_ratio") if (value := getattr(settings, name))
    }
    takes = inspect.signature(MODELS[settings.model].factory).parameters if settings.model in MODELS else ()
    if settings.norm_type and "norm" in takes:
        options["norm"] = settings.norm_type
    return options


def _check_norm(settings: Settings, module: nn.Module) -> None:
    """A network has the norm that was asked for, or it is refused: nothing is exchanged behind one's back."""
    from torch import nn

    if not settings.norm_type:
        return
    kinds = {"batch": nn.BatchNorm2d, "group": nn.GroupNorm}
    found = [name for name, kind in kinds.items() if any(isinstance(layer, kind) for layer in module.modules())]
    if (found or ["none"]) != [settings.norm_type]:
        raise TesseraError(
            f"{settings.model} has no --norm-type {settings.norm_type}",
            allowed=" and ".join(found) or "none",
            do="the EfficientNets have batch and group, the VGGs none and (as vgg16_bn, …) batch",
        )


def _timm(settings: Settings) -> nn.Module:
    """A network of timm by its name; random weights unless a file is given, as of every other network."""
    if find_spec("timm") is None:
        raise MissingExtra("timm", "timm")
    try:
        import timm
    except Exception as error:  # torchvision, which timm imports, may be built for another torch and fails in many ways
        raise TesseraError(
            f"timm does not import here: {first_line(error)}", do="mend it, or use a registered model"
        ) from None
    import torch

    from tessera.models.weights import load_weights

    if settings.group_dim or settings.expand_ratio:
        raise TesseraError("--group-dim and --expand-ratio are of the EfficientNets here", got=settings.model)
    name = settings.model.removeprefix(TIMM)
    if not timm.is_model(name):
        known = timm.list_models()
        raise TesseraError("timm has no such model", got=name, do=did_you_mean(name, known, "see timm.list_models()"))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(settings.seed)
        module: nn.Module = timm.create_model(name)
    if settings.weights:
        load_weights(module, Path(settings.weights))
    return module


def _own_size(model: str, module: nn.Module) -> int:
    """The image size of a network without an entry: timm's say it, others are taken to be like most."""
    size = getattr(module, "pretrained_cfg", {}).get("input_size", ()) if model.startswith(TIMM) else ()
    return int(size[-1]) if size else image_size_of(model)


def _channels(module: nn.Module) -> int:
    """The channels that the first convolution takes; three colours where there is none."""
    from torch import nn

    return next((layer.in_channels for layer in module.modules() if isinstance(layer, nn.Conv2d)), CHANNELS)


def _file_identity(path: str) -> str:
    """Another file under the same name is another network."""
    if not path:
        return ""
    try:
        found = Path(path).stat()
    except OSError:
        raise TesseraError("no such file of weights", got=path) from None
    return f"{Path(path).resolve()}:{found.st_size}:{found.st_mtime_ns}"
