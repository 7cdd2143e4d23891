"""Rewrite a checkpoint for streaming: one file, modules in their order, and aligned for large reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from torch import nn

from tessera.errors import TesseraError
from tessera.phased.paging.checkpoints import CONFIG_NAME, adapt_names, build_checkpoint_model, open_checkpoint
from tessera.phased.paging.network_store import read_tensor
from tessera.phased.paging.phasing import build_entry
from tessera.phased.store.encoding import ENCODINGS
from tessera.phased.store.weights_writer import WeightEntry, write_weights_file


def rewrite_checkpoint(
    source: Path,
    target: Path,
    *,
    model: nn.Module | Callable[[], nn.Module] | None = None,
    dtype: str | None = None,
    checksums: bool = False,
) -> int:
    """Write the tensors of a checkpoint to a new file, and return their size in bytes.

    Modules are in the order of the network: of `model`, or of the config.json of the checkpoint. Without both, names
    are sorted, with numbers by value. `dtype` is the dtype of floating-point tensors; int8 and int4 apply to the
    parameters of the network. Tensors are read one at a time.
    """
    store = open_checkpoint(source)
    try:
        tensors = store.file.tensors
        if store.file.unsupported:
            name, code = next(iter(store.file.unsupported.items()))
            raise TesseraError(f"{name} has a dtype that cannot be rewritten", got=code)
        folder = source if source.is_dir() else source.parent
        parameters, modules = set(tensors), sorted({_get_owner(name) for name in tensors}, key=_split_numbers)
        if model is not None or (folder / CONFIG_NAME).is_file():
            network = build_checkpoint_model(source, model)
            adapt_names(store, network)
            parameters = {name for name, _ in network.named_parameters(remove_duplicate=False)}
            own = [name for name, _ in network.named_modules()]
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
        return sum(entry.nbytes for group in filled for entry in group)
    finally:
        store.close()


def _get_owner(name: str) -> str:
    return name.rpartition(".")[0]


def _split_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key by which numbers in names are sorted by value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
