"""The weights of a model in their store: written phase by phase, or in a file that is there already."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from tessera.errors import TesseraError
from tessera.phased.network.skeleton import skeleton_of, weights_of
from tessera.phased.plan import Asked, Cut, cut_model, plan_memory
from tessera.phased.store.stores import Store, open_store, write_store
from tessera.phased.store.weights_writer import planned


def open_weights(
    model: nn.Module, asked: Asked, store: str, *, path: Path | None, directory: Path | None, checksums: bool
) -> tuple[Store, Cut]:
    """The store of a model's weights, and the model cut into phases.

    A model on the meta device has its weights in a file that is there; all others have theirs written.
    """
    skeleton, own = skeleton_of(model), weights_of(model)
    bare = [name for name, tensor in own.items() if tensor.is_meta]
    if bare and len(bare) < len(own):
        raise TesseraError("some weights have values and some have none", got=bare[0], do="build it in one way")
    if not bare:
        cut = cut_model(skeleton, asked)
        groups = cut.entries(asked.dtype)
        plan_memory(cut, asked, planned(groups))  # what does not fit is refused before it is written
        kept = write_store(store, groups, own.__getitem__, path=path, directory=directory, checksums=checksums)
        return kept, cut
    if path is None:
        raise TesseraError("a model on the meta device has no values", do="name a file of weights: path=…")
    kept = open_store(store, path)
    try:
        return kept, cut_model(skeleton, asked, kept.file.tensors)
    except BaseException:
        kept.close()
        raise
