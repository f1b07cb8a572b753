import gzip
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from cosen.data.named import NAMED, data_root, digits, find_named, load_named
from cosen.data.named.cifar import read_batch
from cosen.errors import DataError
from data import named_layouts
from data.named_layouts import LAYOUTS, Layout, picture

on_disk = [layout for layout in LAYOUTS if layout.make is not None]
each_layout = pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
each_on_disk = pytest.mark.parametrize("layout", on_disk, ids=lambda layout: layout.name)


@pytest.fixture(autouse=True)
def no_debian_copy(monkeypatch, tmp_path):
    """Files installed on the machine must not replace files that a test removed."""
    places = [*digits.PLACES["fashion-mnist"][:-1], str(tmp_path / "debian")]
    monkeypatch.setitem(digits.PLACES, "fashion-mnist", places)


def laid_out(layout: Layout, root: Path) -> Path:
    if layout.make is not None:
        layout.make(root)
    return root


def test_every_dataset_and_variant_is_tried():
    tried = {find_named(layout.name)[0].name for layout in LAYOUTS}
    assert tried == set(NAMED)


@each_layout
def test_classes_and_counts(layout, tmp_path):
    data = load_named(layout.name, root=laid_out(layout, tmp_path))
    assert data.num_classes == layout.classes
    counts = zip(data.class_names, data.class_counts.tolist(), strict=True)
    assert {name: count for name, count in counts if count} == layout.counts
    assert data.labels.dtype == np.int64


@each_layout
def test_parts(layout, tmp_path):
    data = load_named(layout.name, root=laid_out(layout, tmp_path))
    if layout.parts is None:
        assert data.parts is None
    else:
        assert Counter(data.parts.tolist()) == layout.parts


@each_layout
def test_groups(layout, tmp_path):
    data = load_named(layout.name, root=laid_out(layout, tmp_path))
    if layout.groups is None:
        assert data.groups is None
    else:
        assert len(set(data.groups.tolist())) == layout.groups


@each_layout
def test_images_decode_and_names_are_unique(layout, tmp_path):
    data = load_named(layout.name, root=laid_out(layout, tmp_path))
    images = [data.images.open(int(row)) for row in data.rows[:20]]
    assert (images[0].size, images[0].mode) == layout.size
    assert len(set(data.names)) == len(data)


@each_layout
def test_the_source_says_what_was_asked_for(layout, tmp_path):
    data = load_named(layout.name, root=laid_out(layout, tmp_path))
    assert data.source.startswith(layout.name)
    assert "/" not in data.source


@each_on_disk
def test_nothing_there_is_an_error_that_says_where_to_put_it(layout, tmp_path):
    with pytest.raises(DataError) as caught:
        load_named(layout.name, root=tmp_path)
    dataset, _ = find_named(layout.name)
    assert str(tmp_path) in str(caught.value)
    assert dataset.where in str(caught.value)
    assert dataset.name in str(caught.value)


@pytest.mark.parametrize(
    "layout", [layout for layout in on_disk if layout.missing[1]], ids=lambda layout: layout.name
)
def test_a_missing_file_is_named_with_its_place(layout, tmp_path):
    laid_out(layout, tmp_path)
    taken, named = layout.missing
    path = tmp_path / taken
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DataError) as caught:
        load_named(layout.name, root=tmp_path)
    before_advice = str(caught.value).partition(find_named(layout.name)[0].where)[0]
    assert named in before_advice
    assert str(path.parent) in before_advice


@pytest.mark.parametrize("dataset", NAMED.values(), ids=NAMED)
def test_every_record_is_filled_in(dataset):
    assert NAMED[dataset.name] is dataset
    assert dataset.where.endswith(".")


def test_an_unknown_name_lists_the_choices_and_the_nearest():
    with pytest.raises(DataError, match=r"'caltech'.*did you mean 'caltech101'.*mnist.*rsmas"):
        load_named("caltech")
    with pytest.raises(DataError, match=r"'zzz': choose from digits"):
        load_named("zzz")


def test_an_unknown_variant_lists_the_choices(tmp_path):
    with pytest.raises(DataError, match=r"mlc has no variant '2009'.*2008-2009, 2008"):
        load_named("mlc:2009", root=tmp_path)
    with pytest.raises(DataError, match=r"dil has no variant ''"):
        load_named("dil:", root=tmp_path)
    with pytest.raises(DataError, match="mnist has no variants"):
        load_named("mnist:5", root=tmp_path)


def test_the_data_root_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("COSEN_DATA", str(tmp_path))
    assert data_root() == tmp_path
    named_layouts.rsmas(tmp_path)
    assert len(load_named("rsmas")) == 6
    monkeypatch.setenv("COSEN_DATA", "")
    assert data_root() == Path.home() / ".cache/cosen/data"


def test_the_registry_needs_neither_torch_nor_sklearn():
    program = (
        "import sys, cosen.data.named; heavy = {'torch', 'sklearn'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_digits_are_those_of_scikit_learn_over_the_whole_range():
    found, expected = load_named("digits"), load_digits()
    images = found.images.images
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 255)
    assert np.array_equal(images, (expected.images * (255 / 16)).round())
    assert np.array_equal(found.labels, expected.target)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("mnist", "mnist"),
        ("mnist", "MNIST/raw"),
        ("fashion-mnist", "fashion-mnist"),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("fashion-mnist", "debian"),
    ],
)
@pytest.mark.parametrize("make", [named_layouts.idx_gz, named_layouts.idx_plain])
def test_idx_files_are_found_in_each_place(name, place, make, tmp_path):
    make(tmp_path / place)
    data = load_named(name, root=tmp_path)
    values = [data.images.open(number).getpixel((3, 4)) for number in range(len(data))]
    assert values == [20 * label for label in data.labels]


WHOLE = named_layouts.idx_files()["train-images-idx3-ubyte"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(WHOLE)[:-20], "truncated"),
        (b"no gzip", "not a gzip file"),
        (gzip.compress(b"\0\0\x0d\x01abcd"), "not an IDX file"),
        (gzip.compress(WHOLE[:9]), "truncated"),
        (gzip.compress(WHOLE[:-1]), "truncated"),
        (gzip.compress(named_layouts.idx_bytes(np.zeros(6))), "3 dimensions, but has 1"),
        (gzip.compress(named_layouts.idx_bytes(np.zeros((5, 28, 28)))), "5 train images, but 6"),
    ],
    ids=["cut gzip", "no gzip", "no IDX", "cut header", "cut data", "dimensions", "number"],
)
def test_a_broken_idx_file_is_named(content, reason, tmp_path):
    named_layouts.idx_gz(tmp_path / "mnist")
    (tmp_path / "mnist/train-images-idx3-ubyte.gz").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        load_named("mnist", root=tmp_path)


def test_cifar_planes_become_colours(tmp_path):
    named_layouts.cifar100(tmp_path)
    data = load_named("cifar100", root=tmp_path)
    assert data.images.open(0).getpixel((31, 0)) == (10, 20, 30)
    assert data.part("test").labels.tolist() == [7, 99]


def test_a_short_training_set_is_said_in_the_log(tmp_path, caplog):
    named_layouts.cifar10(tmp_path / "cifar10")
    with caplog.at_level(logging.WARNING, "cosen"):
        load_named("cifar10", root=tmp_path)
    assert "10 of the official 50000 training images" in caplog.text


def test_batches_of_python_2_are_read(tmp_path):
    named_layouts.cifar100(tmp_path)
    pixels = np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072)
    content = named_layouts.python2_batch(pixels, [3, 4])
    (tmp_path / "cifar-100-python/train").write_bytes(content)
    batch = read_batch(tmp_path / "cifar-100-python/train")
    np.testing.assert_array_equal(batch["data"], pixels)
    assert load_named("cifar100", root=tmp_path).part("train").labels.tolist() == [3, 4]


class Malicious:
    """The usual unpickling would create a folder."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_batch_is_refused_without_running(protocol, tmp_path):
    named_layouts.cifar100(tmp_path)
    victim = tmp_path / "made"
    file = tmp_path / "cifar-100-python/train"
    file.write_bytes(pickle.dumps({b"data": Malicious(victim)}, protocol=protocol))
    with pytest.raises(DataError, match=r"train: it names (posix|nt)\.mkdir") as caught:
        load_named("cifar100", root=tmp_path)
    assert str(file) in str(caught.value)
    assert not victim.exists()
    pickle.loads(file.read_bytes())  # checks the test itself
    assert victim.is_dir()


@pytest.mark.parametrize(
    "name", [b"builtins\neval", b"numpy\nload", b"numpy.core.multiarray\nfromfile", b"os\nsystem"]
)
def test_no_other_global_is_looked_up(name, tmp_path):
    file = tmp_path / "batch"
    file.write_bytes(b"c" + name + b"\n(S'1'\ntR.")
    with pytest.raises(DataError, match=name.decode().replace("\n", ".")):
        read_batch(file)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps([1, 2]),
        pickle.dumps({b"data": np.zeros(3)}, protocol=2),
        pickle.dumps({b"data": np.array([object()])[:0]}, protocol=2),
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"cnumpy\nndarray\n((I8\ntS'u1'\ntR.",
    ],
)
def test_what_is_no_batch_is_refused(content, tmp_path):
    file = tmp_path / "batch"
    file.write_bytes(content)
    with pytest.raises(DataError, match="not a CIFAR batch"):
        read_batch(file)


@pytest.mark.parametrize(
    "batch",
    [
        {},
        {b"data": [0] * 3072, b"fine_labels": [0]},
        {b"data": np.zeros((1, 3071), np.uint8), b"fine_labels": [0]},
        {b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [0, 1]},
        {b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": ["0"]},
    ],
)
def test_a_batch_without_images_and_labels_is_refused(batch, tmp_path):
    named_layouts.cifar100(tmp_path)
    (tmp_path / "cifar-100-python/train").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DataError, match="as many 'fine_labels'"):
        load_named("cifar100", root=tmp_path)


@pytest.mark.parametrize("place", ["", "caltech101", "caltech-101"])
def test_caltech_is_found_in_each_place(place, tmp_path):
    named_layouts.caltech101(tmp_path / place)
    assert len(load_named("caltech101", root=tmp_path)) == 6


def test_caltech_without_images_is_an_error(tmp_path):
    (tmp_path / "101_ObjectCategories/accordion").mkdir(parents=True)
    with pytest.raises(DataError, match="class folders with"):
        load_named("caltech101", root=tmp_path)


def test_mit67_parts_follow_the_lists(tmp_path):
    named_layouts.mit67(tmp_path)
    (tmp_path / "mit67").rename(tmp_path / "indoorCVPR_09")
    data = load_named("mit67", root=tmp_path)
    assert dict(zip(data.names, data.parts.tolist(), strict=True)) == {
        "airport_inside/a 1.jpg": "train",
        "airport_inside/b.jpg": "",
        "bakery/c.jpg": "train",
        "bakery/é.jpg": "test",
    }


def test_mit67_names_a_listed_image_that_is_not_there(tmp_path):
    named_layouts.mit67(tmp_path)
    (tmp_path / "mit67/Images/bakery/c.jpg").unlink()
    with pytest.raises(DataError, match=r"bakery/c\.jpg not found in"):
        load_named("mit67", root=tmp_path)


def test_dil_masks_are_no_images_and_case_does_not_matter(tmp_path):
    named_layouts.dil(tmp_path)
    (tmp_path / "dil").rename(tmp_path / "dermofit")
    for folder in list((tmp_path / "dermofit").iterdir()):
        if folder.is_dir():
            name = {"MEL": "mal"}.get(folder.name, folder.name.lower())
            folder.rename(folder.with_name(f"{name}.renamed")).rename(folder.with_name(name))
    data = load_named("dil", root=tmp_path)
    assert len(data) == 21
    assert not any("mask" in name for name in data.names)
    assert "MEL" in data.class_names


def test_a_lesion_of_dil_with_two_images_is_one_group(tmp_path):
    named_layouts.dil(tmp_path)
    picture(tmp_path / "dil/BCC/B1/B1_again.png")
    data = load_named("dil", root=tmp_path)
    groups = Counter(data.groups.tolist())
    assert groups["BCC/B1"] == 2
    assert groups["AK/loose.png"] == 1


def test_mlc_patches_are_centred_on_their_points(tmp_path):
    named_layouts.mlc(tmp_path)
    first = tmp_path / "mlc/2008/mcr_lter1_fringingreef_20080415.jpg"
    image = named_layouts.Image.new("RGB", (400, 300))
    image.paste((255, 255, 255), (180, 130, 220, 170))
    image.save(first)
    first.with_name(f"{first.name}.txt").write_text("# Row; Col; Label\n150; 200; Monti\n")
    data = load_named("mlc:2008", root=tmp_path)
    assert data.class_names[data.labels[0]] == "Monti"
    patch = np.asarray(data.images.open(0).convert("L"))
    bright = np.argwhere(patch > 128)
    np.testing.assert_allclose(bright.mean(0), [111.5, 111.5], atol=1)


def test_mlc_counts_what_it_leaves_out(tmp_path, caplog):
    named_layouts.mlc(tmp_path)
    picture(tmp_path / "mlc/2009/not_annotated.jpg")
    with caplog.at_level(logging.INFO, "cosen"):
        load_named("mlc", root=tmp_path)
    assert "6 points ignored, not of the nine classes: Off 4, Soft 2" in caplog.text
    assert "1 of 3 images" in caplog.text


def test_mlc_is_found_in_the_folders_of_its_archives(tmp_path):
    named_layouts.mlc(tmp_path)
    for year in ("2008", "2009"):
        archive = tmp_path / f"mlc/MCR_LTER_ComputerVision_LabeledCorals_{year}_20120521"
        archive.mkdir()
        (tmp_path / "mlc" / year).rename(archive / year)
    assert len(load_named("mlc", root=tmp_path)) == 10


def test_mlc_names_a_line_that_it_cannot_read(tmp_path):
    named_layouts.mlc(tmp_path)
    file = next((tmp_path / "mlc/2009").glob("*.txt"))
    file.write_text("# Row; Col; Label\n1; 2; Sand\n1, 2, Sand\n")
    with pytest.raises(DataError, match="line 3: '1, 2, Sand' is not 'row; column; label'"):
        load_named("mlc", root=tmp_path)


def test_ham10000_in_two_parts(tmp_path):
    named_layouts.ham10000(tmp_path)
    base = tmp_path / "ham10000"
    (base / "images").rename(base / "HAM10000_images_part_1")
    (base / "HAM10000_images_part_2").mkdir()
    (base / "HAM10000_images_part_1/I3.jpg").rename(base / "HAM10000_images_part_2/I3.jpg")
    (base / "HAM10000_metadata.csv").rename(base / "HAM10000_metadata")
    data = load_named("ham10000", root=tmp_path)
    assert data.groups.tolist() == ["HAM_L1", "HAM_L1", "HAM_L2"]


@pytest.mark.parametrize("text", ["", "image_id,dx\nI1,nv\n"])
def test_ham10000_metadata_without_its_columns(text, tmp_path):
    named_layouts.ham10000(tmp_path)
    (tmp_path / "ham10000/HAM10000_metadata.csv").write_text(text)
    with pytest.raises(DataError, match="has no column lesion_id"):
        load_named("ham10000", root=tmp_path)


def test_rsmas_without_a_split(tmp_path):
    for name in ("ACER", "TUNI"):
        picture(tmp_path / "RSMAS" / name / "1.jpg")
    data = load_named("rsmas", root=tmp_path)
    assert data.parts is None
    assert data.class_names == ("ACER", "TUNI")


needs_data = pytest.mark.skipif(
    not os.environ.get("COSEN_DATA"), reason="COSEN_DATA does not say where real data lies"
)


def load_real(name):
    data = load_named(name)
    for row in data.rows[:: max(1, len(data) // 50)]:
        data.images.open(int(row))
    return data


@needs_data
def test_real_mnist():
    data = load_real("mnist")
    assert (len(data.part("train")), len(data.part("test"))) == (60_000, 10_000)
    assert data.part("test").labels[:5].tolist() == [7, 2, 1, 0, 4]


@needs_data
def test_real_cifar100():
    test = load_real("cifar100").part("test")
    assert len(test) == 10_000
    assert set(test.class_counts.tolist()) == {100}
    assert test.class_names[0] == "apple"


@needs_data
def test_real_caltech101():
    data = load_real("caltech101")
    assert (len(data), data.num_classes) == (9144, 102)
    assert (data.class_counts.min(), data.class_counts.max()) == (31, 800)


@needs_data
def test_real_ham10000():
    data = load_real("ham10000")
    assert len(data) == 10_015
    assert len(set(data.groups)) == 7470
    assert dict(zip(data.class_names, data.class_counts.tolist(), strict=True))["nv"] == 6705


@needs_data
def test_real_rsmas():
    data = load_real("rsmas")
    assert (len(data.part("train")), len(data.part("test"))) == (620, 146)
    assert data.num_classes == 14
