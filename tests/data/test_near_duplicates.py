from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter

import cosen
from cosen.data import near_duplicates
from cosen.data.inspection import inspect_data
from cosen.data.near_duplicates import (
    MAX_DISTANCE,
    Appearance,
    appearance,
    near_duplicate_groups,
    similar_hashes,
)
from cosen.data.sources import from_arrays, from_folder, from_table, open_data
from cosen.errors import InputError


def photo(seed, size=(96, 72)):
    """A smooth random picture: neighbouring pixels are similar, as in a photograph."""
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC)


def distance(first, second):
    return int(first ^ second).bit_count()


def test_similar_hashes_are_those_of_a_slow_search():
    generator = np.random.default_rng(0)
    hashes = generator.integers(0, 2**64, 60, dtype=np.uint64)
    for _ in range(6):  # copies with another bit
        bits = generator.integers(0, 64, 60, dtype=np.uint64)
        hashes = np.concatenate([hashes, hashes[-60:] ^ (np.uint64(1) << bits)])
    found = {tuple(sorted(pair)) for pairs in similar_hashes(hashes) for pair in pairs.tolist()}
    wanted = {
        (first, second)
        for second in range(len(hashes))
        for first in range(second)
        if distance(hashes[first], hashes[second]) <= MAX_DISTANCE
    }
    assert found == wanted
    assert {distance(hashes[a], hashes[b]) for a, b in wanted} == {0, 1, 2, 3, 4}


def test_very_many_similar_images_take_linear_time(monkeypatch):
    monkeypatch.setattr(near_duplicates, "MOST_COMPARED", 3)
    pairs = list(similar_hashes(np.zeros(100, dtype=np.uint64)))
    assert sum(map(len, pairs)) <= 3 * 100 * (MAX_DISTANCE + 1)
    look = appearance(photo(0))
    (group,) = near_duplicate_groups([Appearance(0, look.thumbnail)] * 100)
    assert group.tolist() == list(range(100))


@pytest.mark.parametrize(
    "changed",
    [
        lambda image: image.resize((200, 150)),
        lambda image: image.resize((48, 36)),
        lambda image: ImageEnhance.Brightness(image).enhance(0.8),
        lambda image: ImageEnhance.Color(image).enhance(0.5),
        lambda image: image.filter(ImageFilter.GaussianBlur(1)),
        lambda image: image.convert("L"),
    ],
    ids=["enlarged", "reduced", "darker", "paler", "blurred", "grey"],
)
def test_changed_copies_are_found(changed):
    looks = [appearance(photo(seed)) for seed in range(30)]
    looks.append(appearance(changed(photo(7))))
    assert [group.tolist() for group in near_duplicate_groups(looks)] == [[7, 30]]


def test_similar_hashes_alone_are_not_enough():
    looks = [appearance(photo(seed)) for seed in (0, 1)]
    assert not near_duplicate_groups([Appearance(5, look.thumbnail) for look in looks])
    assert near_duplicate_groups([Appearance(5, looks[0].thumbnail)] * 2)


def test_groups_are_connected():
    first, second = (appearance(photo(seed)).thumbnail for seed in (0, 1))
    looks = [Appearance(bits, first) for bits in (0, 0b1111, 0b11111111)]
    groups = near_duplicate_groups([*looks, Appearance(0, second), Appearance(1, second)])
    assert [group.tolist() for group in groups] == [[0, 1, 2], [3, 4]]
    assert near_duplicate_groups([]) == []


def test_small_and_flat_images_are_not_compared():
    noise = np.random.default_rng(0).integers(100, 106, (2, 64, 64), dtype=np.uint8)
    assert [appearance(Image.fromarray(one)) for one in noise] == [None, None]
    assert appearance(photo(0, (31, 64))) is None
    assert appearance(photo(0, (32, 64))) is not None
    blank = np.stack([np.full((40, 40), value, np.uint8) for value in range(20)])
    assert inspect_data(from_arrays(blank, [0] * 20)).near_duplicates == ()


def save(image, path, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)


def test_near_duplicates_across_splits_and_classes(tmp_path):
    for seed in range(12):
        save(photo(seed), tmp_path / "train" / "cat" / f"{seed}.png")
        save(photo(50 + seed), tmp_path / "train" / "dog" / f"{seed}.png")
    save(photo(3), tmp_path / "test" / "cat" / "recompressed.jpg", quality=70)
    save(photo(99), tmp_path / "test" / "dog" / "new.png")
    save(photo(5).resize((60, 45)), tmp_path / "train" / "dog" / "resized.png")
    save(photo(55), tmp_path / "train" / "dog" / "copy.png")
    found = inspect_data(from_folder(tmp_path))
    assert [group.names for group in found.near_leaks] == [
        ("test/cat/recompressed.jpg", "train/cat/3.png")
    ]
    assert [group.names for group in found.near_conflicts] == [
        ("train/cat/5.png", "train/dog/resized.png")
    ]
    assert len(found.duplicates) == 1  # the copy is no near-duplicate
    assert len(found.near_duplicates) == 2
    lines = str(found).splitlines()
    assert "              2 groups of near-duplicates, 1 across splits, 1 across classes" in lines
    assert "  train/cat/5.png ~ train/dog/resized.png" in lines
    said = " ".join(found.suggestions)
    assert "Near-duplicates in more than one split: 1; remove them from one split" in said
    assert "Near-duplicates in more than one class: 1; check them." in said
    assert found.as_json()["near_leaks"][0]["parts"] == ("test", "train")


def test_copies_of_near_duplicates_are_in_their_group(tmp_path):
    save(photo(0), tmp_path / "cat" / "a.png")
    save(photo(0), tmp_path / "cat" / "b.png")
    save(photo(0).resize((60, 45)), tmp_path / "cat" / "c.png")
    save(photo(1), tmp_path / "dog" / "a.png")
    found = inspect_data(from_folder(tmp_path))
    assert [group.names for group in found.duplicates] == [("cat/a.png", "cat/b.png")]
    assert [group.names for group in found.near_duplicates] == [
        ("cat/a.png", "cat/b.png", "cat/c.png")
    ]
    assert "Groups of near-duplicates: 1; a random split may separate them" in " ".join(
        found.suggestions
    )


def test_an_image_without_a_split_is_no_leak(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        save(photo(seed), tmp_path / f"{name}.png")
    rows = ["path,label,split", "a.png,cat,train", "b.png,cat,", "c.png,dog,train"]
    (tmp_path / "table.csv").write_text("\n".join(rows))
    found = inspect_data(from_table(tmp_path / "table.csv"))
    assert (len(found.duplicates), found.leaks) == (1, ())


def test_groups_can_be_written_and_stay_together(tmp_path):
    for number in range(8):
        for label in ("cat", "dog"):
            seed = 10 * number + (label == "dog")
            save(photo(seed), tmp_path / "photos" / label / f"{number}.png")
    save(photo(0), tmp_path / "photos" / "cat" / "small.jpg", quality=60)
    save(photo(0), tmp_path / "photos" / "dog" / "same.png")
    listed = tmp_path / "photos.csv"
    found = cosen.inspect(tmp_path / "photos", groups=listed, quiet=True)
    assert len(found.near_duplicates) + len(found.duplicates) >= 1
    data = open_data(listed)
    assert len(data) == 18
    pairs = zip(data.names, data.groups.tolist(), strict=True)
    by_path = {Path(name).parts[-2:]: group for name, group in pairs}
    first = by_path["cat", "0.png"]
    assert by_path["cat", "small.jpg"] == by_path["dog", "same.png"] == first
    assert len(set(data.groups.tolist())) == 16
    again = cosen.inspect(listed, groups=tmp_path / "again.csv", quiet=True)
    assert again.groups == 16
    with pytest.raises(InputError, match="groups are for image files"):
        cosen.inspect("digits", groups=listed, quiet=True)
