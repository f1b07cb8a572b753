"""The training images of each class: of a dataset, of one of the paper's protocols, of a run."""

from pathlib import Path

from cosen.data.imbalance import Imbalance, make_imbalanced, parse_imbalance
from cosen.data.labelled import LabelledImages
from cosen.data.open import open_data
from cosen.data.splits import Split, split_off_test
from cosen.errors import InputError
from cosen.paper.figures.folders import any_run, holds_runs
from cosen.paper.figures.frequencies import ClassCounts
from cosen.paper.protocols import PROTOCOLS, protocol
from cosen.training.task import parse_split

WHOLE = "all"
"""Instead of a split: every image of the dataset."""


def count_classes(
    data: str,
    *,
    split: str | None = None,
    imbalance: str | None = None,
    root: Path | None = None,
    exclude: tuple[str, ...] = (),
    seed: int = 0,
) -> ClassCounts:
    """The training images of each class, those held out for validation among them.

    Of a run or a study folder, the images that it trained on.

    Args:
        data: A dataset as :func:`cosen.data.open_data` takes it, the name of a protocol such as
            ``mnist/odd-10``, or a run or study folder.
        split: As for training, or ``all`` for every image.
        imbalance: What to leave of each class, as for training.
        root: Where named datasets are.
        exclude: Classes to leave out.
        seed: Of the split.
    """
    if data in PROTOCOLS or _sounds_like_a_protocol(data):
        if split or imbalance:
            raise InputError(
                f"{data} is a protocol, which says itself how to split: leave --split and "
                f"--imbalance out, or give {data.partition('/')[0]}"
            )
        chosen = protocol(data)
        found = open_data(chosen.dataset, root=root, exclude=exclude)
        return _counts(data, found, chosen.split, chosen.imbalance, seed=seed)
    if holds_runs(Path(data)):
        if split or imbalance or exclude:
            raise InputError(
                f"{data} holds a run, whose split is made: leave --split, --imbalance and "
                "--exclude out"
            )
        about = any_run(Path(data)).about()
        return ClassCounts(
            _name(data), tuple(about["class_names"]), tuple(about["class_counts"]["train"])
        )
    found = open_data(data, root=root, exclude=exclude)
    name = _name(data) + (f", {imbalance}" if imbalance else "")
    how = None if split == WHOLE else parse_split(split or "auto", found)
    return _counts(name, found, how, imbalance, seed=seed)


def _counts(
    name: str, data: LabelledImages, how: Split | None, imbalance: str | None, *, seed: int
) -> ClassCounts:
    train = data if how is None else split_off_test(data, how, seed=seed)[0]
    if imbalance:
        leave: Imbalance = parse_imbalance(imbalance)
        train = make_imbalanced(train, leave, seed=seed)
    return ClassCounts(name, data.class_names, tuple(train.class_counts.tolist()))


def _sounds_like_a_protocol(data: str) -> bool:
    dataset, slash, _ = data.partition("/")
    known = {name.partition("/")[0] for name in PROTOCOLS}
    return bool(slash) and dataset in known and not Path(data).exists()


def _name(data: str) -> str:
    path = Path(data)
    return path.resolve().name if path.exists() else data
