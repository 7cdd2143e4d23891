"""The weight store of a network: written unit by unit, or opened from existing files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tessera.errors import TesseraError
from tessera.phased.paging.network_copy import NetworkCopy
from tessera.phased.paging.phasing import build_entries, match_tensors, plan_phases
from tessera.phased.plan import PhasingRequest
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
) -> WeightStore:
    """Open the weight store of a network.

    If the network is on the meta device, its weights are in `weights`, or in the file at `path`; otherwise a new store
    is written, in the `order` of units. Weights that no file contains (non-persistent buffers) are added in an unnamed
    file.
    """
    if weights is not None:
        if request.store.in_host_memory:
            raise TesseraError("from_pretrained does not support store='host'", do="use store='disk' or 'mapped'")
        return _add_unstored(network, weights, directory)
    unfilled = [name for name, value in network.values.items() if value.is_meta]
    if not unfilled:
        units = list(range(len(network.units)) if order is None else order)
        units += [unit for unit in range(len(network.units)) if unit not in set(units)]
        groups = [build_entries(network, network.units[unit].weights, request.dtype) for unit in units]
        # raises an error before writing if phases do not fit
        plan_phases(network, match_tensors(network, plan_file(groups), request.dtype), request, order=order)
        return write_store(
            groups,
            network.values.__getitem__,
            path=path,
            directory=directory,
            checksums=checksums,
            in_memory=request.store.in_host_memory,
        )
    if any(name not in unfilled and name not in network.unstored for name in network.values):
        raise TesseraError(
            "some weights are on the meta device, and others are not",
            got=unfilled[0],
            do="build the whole model on one device",
        )
    if path is None:
        raise TesseraError("a model on the meta device requires a weights file", do="pass `path`")
    store = open_store(path, in_memory=request.store.in_host_memory)
    try:
        return _add_unstored(network, store, directory)
    except BaseException:
        store.close()
        raise


def _add_unstored(network: NetworkCopy, store: WeightStore, directory: Path | None) -> WeightStore:
    """Add the weights that a checkpoint does not contain (large non-persistent buffers) in an unnamed file."""
    added = [name for name in network.values if name in network.unstored and name not in store.file.tensors]
    if added:
        entries = [build_entries(network, [name], None) for name in added]
        source = network.values.__getitem__
        store.combine(write_store(entries, source, path=None, directory=directory, checksums=False))
    return store
