"""The input pipeline: every batch is right, in time, and stays as it is while it is used."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.inference.data import open_feed
from tessera.inference.data.feed import Pipeline, buffer
from tessera.inference.data.images import KINDS, drawn_images
from tessera.inference.data.pixels import DEVIATION, MEAN, Pixels
from tests.inference.data.files import torn, tree
from tests.inference.sessions import QUICK, opened, small

SHAPE = (2, 3, 4, 5)


class Counting:
    """Batches of which every pixel is their number."""

    def __init__(self) -> None:
        self.count = 0

    def raw(self) -> np.ndarray:
        self.count += 1
        return np.full(SHAPE, self.count, np.uint8)

    def notes(self) -> tuple[str, ...]:
        return ("counted",)

    def close(self) -> None:
        self.count = -1


class Holding:
    """A session that holds an array as it is."""

    layout, depth, compute = "NCHW", 1, "float32"

    def input(self, batch):
        return batch


PLAIN = Pixels(channels=3, element="float32", normalised_on="none")


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("in_use", [1, 4])
def test_no_batch_is_lost_or_overwritten_while_it_is_in_use(threads, in_use):
    source = Counting()
    feed = Pipeline(Holding(), source, PLAIN, shape=SHAPE, threads=threads, in_use=in_use)
    seen, held = [], []
    for _ in range(60):
        held.append(feed.next())
        seen.append(int(held[-1].flat[0]))
        held = held[-in_use:]
        for batch, number in zip(held, seen[-in_use:], strict=True):
            assert (batch == number).all()
    assert sorted(seen) == list(range(1, 61)) or (threads > 1 and len(set(seen)) == 60)
    assert feed.notes() == ("counted",)
    feed.close()
    assert source.count == -1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("input")]


def test_without_prefetching_a_batch_is_made_when_it_is_asked_for():
    source = Counting()
    feed = Pipeline(Holding(), source, PLAIN, shape=SHAPE, threads=0)
    assert source.count == 0
    feed.next()
    assert source.count == 1
    feed.close()


def test_an_error_in_the_source_reaches_the_loop():
    class Failing(Counting):
        def raw(self):
            raise OSError("gone")

    feed = Pipeline(Holding(), Failing(), PLAIN, shape=SHAPE, threads=1)
    with pytest.raises(OSError, match="gone"):
        feed.next()
    feed.close()


@pytest.mark.parametrize("element", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_host_normalises_as_torchvision_does(element, layout):
    pixels = Pixels(channels=3, element=element, normalised_on="host")
    raw = np.random.default_rng().integers(0, 256, (3, 3, 7, 9), np.uint8)
    out = buffer(raw.shape, pixels, layout)
    pixels.converted(raw, out)
    mean, deviation = (np.array(part).reshape(1, 3, 1, 1) for part in (MEAN, DEVIATION))
    assert np.allclose(out, (raw / 255 - mean) / deviation, atol=1e-5 if element == "float32" else 2e-3)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("data", ["generated", "synthetic"])
def test_what_a_feed_gives_an_engine_can_run(name, data):
    settings = small(engine=name, data=data)
    with opened(settings) as session:
        feed = open_feed(settings, session)
        assert feed.resident == (data == "synthetic")
        held = [feed.next() for _ in range(3)]
        assert (held[0] is held[1]) == feed.resident
        for one in held[-1:]:
            assert np.isfinite(session.session.outputs(session.session.run(one))[0]).all()
        feed.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", QUICK)
def test_real_images_reach_the_network(name, tmp_path):
    files = sorted(tree(tmp_path, 2, 2))
    torn(files[0])
    settings = small(engine=name, data=str(tmp_path), batch_size=3, eight_bit_io=True)
    with opened(settings) as session:
        feed = open_feed(settings, session)
        found = session.session.outputs(session.session.run(feed.next()))
        assert found[0].shape == (3, 10)
        assert "1 of 4 image files are broken" in feed.notes()[0]
        feed.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("prefetch", [True, False])
def test_a_folder_of_nothing_but_broken_files_ends_every_batch_that_is_prepared(prefetch, tmp_path):
    for path in tree(tmp_path, 1, 2):
        torn(path)
    settings = small(engine="torch-eager", data=str(tmp_path), prefetch=prefetch)
    with opened(settings) as session:
        feed = open_feed(settings, session)
        for _ in range(2):  # so many are prepared ahead
            with pytest.raises(TesseraError, match="every image file of the folder is broken"):
                feed.next()
        feed.close()


def test_drawn_images_are_those_of_their_seed_and_unlike_one_another():
    one, again, other = (drawn_images(2 * KINDS, (3, 24, 24), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    flat = one.reshape(len(one), -1).astype(float)
    likeness = np.corrcoef(flat)
    same_kind = np.diag(likeness[:KINDS, KINDS:])
    others = likeness[:KINDS, KINDS:][~np.eye(KINDS, dtype=bool)]
    assert same_kind.min() > others.max()
