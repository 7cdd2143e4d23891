"""Tests of the input pipeline: batches are correct, and are not overwritten while they are in use."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.inference.data.feed import PipelineFeed, ResidentFeed, allocate_batch
from tessera.inference.data.images import IMAGE_KINDS, IMAGENET_DEVIATION, IMAGENET_MEAN, PixelFormat, generate_images
from tessera.inference.opening import open_feed
from tests.inference.data.files import truncate_file, write_image_tree
from tests.inference.sessions import QUICK_ENGINES, make_small_settings, open_small_session

SHAPE = (2, 3, 4, 5)


class CountingSource:
    """A source of constant batches: all pixels of batch number n have the value n."""

    def __init__(self) -> None:
        self.count = 0

    def read_batch(self) -> np.ndarray:
        self.count += 1
        return np.full(SHAPE, self.count, np.uint8)

    def notes(self) -> tuple[str, ...]:
        return ("counted",)

    def close(self) -> None:
        self.count = -1


class PassThroughSession:
    """A session that uses an array without converting it."""

    layout, depth, compute = "NCHW", 1, "float32"

    def prepare_input(self, batch):
        return batch


PLAIN = PixelFormat(channels=3, dtype="float32", normalised_on="none")


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("in_use", [1, 4])
def test_no_batch_is_lost_or_overwritten_while_it_is_in_use(threads, in_use):
    source = CountingSource()
    feed = PipelineFeed(PassThroughSession(), source, PLAIN, shape=SHAPE, threads=threads, in_use=in_use)
    seen, held = [], []
    for _ in range(60):
        held.append(feed.next_batch())
        seen.append(int(held[-1].flat[0]))
        held = held[-in_use:]
        for batch, number in zip(held, seen[-in_use:], strict=True):
            assert (batch == number).all()
    assert sorted(seen) == list(range(1, 61)) or (threads > 1 and len(set(seen)) == 60)
    assert feed.notes() == ("counted",)
    feed.close()
    assert source.count == -1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("input")]


def test_without_prefetching_a_batch_is_prepared_on_request():
    source = CountingSource()
    feed = PipelineFeed(PassThroughSession(), source, PLAIN, shape=SHAPE, threads=0)
    assert source.count == 0
    feed.next_batch()
    assert source.count == 1
    feed.close()


def test_an_error_in_the_source_is_raised_by_next_batch():
    class FailingSource(CountingSource):
        def read_batch(self):
            raise OSError("gone")

    feed = PipelineFeed(PassThroughSession(), FailingSource(), PLAIN, shape=SHAPE, threads=1)
    with pytest.raises(OSError, match="gone"):
        feed.next_batch()
    feed.close()


@pytest.mark.parametrize("element", ["float32", "float16"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_host_normalisation_equals_torchvision(element, layout):
    pixels = PixelFormat(channels=3, dtype=element, normalised_on="host")
    raw = np.random.default_rng().integers(0, 256, (3, 3, 7, 9), np.uint8)
    out = allocate_batch(raw.shape, pixels, layout)
    pixels.convert(raw, out)
    mean, deviation = (np.array(part).reshape(1, 3, 1, 1) for part in (IMAGENET_MEAN, IMAGENET_DEVIATION))
    assert np.allclose(out, (raw / 255 - mean) / deviation, atol=1e-5 if element == "float32" else 2e-3)


@pytest.mark.parametrize("name", QUICK_ENGINES)
@pytest.mark.parametrize("data", ["generated", "synthetic"])
def test_engines_run_the_batches_of_every_feed(name, data):
    settings = make_small_settings(engine=name, data=data)
    with open_small_session(settings) as session:
        feed = open_feed(settings, session)
        assert isinstance(feed, ResidentFeed) == (data == "synthetic")
        held = [feed.next_batch() for _ in range(3)]
        assert (held[0] is held[1]) == isinstance(feed, ResidentFeed)
        for one in held[-1:]:
            assert np.isfinite(session.session.read_outputs(session.session.run(one))[0]).all()
        feed.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", QUICK_ENGINES)
def test_pixels_of_image_files_reach_the_network(name, tmp_path):
    files = sorted(write_image_tree(tmp_path, 2, 2))
    truncate_file(files[0])
    settings = make_small_settings(engine=name, data=str(tmp_path), batch_size=3, eight_bit_io=True)
    with open_small_session(settings) as session:
        feed = open_feed(settings, session)
        actual = session.session.read_outputs(session.session.run(feed.next_batch()))
        assert actual[0].shape == (3, 10)
        assert "1 of the 4 image files that were read are broken" in feed.notes()[0]
        feed.close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("prefetch", [True, False])
def test_every_prefetched_batch_fails_if_all_files_are_broken(prefetch, tmp_path):
    for path in write_image_tree(tmp_path, 1, 2):
        truncate_file(path)
    settings = make_small_settings(engine="torch-eager", data=str(tmp_path), prefetch=prefetch)
    with open_small_session(settings) as session:
        feed = open_feed(settings, session)
        for _ in range(2):  # one thread prefetches two batches
            with pytest.raises(TesseraError, match="every image file of the folder is broken"):
                feed.next_batch()
        feed.close()


def test_generated_images_depend_on_the_seed_and_differ():
    one, again, other = (generate_images(2 * IMAGE_KINDS, (3, 24, 24), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    flat = one.reshape(len(one), -1).astype(float)
    likeness = np.corrcoef(flat)
    same_kind = np.diag(likeness[:IMAGE_KINDS, IMAGE_KINDS:])
    others = likeness[:IMAGE_KINDS, IMAGE_KINDS:][~np.eye(IMAGE_KINDS, dtype=bool)]
    assert same_kind.min() > others.max()
