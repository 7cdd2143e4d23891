"""The registry of models, and how a model is built. Listing models does not import torch."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.errors import TesseraError, suggest_similar

if TYPE_CHECKING:
    from torch import nn

Factory = Callable[..., "nn.Module"]
DEFAULT_IMAGE_SIZE = 224  # height and width in pixels, as in most ImageNet networks


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A registered model: name, one-line description, image size, and the function that builds its layers."""

    name: str
    description: str
    image_size: int
    factory: Factory


MODELS: dict[str, ModelEntry] = {}


def model(name: str, description: str, image_size: int = DEFAULT_IMAGE_SIZE) -> Callable[[Factory], Factory]:
    """Register the decorated function as the model `name`.

    `build` calls the function on the meta device and initialises the weights afterwards. The function must import torch
    inside its body, so that listing models does not import torch.
    """

    def register(factory: Factory) -> Factory:
        if name in MODELS:
            raise TesseraError("a model of this name is already registered", got=name, do="choose another name")
        if ":" in name:
            raise TesseraError("a model name must not contain a colon", got=name)
        MODELS[name] = ModelEntry(name=name, description=description, image_size=image_size, factory=factory)
        return factory

    return register


def list_models(pattern: str = "*") -> list[ModelEntry]:
    """Return the registered models whose name matches a glob, in order of registration.

    >>> [entry.name for entry in list_models("resnext*")]
    ['resnext50_32x4d', 'resnext101_32x8d']
    """
    return [entry for name, entry in MODELS.items() if fnmatchcase(name, pattern)]


def get_image_size(name_or_spec: str) -> int:
    """Return the image size of a registered model in pixels, or the default for `module:callable`.

    >>> get_image_size("efficientnet_b4")
    380
    """
    return MODELS[name_or_spec].image_size if name_or_spec in MODELS else DEFAULT_IMAGE_SIZE


def build(name_or_spec: str, weights: str | Path | None = None, seed: int = 0, **options: Any) -> nn.Module:
    """Build a model in evaluation mode from a registered name or `module:callable`.

    Weights come from a file (safetensors, or torch's format restricted to tensors), or are random from `seed`. The
    global random state is not changed. `options` are passed to the model's function.
    """
    from tessera.models.weights import initialise_weights, load_weights

    module = build_layers(name_or_spec, seed=seed, **options)
    if weights is not None:
        load_weights(module, Path(weights))
    elif any(p.is_meta for p in module.parameters()):
        module.to_empty(device="cpu")
        initialise_weights(module, seed)
    return module.eval()


def _call_factory(spec: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """Call the user's factory; convert its exceptions to a one-line error."""
    try:
        return factory(**options)
    except TesseraError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise TesseraError(f"{spec} cannot be built: {type(error).__name__}: {first}") from error


def build_layers(name_or_spec: str, *, seed: int = 0, **options: Any) -> nn.Module:
    """Build the layers of a model without loading weights.

    Registered models are built on the meta device; `module:callable` chooses the device itself.
    """
    return _build_with_inputs(name_or_spec, seed, options)[0]


def build_example_inputs(name_or_spec: str, *, seed: int = 0) -> Any:
    """Return the inputs that `module:callable` returns beside its model; None if it returns the model only."""
    return _build_with_inputs(name_or_spec, seed, {})[1] if ":" in name_or_spec else None


def _build_with_inputs(name_or_spec: str, seed: int, options: dict[str, Any]) -> tuple[nn.Module, Any]:
    import torch

    if ":" in name_or_spec:
        with _import_from_current_directory():
            factory = _import_factory(name_or_spec)
            _check_options(name_or_spec, factory, options)
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                result: Any = _call_factory(name_or_spec, factory, options)
    else:
        factory = _get_entry(name_or_spec).factory
        _check_options(name_or_spec, factory, options)
        with torch.device("meta"):
            result = factory(**options)
    module, inputs = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    if not isinstance(module, torch.nn.Module):
        raise TesseraError(
            f"{name_or_spec} does not return a torch.nn.Module, alone or with its inputs", got=type(result).__name__
        )
    return module, inputs


def _get_entry(name: str) -> ModelEntry:
    if name not in MODELS:
        raise TesseraError(
            "unknown model",
            got=name,
            allowed=[*MODELS, "module:callable"],
            do=suggest_similar(name, MODELS),
        )
    return MODELS[name]


def _import_factory(spec: str) -> Factory:
    """Import the function or class that `module:callable` or `file.py:callable` names."""
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise TesseraError("a model that is not registered must be written as module:callable", got=spec)
    try:
        target: Any = (
            _import_file(Path(module_name)) if module_name.endswith(".py") else importlib.import_module(module_name)
        )
    except ModuleNotFoundError as error:
        raise TesseraError(
            f"cannot import {module_name}: no module named {error.name}",
            do="run the command in the folder of the module, or install the module",
        ) from None
    except TesseraError:
        raise
    except Exception as error:
        raise TesseraError(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            names = [n for n in vars(target) if not n.startswith("_")] if hasattr(target, "__dict__") else []
            raise TesseraError(
                f"module {module_name} has no attribute {part}", got=spec, do=suggest_similar(part, names)
            )
        target = getattr(target, part)
    if not callable(target):
        raise TesseraError(f"{spec} is not callable", got=type(target).__name__)
    return target  # type: ignore[no-any-return]


def _import_file(path: Path) -> Any:
    """Import a Python file as a module of its own."""
    if not path.is_file():
        raise TesseraError("no such Python file", got=str(path), do="run the command in the folder of the file")
    name = f"{path.stem}_at_{zlib.crc32(str(path.resolve()).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "the name ends in .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _check_options(name: str, factory: Factory, options: dict[str, Any]) -> None:
    """Raise an error if the factory does not accept the options."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # a builtin has no signature; it reports wrong options when it is called
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        raise TesseraError(f"{name}: {error}", got=options, allowed=signature.parameters) from None


@contextmanager
def _import_from_current_directory() -> Iterator[None]:
    """Allow imports from the current directory, as `python -m` does, so that `module:callable` finds files there."""
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)
