"""Datasets that can be opened by name."""

import os
from pathlib import Path

from cosen.data.labelled import LabelledImages
from cosen.data.named.cifar import CIFAR10, CIFAR100
from cosen.data.named.coral import MLC, RSMAS
from cosen.data.named.dataset import MissingFilesError, NamedDataset
from cosen.data.named.digits import DIGITS, FASHION_MNIST, MNIST
from cosen.data.named.photos import CALTECH101, MIT67
from cosen.data.named.skin import DIL, HAM10000
from cosen.errors import DataError, choices_hint
from cosen.files import expand_user

__all__ = ["NAMED", "NamedDataset", "data_root", "find_named", "load_named"]

NAMED: dict[str, NamedDataset] = {
    dataset.name: dataset
    for dataset in (
        *(DIGITS, MNIST, FASHION_MNIST, CIFAR10, CIFAR100, CALTECH101, MIT67),
        *(DIL, MLC, HAM10000, RSMAS),
    )
}
"""All datasets that can be opened by name."""


def data_root() -> Path:
    """The folder of named datasets: ``$COSEN_DATA`` or ``~/.cache/cosen/data``."""
    given = os.environ.get("COSEN_DATA")
    return expand_user(given) if given else Path.home() / ".cache" / "cosen" / "data"


def find_named(name: str) -> tuple[NamedDataset, str | None]:
    """Find a dataset and, if there is one after a colon, its variant.

    Example:
        >>> dataset, variant = find_named("dil:5")
        >>> dataset.name, variant
        ('dil', '5')
    """
    base, colon, variant = name.partition(":")
    if base not in NAMED:
        raise DataError(f"there is no dataset {base!r}{choices_hint(base, NAMED)}")
    dataset = NAMED[base]
    if not colon:
        return dataset, None
    if not dataset.variants:
        raise DataError(f"{base} has no variants: use {base!r} instead of {name!r}")
    if variant not in dataset.variants:
        raise DataError(
            f"{base} has no variant {variant!r}{choices_hint(variant, dataset.variants)}"
        )
    return dataset, variant


def load_named(name: str, *, root: Path | None = None) -> LabelledImages:
    """Load a dataset by name from its official layout.

    Args:
        name: One of :data:`NAMED`, optionally with a variant: ``"mnist"``, ``"dil:5"``,
            ``"mlc:2008"``.
        root: The folder of named datasets; default: :func:`data_root`.
    """
    dataset, variant = find_named(name)
    try:
        return dataset.load(root if root is not None else data_root(), variant)
    except MissingFilesError as error:
        raise DataError(f"{error}. {dataset.where}") from error
