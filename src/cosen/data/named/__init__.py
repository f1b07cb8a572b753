"""Datasets by name: where each is looked for, how it is read, and where it can be had."""

import os
from pathlib import Path

from cosen.data.labelled import LabelledImages
from cosen.data.named.caltech101 import CALTECH101
from cosen.data.named.cifar import CIFAR10, CIFAR100
from cosen.data.named.digits import DIGITS
from cosen.data.named.dil import DIL
from cosen.data.named.ham10000 import HAM10000
from cosen.data.named.mit67 import MIT67
from cosen.data.named.mlc import MLC
from cosen.data.named.mnist import FASHION_MNIST, MNIST
from cosen.data.named.record import NamedDataset
from cosen.data.named.rsmas import RSMAS
from cosen.errors import DataError, choices_hint

__all__ = ["NAMED", "NamedDataset", "data_root", "find_named", "load_named"]

NAMED: dict[str, NamedDataset] = {
    dataset.name: dataset
    for dataset in (
        DIGITS,
        MNIST,
        FASHION_MNIST,
        CIFAR10,
        CIFAR100,
        CALTECH101,
        MIT67,
        DIL,
        MLC,
        HAM10000,
        RSMAS,
    )
}
"""Every dataset that can be asked for by name."""


def data_root() -> Path:
    """Where datasets are looked for: ``$COSEN_DATA``, or else ``~/.cache/cosen/data``."""
    given = os.environ.get("COSEN_DATA")
    return Path(given).expanduser() if given else Path.home() / ".cache" / "cosen" / "data"


def find_named(name: str) -> tuple[NamedDataset, str | None]:
    """The dataset of this name, and the variant that stands after a colon, if any.

    Example:
        >>> dataset, variant = find_named("dil:5")
        >>> dataset.title, variant
        ('Dermofit Image Library (University of Edinburgh)', '5')
    """
    base, colon, variant = name.partition(":")
    if base not in NAMED:
        raise DataError(f"there is no dataset {base!r}{choices_hint(base, tuple(NAMED))}")
    dataset = NAMED[base]
    if not colon:
        return dataset, None
    if not dataset.variants:
        raise DataError(f"{base} has no variants, but {name!r} names one: ask for {base!r}")
    if variant not in dataset.variants:
        raise DataError(
            f"{base} has no variant {variant!r}{choices_hint(variant, dataset.variants)}"
        )
    return dataset, variant


def load_named(name: str, *, root: Path | None = None) -> LabelledImages:
    """A dataset by its name, read from its official layout.

    Args:
        name: One of :data:`NAMED`, with a variant after a colon where it has some:
            ``"mnist"``, ``"dil:5"``, ``"mlc:2008"``.
        root: The folder that datasets lie in; :func:`data_root` if not given.
    """
    dataset, variant = find_named(name)
    return dataset.load(root if root is not None else data_root(), variant)
