import os
import sys

import pytest

from cosen.data.folder import from_folder
from cosen.data.open import open_data
from cosen.errors import DataError


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
    with pytest.raises(DataError, match=r"has 'Test', 'train', but beside them 'masks': "):
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
    with pytest.raises(DataError, match="has no folder of images"):
        from_folder(tmp_path)
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match="1 files lie in it directly"):
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
    """Ten thousand, each seen ten times: making a hundred thousand takes longer than the test."""
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


def test_what_is_typed_is_understood(make_folder, tmp_path, monkeypatch):
    root = make_folder(cat=1, dog=1)
    assert open_data(str(root)).class_names == ("cat", "dog")
    assert open_data("digits").class_counts.sum() == 1797
    monkeypatch.chdir(make_folder("here/digits", a=1, b=1).parent)
    assert len(open_data("digits")) == 1797
    assert len(open_data("./digits")) == 2
    with pytest.raises(DataError, match=r"neither a folder, nor a CSV, nor .* digits, mnist"):
        open_data(str(tmp_path / "nothing"))
    with pytest.raises(DataError, match="neither a folder of class folders nor a CSV"):
        open_data(str(root / "cat" / "000.png"))
    assert "9" not in open_data("digits", exclude=("9",)).class_names
    with pytest.raises(DataError, match="no class 'melanom'"):
        open_data("digits", exclude=("melanom",))
