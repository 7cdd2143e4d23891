"""Checkpoints in published formats: safetensors files, folders with an index of shards, and torch files.

The weights are read directly from the checkpoint: no second copy is written, and only some of them are in memory.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tessera.errors import TesseraError, get_first_line
from tessera.phased.choices import CONFIG_NAME
from tessera.phased.store.stores import WeightStore
from tessera.phased.store.weights_file import CombinedFile, StoredTensor, TorchFile, WeightsFile

WEIGHT_NAMES = ("model", "diffusion_pytorch_model")  # of transformers and timm, of diffusers
TORCH_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt")


def open_checkpoint(path: Path) -> WeightStore:
    """Open a checkpoint: a file, or a folder with one file or an index of several files."""
    files = list_checkpoint_files(path)
    opened: list[WeightsFile] = []
    try:
        for file in files:
            opened.append(TorchFile(file) if file.suffix in TORCH_SUFFIXES else WeightsFile(file))
    except BaseException:
        for part in opened:
            part.close()
        raise
    combined = opened[0] if len(opened) == 1 else CombinedFile(opened)
    return WeightStore(files[0], file=combined)


def list_checkpoint_files(path: Path) -> list[Path]:
    """Return the weight files of a checkpoint."""
    if not path.is_dir():
        return [path]
    for index in sorted(path.glob("*.safetensors.index.json")):
        names = _read_json(index).get("weight_map", {})
        files = [path / name for name in sorted(set(names.values()))]
        missing = [file.name for file in files if not file.is_file()]
        if not files:
            raise TesseraError("the checkpoint index lists no weight files", got=str(index))
        if missing:
            raise TesseraError(
                "the checkpoint index lists weight files that do not exist",
                got=", ".join(missing),
                do=f"complete the download of {path}",
            )
        return files
    for name in WEIGHT_NAMES:
        if (path / f"{name}.safetensors").is_file():
            return [path / f"{name}.safetensors"]
    for pattern in ("*.safetensors", "pytorch_model*.bin", "*.pt", "*.pth"):
        if files := sorted(path.glob(pattern)):
            return files
    raise TesseraError("the folder holds no weights", got=str(path), allowed="*.safetensors, *.bin, *.pt or *.pth")


def build_checkpoint_model(path: Path, model: nn.Module | Callable[[], nn.Module] | None) -> nn.Module:
    """Return the network of a checkpoint without its weights.

    `model` is the network, a function that builds it, or None to build it from config.json with transformers, diffusers
    or timm.
    """
    if isinstance(model, nn.Module):
        return model
    build = model or _find_builder(path)
    with create_parameters_on_meta():
        network = build()
    if callable(tie := getattr(network, "tie_weights", None)):
        tie()
    return network.eval()


def read_checkpoint_table(path: Path, model: nn.Module) -> dict[str, StoredTensor]:
    """Return the tensors of a checkpoint by their names in the network."""
    store = open_checkpoint(path)
    try:
        adapt_names(store, model)
        return dict(store.file.tensors)
    finally:
        store.close()


def adapt_names(store: WeightStore, model: nn.Module) -> None:
    """Add the network's names of tensors to a checkpoint with other names.

    The names differ by the base-model prefix, or they are those of an earlier version of transformers, which has rules
    that rename them. Tensors that these rules would join or split are not converted.
    """
    tensors = store.file.tensors
    wanted = set(model.state_dict(keep_vars=True))
    if not wanted <= set(tensors):
        rules = _list_renaming_rules(model)
        for name, tensor in list(tensors.items()):
            renamed = name
            for rule in rules:
                renamed = rule.rename_source_key(renamed)[0]
            if renamed in wanted and renamed not in tensors and name not in wanted:
                tensors[renamed] = tensor
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    if len(prefix) == 1 or wanted & set(tensors) == wanted:
        return
    for name in list(tensors):
        for other in (prefix + name, name.removeprefix(prefix)):
            if other in wanted and other not in tensors and name not in wanted:
                tensors[other] = tensors[name]


def _list_renaming_rules(model: nn.Module) -> list[Any]:
    """Return the rules by which the installed transformers renames the tensors of a network; empty if it has none."""
    if not type(model).__module__.startswith("transformers."):
        return []
    try:
        mapping = importlib.import_module("transformers.conversion_mapping")
        rename = importlib.import_module("transformers.core_model_loading").WeightRenaming
        rules = mapping.get_model_conversion_mapping(model)
    except (ImportError, AttributeError):  # an earlier version, which has no rules
        return []
    return [rule for rule in rules if isinstance(rule, rename)]


def list_extra_tensors(store: WeightStore, names: set[str]) -> list[str]:
    """Return the tensors of a checkpoint that the network does not use."""
    used = {(t.start, t.stop) for name, t in store.file.tensors.items() if name in names}
    return [name for name, t in store.file.tensors.items() if name not in names and (t.start, t.stop) not in used]


@contextmanager
def create_parameters_on_meta() -> Iterator[None]:
    """Context manager: parameters of new modules are created on the meta device; buffers keep their values."""
    original = nn.Module.register_parameter

    def register(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        original(module, name, param)
        if param is not None and type(param) is nn.Parameter and not param.is_meta:
            module._parameters[name] = nn.Parameter(param.to("meta"), requires_grad=False)

    nn.Module.register_parameter = register  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        nn.Module.register_parameter = original  # type: ignore[method-assign]


def _find_builder(path: Path) -> Callable[[], nn.Module]:
    folder = path if path.is_dir() else path.parent
    if not (folder / CONFIG_NAME).is_file():
        raise TesseraError("from_pretrained requires `model`, because there is no config.json", got=str(folder))
    config = _read_json(folder / CONFIG_NAME)
    if "_class_name" in config:
        diffusers = _import_library("diffusers")
        return lambda: getattr(diffusers, config["_class_name"]).from_config(config)
    if config.get("architectures"):
        transformers = _import_library("transformers")
        settings = transformers.AutoConfig.from_pretrained(folder)
        dtype = getattr(settings, "dtype", None) or torch.float32
        name = config["architectures"][0]
        return lambda: getattr(transformers, name)(settings).to(dtype)
    if "architecture" in config:
        timm = _import_library("timm")
        options = {"num_classes": config["num_classes"]} if "num_classes" in config else {}
        return lambda: timm.create_model(config["architecture"], **options, **config.get("model_args", {}))
    raise TesseraError("config.json names no class of transformers, diffusers or timm", do="pass `model`")


def _import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise TesseraError(
            f"the network of this folder requires {name}", do=f"install {name}, or pass `model`"
        ) from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TesseraError(f"cannot read {path.name}: {get_first_line(error)}", got=str(path)) from None
    if not isinstance(content, dict):
        raise TesseraError(f"{path.name} is not a JSON object", got=str(path))
    return content
