"""The handwritten digits that come with scikit-learn."""

from pathlib import Path

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.named.record import NamedDataset
from cosen.data.stores import ImageArray


def load(_root: Path, _variant: str | None = None) -> LabelledImages:
    """1,797 grey images of 8×8 pixels, about 180 a digit, with no official split."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images * (255 / 16)).round().astype(np.uint8)  # values 0..16
    return LabelledImages(
        images=ImageArray(images),
        rows=np.arange(len(images)),
        labels=digits.target.astype(np.int64),
        class_names=tuple("0123456789"),
        source="digits",
    )


DIGITS = NamedDataset(
    name="digits",
    title="Handwritten digits, 8×8 (Alpaydin and Kaynak, UCI)",
    load=load,
    where="It comes with scikit-learn, so no file is needed.",
    licence="CC BY 4.0",
)
