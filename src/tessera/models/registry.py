"""The models there are, by name, and how one is built. Listing them imports no torch."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tessera.errors import TesseraError, did_you_mean

if TYPE_CHECKING:
    from torch import nn

Factory = Callable[..., "nn.Module"]
IMAGE_SIZE = 224  # of most networks for ImageNet


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A registered model: its name, one line on it, the image size it was made for, what lays out its layers."""

    name: str
    description: str
    image_size: int
    factory: Factory


MODELS: dict[str, Entry] = {}


def model(name: str, description: str, image_size: int = IMAGE_SIZE) -> Callable[[Factory], Factory]:
    """Register the decorated function as the model `name`.

    The function lays out the layers of the network and leaves their values to `build`, which runs it on the
    meta device. It imports torch itself, so that listing the models does not.
    """

    def register(factory: Factory) -> Factory:
        if name in MODELS:
            raise TesseraError("a model of this name is registered already", got=name)
        if ":" in name:
            raise TesseraError("a model's name holds no colon: that is a module:callable", got=name)
        MODELS[name] = Entry(name=name, description=description, image_size=image_size, factory=factory)
        return factory

    return register


def list_models(pattern: str = "*") -> list[Entry]:
    """The registered models whose name matches a glob, in the order they were registered.

    >>> [entry.name for entry in list_models("resnext*")]
    ['resnext50_32x4d', 'resnext101_32x8d']
    """
    return [entry for name, entry in MODELS.items() if fnmatchcase(name, pattern)]


def image_size_of(name_or_spec: str) -> int:
    """The image size that a model was made for; of one of your own, that of most networks.

    >>> image_size_of("efficientnet_b4")
    380
    """
    return MODELS[name_or_spec].image_size if name_or_spec in MODELS else IMAGE_SIZE


def build(name_or_spec: str, weights: str | Path | None = None, seed: int = 0, **options: Any) -> nn.Module:
    """Build a model in evaluation mode: a registered name, or `module:callable` for one of your own.

    Weights come from a file (safetensors, or torch's format without code), else they are random from `seed`,
    the same each time; the global random state is left as it was. `options` go to the model's function.
    """
    from tessera.models.weights import initialise, load_weights

    module = lay_out(name_or_spec, seed=seed, **options)
    if weights is not None:
        load_weights(module, Path(weights))
    elif any(p.is_meta for p in module.parameters()):
        module.to_empty(device="cpu")
        initialise(module, seed)
    return module.eval()


def _made(spec: str, factory: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """What a factory of a user gives; whatever it raises is told in a line."""
    try:
        return factory(**options)
    except TesseraError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise TesseraError(f"{spec} cannot be built: {type(error).__name__}: {first}") from error


def lay_out(name_or_spec: str, *, seed: int = 0, **options: Any) -> nn.Module:
    """The layers of a model: a registered one on the meta device, without values; your own as it comes."""
    import torch

    if ":" in name_or_spec:
        with _current_directory_importable():
            factory = _import(name_or_spec)
            _check_options(name_or_spec, factory, options)
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                module = _made(name_or_spec, factory, options)
    else:
        factory = _entry(name_or_spec).factory
        _check_options(name_or_spec, factory, options)
        with torch.device("meta"):
            module = factory(**options)
    if not isinstance(module, torch.nn.Module):
        raise TesseraError(f"{name_or_spec} gives no torch.nn.Module", got=type(module).__name__)
    return module


def _entry(name: str) -> Entry:
    if name not in MODELS:
        raise TesseraError(
            "unknown model",
            got=name,
            allowed=[*MODELS, "module:callable"],
            do=did_you_mean(name, MODELS),
        )
    return MODELS[name]


def _import(spec: str) -> Factory:
    module_name, _, attribute = spec.partition(":")
    if not module_name or not attribute:
        raise TesseraError("a model of your own is written module:callable", got=spec)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise TesseraError(
            f"cannot import {module_name}: no module named {error.name}",
            do="run from its folder or install it",
        ) from None
    except Exception as error:
        raise TesseraError(f"cannot import {module_name}: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            names = [n for n in vars(found) if not n.startswith("_")] if hasattr(found, "__dict__") else []
            raise TesseraError(f"{module_name} has no {part}", got=spec, do=did_you_mean(part, names))
        found = getattr(found, part)
    if not callable(found):
        raise TesseraError(f"{spec} cannot be called", got=type(found).__name__)
    return found  # type: ignore[no-any-return]


def _check_options(name: str, factory: Factory, options: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(factory)
    except ValueError:  # a builtin without a signature says so itself when it is called
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        raise TesseraError(f"{name}: {error}", got=options, allowed=signature.parameters) from None


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    """Let `module:callable` name a file in the current directory, as `python -m` would."""
    here = os.getcwd()
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added:
            sys.path.remove(here)
