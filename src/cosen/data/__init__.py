"""Data: from folders, CSVs, arrays or datasets to splits, batches and features.

The names below do not import torch or kornia. Batches, augmentation and features are in their own
modules.
"""

from cosen.data.decoding import Preprocess
from cosen.data.image_cache import DecodedImages, decode_images
from cosen.data.imbalance import make_imbalanced, parse_imbalance
from cosen.data.inspection import inspect_data
from cosen.data.labelled import LabelledImages
from cosen.data.sources import class_counts, from_arrays, from_dataset, open_data
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
