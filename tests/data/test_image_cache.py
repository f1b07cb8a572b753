import json
import multiprocessing
import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from filelock import FileLock
from PIL import Image

from cosen.data import image_cache
from cosen.data.cache_folder import CacheFolder
from cosen.data.decoding import Preprocess
from cosen.data.image_cache import decode_images
from cosen.data.inspection import inspect_data
from cosen.data.sources import from_arrays, from_folder
from cosen.data.splits import FractionSplit, split_images
from cosen.errors import DataError, InputError

SIZE = Preprocess(height=8, width=8)


@pytest.fixture
def decodings(monkeypatch):
    """How often an image was decoded."""
    counted = []
    original = image_cache._build

    def build(data, *rest):
        counted.append(len(data.images))
        return original(data, *rest)

    monkeypatch.setattr(image_cache, "_build", build)
    return counted


def test_images_decode_once(make_folder, decodings):
    data = from_folder(make_folder(cat=3, dog=2))
    first = decode_images(data, SIZE)
    expected = np.stack([SIZE(data.images.open(row)) for row in range(5)])
    np.testing.assert_array_equal(first.pixels, expected)
    second = decode_images(data, SIZE)
    np.testing.assert_array_equal(second.pixels, expected)
    assert decodings == [5]
    assert not second.pixels.flags.writeable
    part = data.take(data.labels == 1)
    np.testing.assert_array_equal(decode_images(part, SIZE).pixels[part.rows], expected[3:])
    assert decodings == [5]


def test_a_changed_image_or_transform_decodes_again(make_folder, decodings):
    root = make_folder(cat=2, dog=2)
    key = decode_images(from_folder(root), SIZE).key
    assert decode_images(from_folder(root), Preprocess(8, 8, fit="stretch")).key != key
    Image.fromarray(np.zeros((12, 16, 3), np.uint8)).save(root / "cat" / "000.png")
    changed = decode_images(from_folder(root), SIZE)
    assert changed.key != key
    assert (changed.pixels[0] == 0).all()
    assert len(decodings) == 3


def test_the_same_content_elsewhere_is_found(make_folder, decodings, tmp_path):
    root = make_folder(cat=2, dog=2)
    decode_images(from_folder(root), SIZE)
    root.rename(tmp_path / "moved")
    decode_images(from_folder(tmp_path / "moved"), SIZE)
    assert len(decodings) == 1


def test_broken_images_are_all_named_at_once(make_folder):
    root = make_folder(cat=3, dog=3)
    (root / "cat" / "001.png").write_bytes(b"no image")
    whole = (root / "dog" / "002.png").read_bytes()
    (root / "dog" / "002.png").write_bytes(whole[: len(whole) // 2])
    (root / "dog" / "notes.txt").write_text("x")
    data = from_folder(root)
    for _ in range(2):  # decoded, then read from the cache
        with pytest.raises(DataError) as error:
            decode_images(data, SIZE)
        message = str(error.value)
        assert "3 of 7 files" in message
        for line in ("cat/001.png: not an image", "dog/002.png: ", "dog/notes.txt: not an image"):
            assert line in message
        assert "--skip-broken" in message


def test_broken_images_are_left_out_if_asked(make_folder, caplog):
    root = make_folder(cat=3, dog=3)
    (root / "cat" / "001.png").write_bytes(b"no image")
    for _ in range(2):
        decoded = decode_images(from_folder(root), SIZE, skip_broken=True)
        assert decoded.data.class_counts.tolist() == [2, 3]
        assert "skipped 1 broken files of 6" in caplog.text
        caplog.clear()


def test_a_part_without_the_broken_image_is_fine(make_folder):
    root = make_folder(cat=3, dog=3)
    (root / "cat" / "001.png").write_bytes(b"no image")
    data = from_folder(root)
    assert len(decode_images(data.take(data.labels == 1), SIZE).data) == 3


def test_arrays_of_the_right_size_are_used_as_they_are(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    decoded = decode_images(from_arrays(images, [0, 1, 0, 1]), Preprocess(8, 8, channels=1))
    np.testing.assert_array_equal(decoded.pixels[..., 0], images)
    assert CacheFolder().entries() == []


def test_arrays_of_another_shape_but_the_same_size_are_resized():
    images = np.random.default_rng(0).integers(0, 256, (4, 16, 4, 3), dtype=np.uint8)
    data = from_arrays(images, [0, 1, 0, 1])
    expected = np.stack([SIZE(data.images.open(row)) for row in range(4)])
    np.testing.assert_array_equal(decode_images(data, SIZE).pixels, expected)
    grey = from_arrays(images[..., 0].repeat(3, axis=2), [0, 1, 0, 1])  # (4, 16, 12), three times
    assert decode_images(grey, SIZE).pixels.shape == (4, 8, 8, 3)


def _decode_elsewhere(root, results):
    decoded = decode_images(from_folder(root), SIZE)
    results.put((decoded.key, int(decoded.pixels.astype(int).sum())))


def test_two_processes_at_once(make_folder):
    root = make_folder(cat=40, dog=40)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_decode_elsewhere, args=(root, results)) for _ in range(3)]
    for process in processes:
        process.start()
    answers = {results.get(timeout=120) for _ in processes}
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert len(answers) == 1
    assert len(CacheFolder().entries()) == 1


def test_an_interrupted_decoding_leaves_nothing(make_folder, monkeypatch, tmp_path):
    data = from_folder(make_folder(cat=2, dog=2))

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(data.images), "open", interrupt)
    with pytest.raises(KeyboardInterrupt):
        decode_images(data, SIZE)
    monkeypatch.undo()
    assert list((tmp_path / "cache" / "images").glob("*.part")) == []


def test_the_bound_is_kept_and_the_longest_unused_goes(make_folder, tmp_path):
    root = make_folder(cat=2, dog=2)
    one = 4 * 8 * 8 * 3
    cache = CacheFolder(tmp_path / "bounded", bound=2 * one)
    data = from_folder(root)
    keys = []
    for fit in ("crop", "stretch", "pad"):
        keys.append(decode_images(data, Preprocess(8, 8, fit=fit), cache=cache).key)
        time.sleep(0.02)
    assert [entry.key for entry in cache.entries()] == keys[1:]
    assert cache.clear() == 2 * one
    assert cache.entries() == []


def test_images_that_do_not_fit_are_decoded_when_they_are_needed(make_folder, tmp_path, caplog):
    root = make_folder(cat=5, dog=4)
    (root / "dog" / "000.png").write_text("not an image")
    data = from_folder(root)
    small = CacheFolder(tmp_path / "small", bound=100)
    with pytest.raises(DataError, match=r"1 of 9 files cannot be used:\n  dog/000.png"):
        decode_images(data, SIZE, cache=small)
    kept = decode_images(data, SIZE, skip_broken=True)
    caplog.clear()
    fresh = decode_images(data, SIZE, skip_broken=True, cache=small)
    assert "9 images of 8 x 8 pixels take 0.0 GiB, more than the cache" in caplog.text
    assert fresh.key == kept.key
    np.testing.assert_array_equal(fresh.data.rows, kept.data.rows)
    assert [entry.size for entry in small.entries()] == [0]
    assert fresh.pixels.shape == kept.pixels.shape
    rows = fresh.data.rows[[7, 0, 3]]
    np.testing.assert_array_equal(fresh.pixels[rows], kept.pixels[rows])
    np.testing.assert_array_equal(fresh.pixels[rows[0]], kept.pixels[rows[0]])
    batches = [fresh.data.rows[:3], fresh.data.rows[3:], rows]
    state = torch.random.get_rng_state()
    for one, other in zip(fresh.read(batches), kept.read(batches), strict=True):
        np.testing.assert_array_equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())
    assert list(kept.read([])) == list(fresh.read([])) == []
    large = decode_images(data, SIZE, skip_broken=True, cache=CacheFolder(small.root, bound=10**6))
    np.testing.assert_array_equal(large.pixels, kept.pixels)
    (root / "cat" / "001.png").unlink()
    with pytest.raises(DataError, match=r"^cat/001.png: .*; it could be read at the start: rest"):
        list(fresh.read([fresh.data.rows]))


def test_the_number_of_decoding_processes(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert image_cache.decoding_processes() == 8
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert image_cache.decoding_processes() == 2
    monkeypatch.setenv("COSEN_WORKERS", "5")
    assert image_cache.decoding_processes() == 5
    for wrong in ("many", "0", "-1"):
        monkeypatch.setenv("COSEN_WORKERS", wrong)
        with pytest.raises(DataError, match="COSEN_WORKERS must be a number of processes"):
            image_cache.decoding_processes()


def test_what_a_killed_process_left_is_not_taken_for_whole(make_folder, tmp_path):
    data = from_folder(make_folder(cat=2, dog=2))
    decoded = decode_images(data, SIZE)
    note = tmp_path / "cache" / "images" / f"{decoded.key}.json"
    assert json.loads(note.read_text())["broken"] == {}
    note.unlink()  # killed after moving the pixels, before the note
    np.testing.assert_array_equal(decode_images(data, SIZE).pixels, decoded.pixels)
    assert note.exists()


def test_a_cache_that_cannot_be_written_says_so(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="choose another with COSEN_CACHE"):
        CacheFolder(tmp_path / "file" / "below")
    monkeypatch.setenv("COSEN_CACHE_BYTES", "lots")
    with pytest.raises(DataError, match="COSEN_CACHE_BYTES"):
        CacheFolder(tmp_path / "ok")


@pytest.mark.parametrize("fit", ["crop", "stretch", "pad"])
@pytest.mark.parametrize("size", [(8, 8), (30, 10), (1, 40), (10, 30)])
def test_every_fit_gives_the_size(fit, size):
    image = Image.fromarray(np.full((20, 13, 3), 200, np.uint8))
    pixels = Preprocess(*size, fit=fit)(image)
    assert pixels.shape == (*size, 3)
    if fit != "pad":
        assert (pixels == 200).all()


def test_crop_takes_the_centre_and_pad_keeps_all():
    pixels = np.zeros((10, 30, 3), np.uint8)
    pixels[:, 10:20] = 255
    image = Image.fromarray(pixels)
    assert (Preprocess(10, 10)(image) == 255).all()
    padded = Preprocess(30, 30, fit="pad")(image)
    assert (padded[:10] == 0).all()
    np.testing.assert_array_equal(padded[10:20], pixels)


def test_grey_and_rgb_are_converted():
    grey = Image.fromarray(np.full((4, 4), 7, np.uint8))
    assert Preprocess(4, 4)(grey).shape == (4, 4, 3)
    rgb = Image.fromarray(np.full((4, 4, 3), 7, np.uint8))
    assert Preprocess(4, 4, channels=1)(rgb).shape == (4, 4, 1)


def test_impossible_sizes_are_refused():
    with pytest.raises(InputError, match="sides of 1 to 4096 pixels"):
        Preprocess(0, 4)
    with pytest.raises(InputError, match="fit must be"):
        Preprocess(4, 4, fit="squeeze")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"about": "no list of the broken"}'])
def test_an_unreadable_note_is_an_unfinished_entry(make_folder, decodings, tmp_path, text):
    data = from_folder(make_folder(cat=2, dog=2))
    decoded = decode_images(data, SIZE)
    note = tmp_path / "cache" / "images" / f"{decoded.key}.json"
    note.write_text(text)
    assert len(CacheFolder().entries()) == 1
    np.testing.assert_array_equal(decode_images(data, SIZE).pixels, decoded.pixels)
    assert len(decodings) == 2
    assert json.loads(note.read_text())["broken"] == {}
    note.write_text(text)
    assert CacheFolder().clear() == 4 * 8 * 8 * 3
    assert list((tmp_path / "cache" / "images").iterdir()) == []


def test_pixels_that_were_cut_off_are_decoded_again(make_folder, decodings, tmp_path):
    data = from_folder(make_folder(cat=2, dog=2))
    first = decode_images(data, SIZE)
    expected = first.pixels.copy()
    path = tmp_path / "cache" / "images" / first.key
    path.unlink()
    path.write_bytes(b"short")
    np.testing.assert_array_equal(decode_images(data, SIZE).pixels, expected)
    assert len(decodings) == 2


def test_a_note_is_never_half_written(make_folder, tmp_path, monkeypatch):
    decoded = decode_images(from_folder(make_folder(cat=2, dog=2)), SIZE)
    cache = CacheFolder()
    path = cache.path("images", decoded.key)
    before = cache.note(path)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(DataError, match=r"No space left on device.*COSEN_CACHE"):
        cache.use(path, {"about": "another"})
    assert cache.note(path) == before
    assert [entry.key for entry in cache.entries()] == [decoded.key]
    assert len(list(path.parent.glob("*.json"))) == 1


def test_clearing_leaves_what_another_process_uses(make_folder):
    data = from_folder(make_folder(cat=2, dog=2))
    used = decode_images(data, SIZE).key
    decode_images(data, Preprocess(8, 8, fit="pad"))
    cache = CacheFolder()
    folder = cache.root / "images"
    lock = folder / f"{used}.lock"
    part = folder / f"{used}.123.part"
    part.write_bytes(b"being written")
    with FileLock(lock):
        assert cache.clear() == 4 * 8 * 8 * 3
        assert {path.name for path in folder.iterdir()} == {
            used, f"{used}.json", lock.name, part.name
        }  # fmt: skip
        cache.bound = 0
        cache.make_room(0)
        assert cache.path("images", used).exists()
    cache.clear()
    assert list(folder.iterdir()) == []


def test_a_database_that_is_none_is_made_again(make_folder, decodings):
    data = from_folder(make_folder(cat=2, dog=2))
    database = CacheFolder().root / "contents.sqlite"
    for _ in range(2):
        database.write_bytes(b"no database at all" * 100)
        decode_images(data, SIZE)
    assert len(decodings) == 1
    database.write_bytes(b"no database at all" * 100)
    CacheFolder().clear()
    decode_images(data, SIZE)
    assert len(decodings) == 2


FULL_DISK = """
import resource, sys
from cosen.data.sources import from_folder
from cosen.data.image_cache import decode_images
from cosen.data.decoding import Preprocess
from cosen.errors import DataError

resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
try:
    decode_images(from_folder(sys.argv[1]), Preprocess(200, 200))
except DataError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files")
def test_a_full_disk_is_an_error_and_leaves_nothing(make_folder, tmp_path):
    command = [sys.executable, "-c", FULL_DISK, str(make_folder(cat=2, dog=2))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "cannot write" in done.stdout
    assert "choose another cache folder with COSEN_CACHE" in done.stdout
    assert CacheFolder().entries() == []


def test_space_is_reserved_where_the_file_system_cannot(make_folder, monkeypatch):
    def unknown(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", unknown, raising=False)
    data = from_folder(make_folder(cat=2, dog=2))
    expected = np.stack([SIZE(data.images.open(row)) for row in range(4)])
    np.testing.assert_array_equal(decode_images(data, SIZE).pixels, expected)


@pytest.mark.skipif(sys.platform == "win32", reason="makes links")
def test_unreadable_files_are_broken_like_others(make_folder, decodings):
    root = make_folder(cat=3, dog=3)
    (root / "cat" / "lost.png").symlink_to(root / "nowhere.png")
    (root / "dog" / "lost.png").symlink_to(root / "nowhere.png")
    (root / "dog" / "000.png").write_bytes(b"no image")
    data = from_folder(root)
    with pytest.raises(DataError, match="3 of 8 files") as error:
        decode_images(data, SIZE)
    for line in ("cat/lost.png: the file is missing", "dog/lost.png: ", "dog/000.png: not an im"):
        assert line in str(error.value)
    decoded = decode_images(data, SIZE, skip_broken=True)
    assert decoded.data.class_counts.tolist() == [3, 2]
    assert len(decodings) == 1
    (root / "cat" / "000.png").rename(root / "nowhere.png")
    (root / "cat" / "000.png").symlink_to(root / "nowhere.png")
    mended = decode_images(data, SIZE, skip_broken=True)  # the links are valid now
    assert mended.data.class_counts.tolist() == [4, 3]


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_that_are_not_utf8(make_folder):
    root = make_folder(cat=4, dog=4)
    strange = root / "cat" / os.fsdecode(b"caf\xe9.png")
    (root / "cat" / "000.png").rename(strange)
    data = from_folder(root)
    for _ in range(2):
        assert len(decode_images(data, SIZE).data) == 8
    splits = split_images(data, FractionSplit(0.5), seed=0)
    assert len(splits.train) + len(splits.val) + len(splits.test) == 8
    strange.write_bytes(b"no image")
    with pytest.raises(DataError) as error:
        decode_images(data, SIZE)
    assert "cat/caf\N{REPLACEMENT CHARACTER}.png: not an image" in str(error.value)
    assert list(inspect_data(data).broken) == ["cat/caf\N{REPLACEMENT CHARACTER}.png"]
    (root / "dog").rename(root / os.fsdecode(b"ch\xe8vre"))
    with pytest.raises(
        DataError, match="is not UTF-8 or has control characters: rename it"
    ) as error:
        from_folder(root)
    str(error.value).encode()
