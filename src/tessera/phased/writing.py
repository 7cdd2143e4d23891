"""`write_weights`: the weights of a network as a file to stream from, written without holding them all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from tessera.phased.network.graph import trace, units_of
from tessera.phased.network.skeleton import skeleton_of, weights_of
from tessera.phased.network.stored import entry_of, first_units
from tessera.phased.store.stores import write_store
from tessera.phased.store.weights_writer import Entry, Values, write_file


def write_weights(
    path: Path | str,
    model: nn.Module,
    values: Values | None = None,
    *,
    phases: Sequence[str | int] | None = None,
    dtype: str | None = None,
    checksums: bool = False,
) -> None:
    """Write the weights of a model, which may be on the meta device if `values` gives each of them by its name.

    `phases` says where phases begin, as for PhasedModel; without it every layer is laid out as one,
    which serves any cutting. The file appears whole or not at all, and never takes the place of one that is there.
    """
    groups = _groups(model, phases, dtype)
    write_file(Path(path), groups, values or weights_of(model).__getitem__, checksums=checksums)


@contextmanager
def nameless_weights(model: nn.Module, values: Values | None = None, *, dtype: str | None = None) -> Iterator[Path]:
    """The same in a file for temporary use: it has no name in any directory, so that no end of a process leaves it."""
    groups = _groups(model, None, dtype)
    wanted = values or weights_of(model).__getitem__
    store = write_store("disk", groups, wanted, path=None, directory=None, checksums=False)
    try:
        yield store.file.path
    finally:
        store.close()


def _groups(model: nn.Module, phases: Sequence[str | int] | None, dtype: str | None) -> list[list[Entry]]:
    """What is to be written, phase by phase."""
    skeleton = skeleton_of(model)
    units = units_of(skeleton, trace(skeleton))
    starts = set(range(len(units))) if phases is None else set(first_units(units, phases))
    groups: list[list[Entry]] = []
    for number, unit in enumerate(units):
        if number in starts:
            groups.append([])
        groups[-1] += [entry_of(skeleton, name, dtype) for name in unit.weights]
    return groups
