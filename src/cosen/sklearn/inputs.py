"""What X and y must be, and what is made of them before a network sees them."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from cosen.errors import InputError

Array = NDArray[Any]


def encode_labels(y: Array) -> tuple[Array, Array]:
    """The classes in y, in order, and the place among them of each label.

    Example:
        >>> encode_labels(np.array(["dog", "cat", "dog"]))
        (array(['cat', 'dog'], dtype='<U3'), array([1, 0, 1]))
    """
    try:
        check_classification_targets(y)
        classes, places = np.unique(y, return_inverse=True)
    except TypeError:
        types = sorted({type(label).__name__ for label in y})
        raise InputError(
            "the labels of CosenClassifier must be of one type, so that they can be put in order, "
            f"but y has {' and '.join(types)}"
        ) from None
    if len(classes) < 2:
        raise InputError(
            "CosenClassifier needs samples of at least two classes, "
            f"but y has one class only: {classes.tolist()[0]!r}"
        )
    return classes, places


def check_finite(X: Array, *, labels: Array | None = None, names: Array | None = None) -> None:
    """Refuse NaN and infinity, naming the first: its sample, the sample's class, its feature.

    Args:
        X: Samples, shape ``(n, ...)``.
        labels: The class of each sample, where known, shape ``(n,)``.
        names: The names of features, where X has names.
    """
    if X.dtype.kind != "f" or np.isfinite(X).all():
        return
    sample, *place = (int(index) for index in np.argwhere(~np.isfinite(X))[0])
    what = "NaN" if np.isnan(X[(sample, *place)]) else "infinity"
    of_class = "" if labels is None else f" of class {labels[[sample]].tolist()[0]!r}"
    if len(place) > 1:
        where = f"pixel {tuple(place)}"
    else:
        where = f"feature {place[0] if names is None else repr(names[place[0]])}"
    raise InputError(
        f"Input X contains {what}: CosenClassifier needs finite numbers, but sample {sample}"
        f"{of_class} has {what} in {where}; leave such samples out, or fill them in first"
    )


def channels_last(images: Array) -> Array:
    """``(n, h, w, c)``, with one or three channels."""
    if images.ndim == 3:
        return images[..., None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images.transpose(0, 2, 3, 1)
    raise InputError(
        "the small-cnn of CosenClassifier takes images of the shape (n, h, w), (n, h, w, c) or "
        f"(n, c, h, w) with one or three channels, but X has {images.shape}"
    )


def hold_out(places: Array, *, share: float, order: torch.Generator) -> Tensor:
    """A mask of the share of each class; by the rule of ``cosen.data.splits``."""
    counts = np.bincount(places)
    wanted = np.where(counts >= 4, np.maximum(np.round(share * counts), 2), counts == 3)
    wanted = np.minimum(wanted, counts - 1)  # and the class stays in training
    shuffled = torch.randperm(len(places), generator=order).numpy()
    by_class = shuffled[np.argsort(places[shuffled], kind="stable")]
    rank = np.arange(len(places)) - np.repeat(counts.cumsum() - counts, counts)
    mask = np.zeros(len(places), bool)
    mask[by_class] = rank < np.repeat(wanted, counts)
    return torch.from_numpy(mask)
