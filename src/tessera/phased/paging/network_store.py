"""The weight store of a network: written unit by unit, or opened from existing files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError, suggest_similar
from tessera.phased.paging.meta_copy import BATCH_COUNTER
from tessera.phased.paging.network_copy import NetworkCopy
from tessera.phased.paging.phasing import build_entries, cut_to_budget, match_tensors, plan_phases
from tessera.phased.paging.progress import PhasedProgress, ProgressCallback
from tessera.phased.paging.weight_table import StreamedModule
from tessera.phased.plan import PhasingRequest
from tessera.phased.store.encoding import decode_into
from tessera.phased.store.stores import WeightStore, open_store, write_store
from tessera.phased.store.weights_writer import plan_file


def open_network_store(
    network: NetworkCopy,
    request: PhasingRequest,
    *,
    path: Path | None,
    directory: Path | None,
    checksums: bool,
    order: Sequence[int] | None,
    weights: WeightStore | None,
    progress: ProgressCallback | None = None,
) -> WeightStore:
    """Open the weight store of a network.

    If the network is on the meta device, its weights are in `weights`, or in the file at `path`; otherwise a new store
    is written, in the `order` of units. Weights that no file contains (non-persistent buffers) are added in an unnamed
    file.
    """
    if weights is not None:
        if request.store.in_host_memory and not request.pinned:
            raise TesseraError("from_pretrained does not support store='host'", do="use store='disk' or 'mapped'")
        fill_unstreamed(network, weights)
        return _add_unstored(network, weights, directory)
    in_memory = request.store.in_host_memory and not request.pinned  # pinned memory is filled from the file
    unfilled = [name for name, value in network.values.items() if value.is_meta]
    if not unfilled:
        units = list(range(len(network.units)) if order is None else order)
        units += [unit for unit in range(len(network.units)) if unit not in set(units)]
        groups = [build_entries(network, network.units[unit].weights, request.dtype) for unit in units]
        # raises an error before writing if phases do not fit
        planned = match_tensors(network, plan_file(groups), request.dtype)
        cut = cut_to_budget(network, planned, request, cuts=not checksums)
        plan_phases(cut.network, cut.tensors, request, order=cut.map_order(order))
        return write_store(
            groups,
            network.values.__getitem__ if progress is None else _report_writes(network, progress),
            path=path,
            directory=directory,
            checksums=checksums,
            in_memory=in_memory,
        )
    if any(name not in unfilled and name not in network.unstored for name in network.values):
        raise TesseraError(
            "some weights are on the meta device, and others are not",
            got=unfilled[0],
            do="build the whole model on one device",
        )
    if path is None:
        raise TesseraError("a model on the meta device requires a weights file", do="pass `path`")
    store = open_store(path, in_memory=in_memory)
    try:
        fill_unstreamed(network, store)
        return _add_unstored(network, store, directory)
    except BaseException:
        store.close()
        raise


def _report_writes(network: NetworkCopy, progress: ProgressCallback) -> Callable[[str], Tensor]:
    """Return a function that returns a weight by its name, and reports the bytes of the weights before it."""
    total, done = sum(value.nbytes for value in network.values.values()), 0

    def get_weight(name: str) -> Tensor:
        nonlocal done
        progress(PhasedProgress(stage="write", done=done, total=total))
        done += network.values[name].nbytes
        return network.values[name]

    return get_weight


def _add_unstored(network: NetworkCopy, store: WeightStore, directory: Path | None) -> WeightStore:
    """Add the weights that a checkpoint does not contain (large non-persistent buffers) in an unnamed file."""
    added = [name for name in network.values if name in network.unstored and name not in store.file.tensors]
    if added:
        entries = [build_entries(network, [name], None) for name in added]
        source = network.values.__getitem__
        store.combine(write_store(entries, source, path=None, directory=directory, checksums=False))
    return store


def fill_unstreamed(network: NetworkCopy, store: WeightStore) -> None:
    """Copy the persistent tensors that always stay in memory (of scripted modules, statistics, ...) from a store."""
    state = network.model.state_dict(keep_vars=True)
    nested = tuple(f"{name}." for name, part in network.model.named_modules() if isinstance(part, StreamedModule))
    tensors, missing = store.file.tensors, []
    aliases: dict[int, list[str]] = {}
    for name, value in state.items():
        aliases.setdefault(id(value), []).append(name)
    for name, value in state.items():
        if not isinstance(value, Tensor) or hasattr(value, "slot") or name.startswith(nested) or not value.numel():
            continue
        stored = next((alias for alias in (name, *aliases[id(value)]) if alias in tensors), None)
        if stored is not None:
            _fill_tensor(network.model, name, value, read_tensor(store, stored))
        elif not name.endswith(BATCH_COUNTER):
            missing.append(name)
    if missing:
        more = f" and {len(missing) - 1} others are" if len(missing) > 1 else " is"
        raise TesseraError(
            f"the file does not match the model: {missing[0]}{more} missing", do=suggest_similar(missing[0], tensors)
        )


def _fill_tensor(model: nn.Module, name: str, value: Tensor, stored: Tensor) -> None:
    if stored.shape != value.shape:
        raise TesseraError(
            f"the file does not match the model: the shape of {name} differs",
            got=tuple(stored.shape),
            allowed=str(tuple(value.shape)),
        )
    if not value.is_meta:
        with torch.no_grad():
            value.copy_(stored)
        return
    owner, _, attribute = name.rpartition(".")
    module = model.get_submodule(owner)
    if type(value) is Tensor and attribute in module._buffers:
        module._buffers[attribute] = stored.to(value.dtype)
    elif type(value) is nn.Parameter and attribute in module._parameters:
        module._parameters[attribute] = nn.Parameter(stored.to(value.dtype), requires_grad=False)
    else:
        raise TesseraError(
            f"{name} ({type(value).__name__}) cannot be loaded into a model on the meta device",
            do="build the model on the CPU",
        )


def read_tensor(store: WeightStore, name: str) -> Tensor:
    """Return a tensor of a store, decoded if it is encoded."""
    tensor = store.file.tensors[name]
    base, file = next(part for part in reversed(store.file.list_parts()) if part[0] <= tensor.start)
    content = bytearray()
    while len(content) < tensor.nbytes:
        at = tensor.start - base + len(content)
        if not (part := os.pread(file.fd, tensor.nbytes - len(content), at)):
            raise file.build_changed_error()
        content += part
    if tensor.encoding:
        decoded = torch.empty(tensor.shape, dtype=tensor.dtype)
        decode_into(np.frombuffer(content, dtype=np.uint8), tensor.encoding, decoded)
        return decoded
    return torch.frombuffer(content, dtype=torch.uint8).view(tensor.dtype).view(tensor.shape)
