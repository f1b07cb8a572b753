"""Data: from what a user has to splits, batches and features.

The names below need neither torch nor kornia; batches, augmentation and features are in modules of
their own.
"""

from cosen.data.arrays import class_counts, from_arrays, from_dataset
from cosen.data.image_cache import DecodedImages, decode_images
from cosen.data.imbalance import make_imbalanced, parse_imbalance
from cosen.data.inspection import inspect_data
from cosen.data.labelled import LabelledImages
from cosen.data.open import open_data
from cosen.data.preprocess import Preprocess
from cosen.data.splits import (
    CountSplit,
    FoldSplit,
    FractionSplit,
    OfficialSplit,
    Split,
    Splits,
    split_images,
)

__all__ = [
    "CountSplit",
    "DecodedImages",
    "FoldSplit",
    "FractionSplit",
    "LabelledImages",
    "OfficialSplit",
    "Preprocess",
    "Split",
    "Splits",
    "class_counts",
    "decode_images",
    "from_arrays",
    "from_dataset",
    "inspect_data",
    "make_imbalanced",
    "open_data",
    "parse_imbalance",
    "split_images",
]
