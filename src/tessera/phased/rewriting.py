"""Rewrite a checkpoint for streaming: one file, weights in the order of use, and aligned for large reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.phased.choices import CONFIG_NAME
from tessera.phased.model import PhasedModel, as_call
from tessera.phased.paging.checkpoints import adapt_names, build_checkpoint_model, open_checkpoint
from tessera.phased.paging.network_store import read_tensor
from tessera.phased.paging.phasing import build_entry
from tessera.phased.paging.sample_inputs import build_sample_inputs
from tessera.phased.store.encoding import ENCODINGS
from tessera.phased.store.weights_writer import WeightEntry, write_weights_file


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenCheckpoint:
    """Size of a rewritten checkpoint in bytes, and the order of its modules."""

    nbytes: int
    order: Literal["use", "registration", "names"]


def rewrite_checkpoint(
    source: Path,
    target: Path,
    *,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    inputs: Any = None,
    dtype: str | None = None,
    checksums: bool = False,
) -> RewrittenCheckpoint:
    """Write the tensors of a checkpoint to a new file.

    If the inputs of the network are known (`inputs` of `model`, or those of the config.json of the checkpoint), the
    network runs once, and its modules are written in the order of use. Otherwise they are in the order of registration.
    Without `model` and config.json, names are sorted, with numbers by value. `dtype` is the dtype of floating-point
    tensors; int8 and int4 apply to the parameters of the network. Tensors are read one at a time.
    """
    store = open_checkpoint(source)
    try:
        tensors = store.file.tensors
        if store.file.unsupported:
            name, code = next(iter(store.file.unsupported.items()))
            raise TesseraError(f"{name} has a dtype that cannot be rewritten", got=code)
        folder = source if source.is_dir() else source.parent
        order: Literal["use", "registration", "names"] = "names"
        parameters, modules = set(tensors), sorted({_get_owner(name) for name in tensors}, key=_split_numbers)
        if model is not None or (folder / CONFIG_NAME).is_file():
            network = build_checkpoint_model(source, model)
            adapt_names(store, network)
            parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
            own = [name for name, _ in network.named_modules()]
            used = _find_order_of_use(source, network, inputs)
            order = "registration" if used is None else "use"
            own = list(dict.fromkeys([*(used or ()), *own]))
            modules = own + [name for name in modules if name not in set(own)]
        groups: dict[str, list[WeightEntry]] = {module: [] for module in modules}
        written: set[tuple[int, int]] = set()
        for name in sorted(tensors, key=lambda name: name not in parameters):  # of tied names, that of a parameter
            tensor = tensors[name]
            if (tensor.start, tensor.stop) not in written:
                written.add((tensor.start, tensor.stop))
                wanted = None if dtype in ENCODINGS and name not in parameters else dtype
                groups[_get_owner(name)].append(build_entry(name, tensor.dtype, tensor.shape, wanted))
        filled = [group for group in groups.values() if group]
        write_weights_file(target, filled, lambda name: read_tensor(store, name), checksums=checksums)
        return RewrittenCheckpoint(nbytes=sum(entry.nbytes for group in filled for entry in group), order=order)
    finally:
        store.close()


def _find_order_of_use(source: Path, network: nn.Module, inputs: Any) -> list[str] | None:
    """Return the modules in the order in which a pass uses their weights; None if no inputs are known."""
    if inputs is None:
        try:
            inputs = build_sample_inputs(network)
        except TesseraError:
            return None
    args, kwargs = as_call(inputs)
    with torch.no_grad(), PhasedModel.from_pretrained(source, model=network, budget="auto") as phased:
        phased(*args, **kwargs)
        return [_get_owner(name) for phase in phased.phases for name in phase.tensors]


def load_checkpoint(source: Path, network: nn.Module) -> nn.Module:
    """Load all weights of a checkpoint into a network of `build_checkpoint_model`, and return the network."""
    store = open_checkpoint(source)
    try:
        adapt_names(store, network)
        wanted = network.state_dict(keep_vars=True)
        state = {name: read_tensor(store, name).to(wanted[name].dtype) for name in store.file.tensors if name in wanted}
    finally:
        store.close()
    network.load_state_dict(state, strict=False, assign=True)
    if callable(tie := getattr(network, "tie_weights", None)):
        tie()
    return network.eval()


def _get_owner(name: str) -> str:
    return name.rpartition(".")[0]


def _split_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key by which numbers in names are sorted by value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
