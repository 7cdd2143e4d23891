"""Image files: found, decoded by processes, fitted to the network; broken ones counted, skipped and told."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest

from tessera.errors import BenchmarkFailed, MissingExtra, TesseraError
from tessera.inference.data.decode import Broken, decode
from tessera.inference.data.folder import Folder, image_files
from tessera.inference.data.resize import fitted
from tests.inference.data.files import random_image, torn, tree, write_image

SHAPE = (3, 16, 24)
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def opened():
    """Opens folders and closes them; no process is left."""
    folders = []

    def open_folder(path: Path, **given) -> Folder:
        usual = {"batch_size": 4, "image_shape": SHAPE, "workers": 2, "ahead": True}
        folders.append(Folder(path, **{**usual, **given}))
        return folders[-1]

    yield open_folder
    for folder in folders:
        folder.close()
    assert not psutil.Process().children()


def expected(path: Path, channels: int = 3) -> np.ndarray:
    return fitted(decode(path, channels), *SHAPE[1:]).transpose(2, 0, 1)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_hold_the_images_of_the_tree_in_order_over_and_over(tmp_path, opened, workers, ahead):
    files = sorted(tree(tmp_path, 3, 2))
    folder = opened(tmp_path, workers=workers, ahead=ahead)
    for batch in range(5):
        raw = folder.raw()
        assert raw.shape == (4, *SHAPE)
        for place in range(4):
            assert np.array_equal(raw[place], expected(files[(4 * batch + place) % len(files)]))
    assert folder.notes() == ()


def test_broken_files_are_skipped_counted_and_told(tmp_path, opened):
    files = sorted(tree(tmp_path, 2, 3))
    torn(files[1])
    files[4].write_bytes(b"this is no image")
    sound = [path for path in files if path not in (files[1], files[4])]
    folder = opened(tmp_path)
    for batch in range(3):
        raw = folder.raw()
        for place in range(4):
            assert np.array_equal(raw[place], expected(sound[(4 * batch + place) % len(sound)]))
    (note,) = folder.notes()
    assert note.startswith("2 of 6 image files are broken and were skipped: 1.ppm (truncated), ")


def test_many_broken_files_are_counted_and_some_named(tmp_path, opened):
    files = tree(tmp_path, 1, 9)
    for path in files[:7]:
        torn(path)
    folder = opened(tmp_path)
    folder.raw()
    folder.raw()
    (note,) = folder.notes()
    assert "7 of 9" in note
    assert note.endswith("and 4 more")


def test_a_folder_of_nothing_but_broken_files_says_so(tmp_path, opened):
    for path in tree(tmp_path, 1, 3):
        torn(path)
    with pytest.raises(TesseraError, match="every image file of the folder is broken"):
        opened(tmp_path).raw()


def test_a_folder_without_images_says_what_it_looked_for(tmp_path):
    (tmp_path / "readme.txt").write_text("no image")
    with pytest.raises(TesseraError, match="no image files in this folder"):
        image_files(tmp_path)


@pytest.mark.skipif(find_spec("PIL") is not None, reason="Pillow is installed")
def test_other_formats_name_the_extra_before_the_run(tmp_path):
    (tmp_path / "photo.JPG").write_bytes(b"\xff\xd8")
    with pytest.raises(MissingExtra, match=r"tessera\[images\]"):
        image_files(tmp_path)


def test_pillow_reads_the_other_formats(tmp_path, opened):
    image = pytest.importorskip("PIL.Image")
    pixels = random_image(40, 30)
    for name in ("a.png", "b.bmp"):
        image.fromarray(pixels).save(tmp_path / name)
    image.fromarray(pixels).save(tmp_path / "c.jpg")
    torn(tmp_path / "c.jpg")
    raw = opened(tmp_path).raw()
    assert np.array_equal(raw[0], raw[1])
    assert np.array_equal(raw[0], fitted(pixels, *SHAPE[1:]).transpose(2, 0, 1))


def test_a_decoder_that_dies_ends_the_run_with_its_exit_code(tmp_path, opened):
    tree(tmp_path, 1, 5)
    folder = opened(tmp_path, workers=1)
    folder.raw()
    (decoder,) = psutil.Process().children()
    os.kill(decoder.pid, signal.SIGKILL)
    with pytest.raises(BenchmarkFailed, match="exit code -9"):
        [folder.raw() for _ in range(20)]


def test_one_channel_is_brightness_and_other_numbers_are_refused(tmp_path, opened):
    path = write_image(tmp_path / "a.ppm", random_image(33, 21), comment="made by a test")
    raw = opened(tmp_path, image_shape=(1, 16, 24)).raw()
    assert np.array_equal(raw[0], expected(path, channels=1))
    with pytest.raises(TesseraError, match="5 channels"):
        Folder(tmp_path, 1, (5, 8, 8), workers=1, ahead=False)


@pytest.mark.parametrize("data", [b"", b"P6 0 0 255 ", b"P6 4 4 65535\n" + bytes(96), b"P5 2 2 255 0000"])
def test_what_is_no_binary_pixmap_of_8_bits_is_broken(tmp_path, data):
    path = tmp_path / "a.ppm"
    path.write_bytes(data)
    with pytest.raises(Broken):
        decode(path, 3)
