"""Tests of image folders: files are found, decoded in processes and resized; broken files are skipped and reported."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil
import pytest

from tessera.errors import BenchmarkFailed, MissingExtra, TesseraError
from tessera.inference.data.decoder import BrokenImage, decode_image
from tessera.inference.data.folder import ImageFolder, find_image_files
from tessera.inference.data.images import crop_and_resize
from tests.inference.data.files import draw_image, truncate_file, write_image, write_image_tree

SHAPE = (3, 16, 24)
pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def open_folder():
    """Return a function that opens image folders; afterwards close them and check that no decoder process is left."""
    folders = []

    def open_folder(path: Path, **given) -> ImageFolder:
        usual = {"batch_size": 4, "image_shape": SHAPE, "workers": 2, "ahead": True}
        folders.append(ImageFolder(path, **{**usual, **given}))
        return folders[-1]

    yield open_folder
    for folder in folders:
        folder.close()
    assert not psutil.Process().children()


def compute_expected_pixels(path: Path, channels: int = 3) -> np.ndarray:
    return crop_and_resize(decode_image(path, channels), *SHAPE[1:]).transpose(2, 0, 1)


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("workers", [1, 3])
def test_batches_cycle_through_the_images_in_order(tmp_path, open_folder, workers, ahead):
    files = sorted(write_image_tree(tmp_path, 3, 2))
    folder = open_folder(tmp_path, workers=workers, ahead=ahead)
    for batch in range(5):
        raw = folder.read_batch()
        assert raw.shape == (4, *SHAPE)
        for place in range(4):
            assert np.array_equal(raw[place], compute_expected_pixels(files[(4 * batch + place) % len(files)]))
    assert folder.notes() == ()


def test_broken_files_are_skipped_and_reported(tmp_path, open_folder):
    files = sorted(write_image_tree(tmp_path, 2, 3))
    truncate_file(files[1])
    files[4].write_bytes(b"this is no image")
    sound = [path for path in files if path not in (files[1], files[4])]
    folder = open_folder(tmp_path)
    for batch in range(3):
        raw = folder.read_batch()
        for place in range(4):
            assert np.array_equal(raw[place], compute_expected_pixels(sound[(4 * batch + place) % len(sound)]))
    (note,) = folder.notes()
    assert note.startswith("2 of the 6 image files that were read are broken and were skipped: 1.ppm (truncated), ")


def test_many_broken_files_are_counted_and_only_some_listed(tmp_path, open_folder):
    files = write_image_tree(tmp_path, 1, 9)
    for path in files[:7]:
        truncate_file(path)
    folder = open_folder(tmp_path)
    folder.read_batch()
    folder.read_batch()
    (note,) = folder.notes()
    assert "7 of the 9" in note
    assert note.endswith("and 4 more")


def test_broken_files_are_counted_against_the_files_that_were_read(tmp_path, open_folder):
    truncate_file(write_image_tree(tmp_path, 1, 40)[0])
    folder = open_folder(tmp_path)
    folder.read_batch()
    (note,) = folder.notes()
    assert note.startswith("1 of the 5 image files that were read are broken")


def test_a_folder_of_broken_files_is_an_error(tmp_path, open_folder):
    for path in write_image_tree(tmp_path, 1, 3):
        truncate_file(path)
    with pytest.raises(TesseraError, match="every image file of the folder is broken"):
        open_folder(tmp_path).read_batch()


def test_a_folder_without_images_is_an_error_that_lists_the_suffixes(tmp_path):
    (tmp_path / "readme.txt").write_text("no image")
    with pytest.raises(TesseraError, match="the folder has no image files"):
        find_image_files(tmp_path)


@pytest.mark.skipif(find_spec("PIL") is not None, reason="Pillow is installed")
def test_formats_that_require_pillow_name_the_extra_before_the_run(tmp_path):
    (tmp_path / "photo.JPG").write_bytes(b"\xff\xd8")
    with pytest.raises(MissingExtra, match=r"tessera\[images\]"):
        find_image_files(tmp_path)


def test_pillow_decodes_other_formats(tmp_path, open_folder):
    image = pytest.importorskip("PIL.Image")
    pixels = draw_image(40, 30)
    for name in ("a.png", "b.bmp"):
        image.fromarray(pixels).save(tmp_path / name)
    image.fromarray(pixels).save(tmp_path / "c.jpg")
    truncate_file(tmp_path / "c.jpg")
    raw = open_folder(tmp_path).read_batch()
    assert np.array_equal(raw[0], raw[1])
    assert np.array_equal(raw[0], crop_and_resize(pixels, *SHAPE[1:]).transpose(2, 0, 1))


def test_a_decoder_that_dies_ends_the_run_with_its_exit_code(tmp_path, open_folder):
    write_image_tree(tmp_path, 1, 5)
    folder = open_folder(tmp_path, workers=1)
    folder.read_batch()
    (decoder,) = psutil.Process().children()
    os.kill(decoder.pid, signal.SIGKILL)
    with pytest.raises(BenchmarkFailed, match="exit code -9"):
        [folder.read_batch() for _ in range(20)]


def test_one_channel_is_luminance_and_other_numbers_are_refused(tmp_path, open_folder):
    path = write_image(tmp_path / "a.ppm", draw_image(33, 21), comment="made by a test")
    raw = open_folder(tmp_path, image_shape=(1, 16, 24)).read_batch()
    assert np.array_equal(raw[0], compute_expected_pixels(path, channels=1))
    with pytest.raises(TesseraError, match="5 channels"):
        ImageFolder(tmp_path, 1, (5, 8, 8), workers=1, ahead=False)


@pytest.mark.parametrize("data", [b"", b"P6 0 0 255 ", b"P6 4 4 65535\n" + bytes(96), b"P5 2 2 255 0000"])
def test_a_file_that_is_not_an_8_bit_binary_ppm_is_broken(tmp_path, data):
    path = tmp_path / "a.ppm"
    path.write_bytes(data)
    with pytest.raises(BrokenImage):
        decode_image(path, 3)
