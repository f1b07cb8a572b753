"""Which test images to look at: those that one side got right and the other wrong.

The pictures are those that runs keep (:mod:`cosen.training.thumbnails`): of what they got wrong,
so what was gained is taken from the baseline's and what was lost from the chosen method's.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosen.report.run_data import Shown, ShownRun
from cosen.training.thumbnails import (
    Thumbnail,
    rarity_ranks,
    read_thumbnails,
    taken_in_turns,
)

KINDS = ("gained", "lost", "wrong", "right")
"""Right and wrong are those that both sides get so, where there are two."""

MOST = 60
"""Pictures of a kind."""

AT_ONCE = 3
"""Of a class, before other classes get a turn."""

EXAMPLES_OF_A_CLASS, MOST_EXAMPLES = 2, 120
"""Pictures of classes that have none of another kind."""


@dataclass(frozen=True, eq=False)
class _SeedPictures:
    """What the runs of one seed say, and the pictures that they keep.

    Attributes:
        seed: The seed.
        chosen: The chosen method's run.
        baseline: The baseline's, where there is one.
        pictures: By role, by row in the test split; None where the run keeps none.
    """

    seed: int
    chosen: ShownRun
    baseline: ShownRun | None
    pictures: dict[str, dict[int, Thumbnail] | None]

    def rows(self, kind: str) -> NDArray[np.intp]:
        """The test images of a kind."""
        right = self.chosen.right
        other = right if self.baseline is None else self.baseline.right
        masks = {
            "gained": right & ~other,
            "lost": ~right & other,
            "wrong": ~right & ~other,
            "right": right & other,
        }
        return np.flatnonzero(masks[kind])

    def thumbnail(self, row: int) -> Thumbnail | None:
        for pictures in self.pictures.values():
            if pictures is not None and row in pictures:
                return pictures[row]
        return None


@dataclass(frozen=True)
class _Candidate:
    """A picture that could be shown, and how sure the mistake was that it shows."""

    label: int
    name: str
    sureness: float
    entry: dict[str, Any]


def gallery(shown: Shown) -> dict[str, Any]:
    """The pictures of each kind, rare classes first, and a note on how many there were.

    ``examples`` are of classes that have no picture among those, of any kind.
    """
    seeds = [_read(shown, seed) for seed in shown.seeds]
    kinds = ("wrong",) if shown.baseline is None else ("gained", "lost")
    ranks = rarity_ranks(shown.train_counts.tolist())

    def candidates(kind: str) -> list[_Candidate]:
        return [one for seed in seeds for one in _candidates(seed, kind)]

    found: dict[str, list[dict[str, Any]]] = {"gained": [], "lost": [], "wrong": []}
    for kind in kinds:
        surest_first = sorted(candidates(kind), key=lambda one: -one.sureness)
        found[kind] = _taken(surest_first, ranks, most=MOST)
    pictured = {picture["label"] for pictures in found.values() for picture in pictures}
    others = [one for kind in KINDS for one in candidates(kind) if one.label not in pictured]
    examples = _taken(others, ranks, most=MOST_EXAMPLES, of_a_class=EXAMPLES_OF_A_CLASS)
    totals = {kind: sum(len(seed.rows(kind)) for seed in seeds) for kind in kinds}
    return {**found, "examples": examples, "note": _note(shown, seeds, totals, found)}


def _read(shown: Shown, seed: int) -> _SeedPictures:
    runs = {role: side.runs[seed] for role, side in shown.sides()}
    pictures = {role: read_thumbnails(run.folder) for role, run in runs.items()}
    return _SeedPictures(seed, runs["chosen"], runs.get("baseline"), pictures)


def _candidates(seed: _SeedPictures, kind: str) -> Iterator[_Candidate]:
    for row in seed.rows(kind).tolist():
        thumbnail = seed.thumbnail(row)
        if thumbnail is None:
            continue
        chosen = _decision(seed.chosen, row)
        baseline = None if seed.baseline is None else _decision(seed.baseline, row)
        mistaken = baseline if kind == "gained" and baseline is not None else chosen
        label, name = int(seed.chosen.target[row]), _shown_name(seed.chosen.names[row])
        entry = {
            "image": thumbnail.image,
            "width": thumbnail.width,
            "height": thumbnail.height,
            "name": name,
            "seed": seed.seed,
            "label": label,
            "baseline": baseline,
            "chosen": chosen,
        }
        yield _Candidate(label, name, mistaken["score"], entry)


def _decision(run: ShownRun, row: int) -> dict[str, Any]:
    label = int(run.predicted[row])
    return {"label": label, "score": round(float(run.probabilities[row, label]), 4)}


def _taken(
    candidates: Iterable[_Candidate],
    ranks: NDArray[Any],
    *,
    most: int,
    of_a_class: int | None = None,
) -> list[dict[str, Any]]:
    """As many as are shown; an image that several seeds tested on is shown once."""
    distinct: dict[int, dict[str, dict[str, Any]]] = {}
    for one in candidates:
        distinct.setdefault(one.label, {}).setdefault(one.name, one.entry)
    entries = [e for by_name in distinct.values() for e in [*by_name.values()][:of_a_class]]
    own_ranks = ranks[[entry["label"] for entry in entries]]
    return [entries[place] for place in taken_in_turns(own_ranks, most, at_once=AT_ONCE)]


def _shown_name(name: str) -> str:
    """A name that does not tell where on a machine a file was."""
    path = PurePath(name)
    return "/".join(("…", *path.parts[-2:])) if path.is_absolute() else name


def _note(
    shown: Shown,
    seeds: Sequence[_SeedPictures],
    totals: dict[str, int],
    found: dict[str, list[dict[str, Any]]],
) -> str:
    over = f" over {len(seeds)} seeds" if len(seeds) > 1 else ""
    chosen = shown.chosen.name
    if shown.baseline is None:
        told = f"{chosen} got {_images(totals['wrong'])}{over} wrong; {len(found['wrong'])} shown."
    else:
        told = (
            f"{chosen} got {_images(totals['gained'])}{over} right that {shown.baseline.name} got "
            f"wrong ({len(found['gained'])} shown), and {totals['lost']} the other way round "
            f"({len(found['lost'])} shown)."
        )
    absent = [pictures is None for seed in seeds for pictures in seed.pictures.values()]
    if all(absent):
        what = "The run was" if len(absent) == 1 else "The runs were"
        return f"{told} {what} made before pictures were kept; train again to see them."
    if any(absent):
        return f"{told} Some runs were made before pictures were kept. Rare classes come first."
    return f"{told} Rare classes come first."


def _images(count: int) -> str:
    return f"{count} test image{'s' * (count != 1)}"
