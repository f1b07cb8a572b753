import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from cosen.data.arrays import class_counts, from_arrays, from_dataset, labels_of
from cosen.errors import DataError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 5, 4, 3), dtype=np.uint8)
LABELS = [0, 1, 1, 2, 2, 2]


class Stranger(Dataset):
    """A dataset with labels at hand whose images must not be touched for counting."""

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
        (IMAGES, [-1, 0, 0, 0, 0, 0], "must not be negative"),
        (IMAGES.astype(np.float32), LABELS, r"floats must lie in \[0, 1\]"),
        (IMAGES.astype(np.int64), LABELS, "uint8 or floats"),
        (IMAGES[:, 0, 0], LABELS, "images must be uint8 of the shape"),
    ],
)
def test_bad_arrays_are_named(images, labels, message):
    with pytest.raises(DataError, match=message):
        from_arrays(images, labels)


def test_too_few_class_names():
    with pytest.raises(DataError, match="labels run from 0 to 2, but there are 2 class names"):
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
