"""Where images come from, and how they reach an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera.inference.data.feed import Feed, Source
    from tessera.inference.opening import Opened
    from tessera.inference.settings import Settings


def open_feed(settings: Settings, opened: Opened, *, in_use: int = 1) -> Feed:
    """The input of a session; `in_use` batches are at work at a time (more than one where a session has streams)."""
    from tessera.inference.data.feed import Pipeline, Resident
    from tessera.inference.data.generated import Generated
    from tessera.inference.meanings import io_threads
    from tessera.inference.settings import GENERATED, SYNTHETIC

    session, pixels, image_shape = opened.session, opened.deployment.pixels, opened.deployment.network.image_shape
    threads = io_threads(settings)
    source: Source
    if settings.data in (GENERATED, SYNTHETIC):
        source = Generated(settings.batch_size, image_shape, session.layout, seed=settings.seed)
    else:
        from tessera.inference.data.folder import Folder

        workers = settings.dataloader_worker
        source = Folder(Path(settings.data), settings.batch_size, image_shape, workers=workers, ahead=threads > 0)
    if settings.data == SYNTHETIC:
        return Resident(session, source, pixels)
    shape = (settings.batch_size, *image_shape)
    return Pipeline(session, source, pixels, shape=shape, threads=threads, in_use=in_use)
