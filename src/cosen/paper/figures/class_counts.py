"""Training images by class, datasets side by side (Fig. intro, exp_set)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cosen.data.imbalance import make_imbalanced, parse_imbalance
from cosen.data.labelled import LabelledImages
from cosen.data.sources import open_data
from cosen.data.splits import split_off_test
from cosen.errors import InputError
from cosen.paper.figures import style
from cosen.paper.figures.folders import any_run, holds_runs
from cosen.paper.protocols import PROTOCOLS, protocol
from cosen.training.task import parse_split

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALL_IMAGES = "all"
"""Value for the split: count every image of the dataset."""

# Inches: minimum width of a panel, maximum length of a vertical class name, width of the count axis
MIN_PANEL, MAX_NAME, COUNT_AXIS = 1.6, 0.9, 0.5


@dataclass(frozen=True)
class ClassCounts:
    """Training images of each class of a dataset."""

    name: str
    class_names: tuple[str, ...]
    counts: tuple[int, ...]


def count_classes(
    data: str,
    *,
    split: str | None = None,
    imbalance: str | None = None,
    root: Path | None = None,
    exclude: tuple[str, ...] = (),
    seed: int = 0,
) -> ClassCounts:
    """Count the training images of each class, before validation images are held out.

    Args:
        data: A dataset as for :func:`cosen.data.open_data`, the name of a protocol such as
            ``mnist/odd-10``, or a run or study folder, for the images it was trained on.
        split: As for training, or ``all`` for every image. Other options are as for training.
    """
    path = Path(data)
    dataset, slash, _ = data.partition("/")
    names_dataset = bool(slash) and any(name.startswith(f"{dataset}/") for name in PROTOCOLS)
    if data in PROTOCOLS or (names_dataset and not path.exists()):
        if split or imbalance:
            raise InputError(
                f"{data} is a protocol with its own split: remove --split and --imbalance, or "
                f"give {dataset}"
            )
        chosen = protocol(data)
        found = open_data(chosen.dataset, root=root, exclude=exclude)
        return _count(data, found, chosen.split, chosen.imbalance, seed)
    name = path.resolve().name if path.exists() else data
    if holds_runs(path):
        if split or imbalance or exclude:
            raise InputError(
                f"{data} holds a run with its own split: remove --split, --imbalance and --exclude"
            )
        known = any_run(path).record().prepared
        return ClassCounts(name, known.class_names, tuple(known.class_counts.train.tolist()))
    found = open_data(data, root=root, exclude=exclude)
    name = f"{name}, {imbalance}" if imbalance else name
    return _count(name, found, split or "auto", imbalance, seed)


def _count(
    name: str, data: LabelledImages, split: str, imbalance: str | None, seed: int
) -> ClassCounts:
    train = data
    if split != ALL_IMAGES:
        train, _ = split_off_test(data, parse_split(split, data), seed=seed)
    if imbalance:
        train = make_imbalanced(train, parse_imbalance(imbalance), seed=seed)
    return ClassCounts(name, data.class_names, tuple(train.class_counts.tolist()))


@style.paper_style()
def draw_frequencies(
    datasets: Sequence[ClassCounts],
    *,
    by_frequency: bool = False,
    log: bool = False,
    ylabel: str = "training images",
    width: float = style.COLUMN,
) -> "Figure":
    """Draw a bar for each class and a panel for each dataset.

    Classes are labelled with their names if these fit, else with numbers from 0, as in ``odd:0.1``.
    """
    if not datasets:
        raise InputError("there is no dataset to count: give one or more")
    rows = math.ceil(len(datasets) / max(1, int(width / MIN_PANEL)))
    columns = math.ceil(len(datasets) / rows)
    panels = [_Panel(one, by_frequency, width / columns - COUNT_AXIS) for one in datasets]
    heights = [
        1.55 + max(panel.names_height for panel in panels[first : first + columns])
        for first in range(0, len(panels), columns)
    ]
    show_counts = all(panel.fits_counts for panel in panels)
    figure = style.new_figure(width, sum(heights))
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights)
    for place, axes in enumerate(grid.flat):
        if place >= len(panels):
            axes.set_axis_off()
            continue
        panels[place].draw(axes, log=log, show_counts=show_counts)
        if place % columns == 0:
            axes.set_ylabel(ylabel)
    figure.align_ylabels()
    return figure


class _Panel:
    """The bars of a dataset on an axis of ``length`` inches."""

    def __init__(self, dataset: ClassCounts, by_frequency: bool, length: float) -> None:
        counts = np.asarray(dataset.counts)
        order = np.argsort(-counts, kind="stable") if by_frequency else np.arange(len(counts))
        self.dataset, self.by_frequency, self.length = dataset, by_frequency, length
        self.counts = counts[order]
        names = [style.one_line(dataset.class_names[label]) for label in order]
        pitch = length / max(1, len(counts))  # inches from one bar to the next
        self.fits_counts = (
            max(style.text_width(str(count)) for count in dataset.counts) < 0.95 * pitch
        )
        self.names: list[str] | None = None  # None if they do not fit
        self.vertical = False
        self.names_height = style.LINE * style.SMALL * style.POINT
        if max(map(style.text_width, names)) < 0.9 * pitch:
            self.names = names
        elif pitch >= style.SMALL * style.POINT:
            self.names = [style.shortened(name, MAX_NAME) for name in names]
            self.vertical = True
            self.names_height = max(map(style.text_width, self.names))

    def draw(self, axes: "Axes", *, log: bool, show_counts: bool) -> None:
        from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

        # ranks start at 1, class numbers at 0
        places = np.arange(len(self.counts)) + (self.by_frequency and self.names is None)
        axes.bar(places, self.counts, width=0.8, color=style.BLUE)
        axes.set_xlim(places[0] - 0.7, places[-1] + 0.7)
        axes.set_ymargin(0.15 if show_counts else 0.05)
        if log:
            smallest = min((count for count in self.counts if count > 0), default=1)
            axes.set_yscale("log")
            axes.set_ylim(bottom=10.0 ** math.floor(math.log10(smallest / 1.5)))
            axes.yaxis.set_minor_locator(NullLocator())
        else:
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda n, _: f"{n / 1000:g}k" if n >= 10_000 else f"{n:g}")
        )
        for place, count in zip(places, self.counts, strict=True) if show_counts else ():
            axes.annotate(
                str(count),
                (place, count),
                xytext=(0, 1),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=style.SMALL,
            )
        if self.names is not None:
            turn = 90 if self.vertical else 0
            axes.set_xticks(places, self.names, rotation=turn, parse_math=False)
            axes.tick_params(axis="x", length=0)
            axes.set_xlabel("class, by frequency" if self.by_frequency else "class")
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set_xlabel("rank of the class" if self.by_frequency else "class number")
        least, most = self.counts.min(), self.counts.max()
        spread = f"{most} each" if least == most else f"{least}–{most}"
        facts = f"{len(self.counts)} classes, {spread}"
        style.put_title(axes, self.dataset.name, facts, width=self.length + 0.05)
