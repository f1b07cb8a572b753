import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset

from cosen.data.sources import (
    class_counts,
    from_arrays,
    from_dataset,
    from_folder,
    from_table,
    labels_of,
    open_data,
)
from cosen.errors import DataError, InputError


def test_classes_are_the_folders_in_order(make_folder):
    data = from_folder(make_folder(dog=3, cat=2, ant=1))
    assert data.class_names == ("ant", "cat", "dog")
    assert data.class_counts.tolist() == [1, 2, 3]
    assert data.parts is None
    assert data.names[:2] == ["ant/000.png", "cat/000.png"]


def test_splits_are_the_folders_above(make_folder):
    make_folder("set/train", cat=3, dog=2)
    make_folder("set/valid", cat=1)
    root = make_folder("set/test", cat=1, dog=1).parent
    data = from_folder(root)
    assert data.class_names == ("cat", "dog")
    assert [len(data.part(part)) for part in ("train", "val", "test")] == [5, 1, 2]


def test_a_class_called_test_is_a_class(make_folder):
    assert from_folder(make_folder(test=2, other=2)).class_names == ("other", "test")


def test_what_an_archiver_left_is_passed_over(make_folder):
    make_folder("set/train", cat=2, dog=2)
    make_folder("set/__MACOSX/train", cat=1)
    root = make_folder("set/test", cat=1, dog=1).parent
    make_folder("set/train/cat/__MACOSX", x=1)
    data = from_folder(root)
    assert data.class_names == ("cat", "dog")
    assert [len(data.part(part)) for part in ("train", "test")] == [4, 2]


def test_folders_beside_the_splits_are_refused_by_name(make_folder):
    make_folder("set/train", cat=2, dog=2)
    make_folder("set/masks", cat=2)
    root = make_folder("set/Test", cat=1, dog=1).parent
    with pytest.raises(DataError, match=r"folders 'Test', 'train', but also 'masks': "):
        from_folder(root)
    assert from_folder(root, exclude=("masks",)).class_names == ("cat", "dog")
    assert from_folder(make_folder("toys", train=2, bus=2)).class_names == ("bus", "train")


def test_images_at_any_depth_and_hidden_files_passed_over(make_folder):
    root = make_folder(cat=1, dog=1)
    make_folder("images/cat/more/deeper", x=2)
    (root / ".git").mkdir()
    (root / "cat" / ".DS_Store").write_bytes(b"x")
    (root / "cat" / "Thumbs.db").write_bytes(b"x")
    (root / "README.txt").write_text("about")
    data = from_folder(root)
    assert data.class_names == ("cat", "dog")
    assert data.class_counts.tolist() == [3, 1]


def test_names_with_spaces_and_any_unicode(make_folder):
    names = {"ä ö ü": 1, "日本語": 1, "<script>alert(1)</script>".replace("/", "∕"): 1, "🙂 x": 1}
    data = from_folder(make_folder(**names))
    assert set(data.class_names) == set(names)
    assert data.images.open(0).size == (16, 12)


def test_excluded_classes_are_left_out(make_folder):
    root = make_folder(cat=1, dog=1, junk=1)
    (root / "empty").mkdir()
    assert from_folder(root, exclude=("junk", "empty")).class_names == ("cat", "dog")
    with pytest.raises(DataError, match="has no class 'junc': did you mean 'junk'"):
        from_folder(root, exclude=("empty", "junc"))


def test_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match="has no class folders with images"):
        from_folder(tmp_path)
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match="1 files are directly in it"):
        from_folder(tmp_path)


def test_one_class_only(make_folder):
    with pytest.raises(DataError, match="only one class, 'cat'"):
        from_folder(make_folder(cat=3))


def test_an_empty_class_folder_is_named(make_folder):
    root = make_folder(cat=1, dog=1)
    (root / "melanoma").mkdir()
    with pytest.raises(DataError, match=r"no image in 'melanoma'; .* --exclude"):
        from_folder(root)


def test_a_class_with_no_training_image_is_named(make_folder):
    make_folder("set/train", cat=2, dog=2)
    root = make_folder("set/test", cat=1, eel=1).parent
    with pytest.raises(DataError, match="class 'eel' has no training image"):
        from_folder(root)


def test_splits_without_training(make_folder):
    root = make_folder("set/test", cat=1, dog=1).parent
    with pytest.raises(DataError, match="no 'train'"):
        from_folder(root)


def test_links_are_followed_but_a_loop_is_refused(make_folder, tmp_path):
    root = make_folder(cat=1, dog=1)
    elsewhere = make_folder("elsewhere", eel=2)
    (root / "eel").symlink_to(elsewhere / "eel")
    assert from_folder(root).class_counts.tolist() == [1, 1, 2]
    (root / "cat" / "loop").symlink_to(root / "cat")
    with pytest.raises(DataError, match="link to a folder that contains it"):
        from_folder(root)


@pytest.mark.skipif(sys.platform == "win32", reason="makes links")
def test_a_hundred_thousand_files(make_folder, tmp_path):
    """Ten thousand files, each listed ten times: writing a hundred thousand would take too long."""
    one = make_folder("one", x=1) / "x" / "000.png"
    many = tmp_path / "many"
    many.mkdir()
    for number in range(10_000):
        os.link(one, f"{many}/{number}.png")
    root = tmp_path / "images"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for copy in range(5):
            (root / name / f"part{copy}").symlink_to(many)
    data = from_folder(root)
    assert data.class_counts.tolist() == [50_000, 50_000]
    assert len(set(data.names)) == 100_000


@pytest.fixture
def write(make_folder):
    root = make_folder(cat=3, dog=3)

    def write_table(*lines, encoding="utf-8"):
        table = root / "table.csv"
        table.write_bytes("\n".join(lines).encode(encoding))
        return table

    return write_table


def test_paths_and_labels(write):
    data = from_table(write("path,label", "cat/000.png,kitten", "dog/001.png,pup"))
    assert data.class_names == ("kitten", "pup")
    assert data.names == ["cat/000.png", "dog/001.png"]
    assert data.groups is None
    assert data.parts is None


def test_groups_and_splits(write):
    data = from_table(
        write(
            "path,label,group,split",
            "cat/000.png,a,p1,train",
            "cat/001.png,b,p2,test",
            "cat/002.png,a,p3,",
            "dog/000.png,b,p3,Validation",
        )
    )
    assert data.groups.tolist() == ["p1", "p2", "p3", "p3"]
    assert data.parts.tolist() == ["train", "test", "train", "val"]


def test_a_byte_order_mark_and_other_columns(write):
    table = write("path,label,age", "cat/000.png,x,3", "dog/000.png,y,4", encoding="utf-8-sig")
    assert from_table(table).class_names == ("x", "y")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "lists no images"),
        (("path,label",), "lists no images"),
        (("file,label", "cat/000.png,a"), "no column 'path', but file, label"),
        (("path,label", "cat/000.png,a", "cat/001.png,a"), "has 1 class"),
        (
            ("path,label", "cat/nine.png,a", "dog/ten.png,b"),
            r"do not exist or are not files \(2\)",
        ),
        (("path,label", "cat/000.png"), "line 2: the number of cells"),
        (
            ("path,label,split", "cat/000.png,a,weekday", "dog/000.png,b,test"),
            "line 2: split is 'weekday'",
        ),
    ],
)
def test_bad_tables_are_named(write, lines, message):
    table = write(*lines)
    with pytest.raises(DataError, match=message):
        from_table(table)


def test_not_utf8_and_not_there(write, tmp_path):
    with pytest.raises(DataError, match="not UTF-8"):
        from_table(write("path,label", "cat/000.png,ä", encoding="latin-1"))
    with pytest.raises(DataError, match="does not exist"):
        from_table(tmp_path / "none.csv")


IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
LABELS = [0, 1, 1, 2, 2, 2]


class Stranger(Dataset):
    """A dataset with labels whose images must not be read for counting."""

    targets = LABELS
    classes = ("ant", "bee", "cow")

    def __init__(self, forbidden=False):
        self.forbidden = forbidden

    def __len__(self):
        return 6

    def __getitem__(self, index):
        assert not self.forbidden, "an image was decoded to count labels"
        return Image.fromarray(IMAGES[index]), LABELS[index]


class LabelsInItems(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return torch.from_numpy(IMAGES[index]).permute(2, 0, 1).float() / 255, LABELS[index]


@pytest.mark.parametrize(
    "images",
    [IMAGES, IMAGES.transpose(0, 3, 1, 2), torch.from_numpy(IMAGES), IMAGES / 255.0],
    ids=["NHWC", "NCHW", "tensor", "floats"],
)
def test_arrays_in_every_layout(images):
    data = from_arrays(images, LABELS, class_names=("a", "b", "c"))
    assert data.class_counts.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(np.asarray(data.images.open(3)), IMAGES[3])


def test_grey_arrays():
    data = from_arrays(IMAGES[..., 0], LABELS)
    assert data.images.open(0).mode == "L"
    assert data.class_names == ("0", "1", "2")
    assert from_arrays(IMAGES[..., :1], LABELS).images.open(0).mode == "L"


@pytest.mark.parametrize("dataset", [Stranger(), LabelsInItems()], ids=["pillow", "tensors"])
def test_datasets_give_their_images(dataset):
    data = from_dataset(dataset)
    assert data.labels.tolist() == LABELS
    np.testing.assert_array_equal(np.asarray(data.images.open(5)), IMAGES[5])


def test_class_names_of_a_dataset():
    assert from_dataset(Stranger()).class_names == ("ant", "bee", "cow")
    assert from_dataset(Subset(Stranger(), [0, 5])).class_names == ("ant", "bee", "cow")


def test_labels_are_found_without_decoding():
    stranger = Stranger(forbidden=True)
    assert class_counts(stranger).tolist() == [1, 2, 3]
    assert class_counts(Subset(stranger, [0, 5, 4]), num_classes=3).tolist() == [1, 0, 2]
    both = ConcatDataset([stranger, Subset(Subset(stranger, [1, 2, 3]), [0, 2])])
    assert labels_of(both).tolist() == [*LABELS, 1, 2]
    tensors = TensorDataset(torch.zeros(6, 2), torch.tensor(LABELS))
    assert class_counts(tensors).tolist() == [1, 2, 3]


def test_labels_that_are_only_in_items_are_read():
    assert labels_of(LabelsInItems()).tolist() == LABELS


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (IMAGES, LABELS[:5], "6 images, but 5 labels"),
        (IMAGES, [0.5] * 6, "class numbers"),
        (IMAGES, list("aabbcc"), "class numbers"),
        (IMAGES, [-1, 0, 0, 0, 0, 0], "must not be negative"),
        (IMAGES.astype(np.float32), LABELS, r"float images must be in \[0, 1\]"),
        (IMAGES.astype(np.int64), LABELS, "uint8 or floats"),
        (IMAGES[:, 0, 0], LABELS, "images must be uint8 of shape"),
    ],
)
def test_bad_arrays_are_named(images, labels, message):
    with pytest.raises(DataError, match=message):
        from_arrays(images, labels)


def test_too_few_class_names():
    with pytest.raises(DataError, match="labels are 0 to 2, but there are 2 class names"):
        from_arrays(IMAGES, LABELS, class_names=("a", "b"))


def test_a_dataset_is_decoded_once_for_its_digests():
    class Counted:
        targets = (0, 1)
        asked = 0

        def __len__(self):
            return 2

        def __getitem__(self, index):
            self.asked += 1
            return np.full((4, 4), index, np.uint8), index

    dataset = Counted()
    images = from_dataset(dataset).images
    first = [images.content(number) for number in range(2)]
    assert [images.content(number) for number in range(2)] == first
    assert len(set(first)) == 2
    assert dataset.asked == 2


def test_what_is_typed_is_understood(make_folder, tmp_path, monkeypatch):
    root = make_folder(cat=1, dog=1)
    assert open_data(str(root)).class_names == ("cat", "dog")
    assert open_data("digits").class_counts.sum() == 1797
    monkeypatch.chdir(make_folder("here/digits", a=1, b=1).parent)
    assert len(open_data("digits")) == 1797
    assert len(open_data("./digits")) == 2
    with pytest.raises(DataError, match=r"neither a folder, nor a CSV, nor .* from digits, mnist"):
        open_data(str(tmp_path / "nothing"))
    with pytest.raises(DataError, match="neither a folder of class folders nor a CSV"):
        open_data(str(root / "cat" / "000.png"))
    assert "9" not in open_data("digits", exclude=("9",)).class_names
    with pytest.raises(DataError, match="no class 'melanom'"):
        open_data("digits", exclude=("melanom",))


@pytest.mark.parametrize(
    "data",
    [
        (IMAGES, LABELS),
        (torch.from_numpy(IMAGES), torch.tensor(LABELS)),
        from_arrays(IMAGES, LABELS),
        LabelsInItems(),
        Subset(LabelsInItems(), range(6)),
    ],
    ids=["arrays", "tensors", "labelled images", "dataset", "subset"],
)
def test_objects_can_be_opened(data):
    opened = open_data(data)
    assert opened.labels.tolist() == LABELS
    np.testing.assert_array_equal(np.asarray(opened.images.open(4)), IMAGES[4])
    fewer = open_data(data, exclude=("1",))
    assert fewer.class_names == ("0", "2")
    assert fewer.class_counts.tolist() == [1, 3]
    assert fewer.labels.tolist() == [0, 1, 1, 1]


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


@pytest.mark.parametrize("data", [None, 5, IMAGES, [IMAGES, LABELS], (IMAGES,), {}, Endless()])
def test_other_objects_are_refused_in_one_sentence(data):
    with pytest.raises(InputError, match=f"data must be .* of type {type(data).__name__}"):
        open_data(data)


def test_class_counts_are_a_tensor():
    counts = from_arrays(IMAGES, LABELS, class_names="abcd").class_counts
    assert isinstance(counts, torch.Tensor)
    assert counts.dtype == torch.int64
    assert counts.tolist() == [1, 2, 3, 0]
    assert class_counts(LabelsInItems()).dtype == torch.int64
