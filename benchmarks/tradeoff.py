"""Trade-off curves of all methods of finished comparisons: accuracy against mean recall on test.

Each model is used under class shares h^(1 - t), from the training shares h (t = 0) to equal ones
(t = 1) and beyond, as with ``--prior``. So whole curves are compared, not the point at which a
method happens to stand. Prints a Markdown table: the highest accuracy where mean recall is at
least that of balanced softmax as trained ("-": in some seed the curve does not get there), the
same with half a point and a point less recall, and the highest mean recall of the curve. Usage:

    python benchmarks/tradeoff.py studies/lesions studies/corals
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import cosen

PLACES = torch.linspace(-0.5, 1.75, 46)
REFERENCE = "balanced-softmax"
BELOW = (0.0, 0.005, 0.01)


def curve(run: cosen.Run) -> np.ndarray:
    """Return mean recall and accuracy at each place, shape ``(places, 2)``."""
    calibration, test = run.record.calibration, run.folder.predictions()["test"]
    shares = calibration.training_shares
    classes = torch.unique(test.target)
    points = []
    for place in PLACES:
        moved = shares ** (1 - float(place))
        right = calibration.logits(test.logits, moved / moved.sum()).argmax(1) == test.target
        recalls = [right[test.target == one].double().mean() for one in classes]
        points.append([float(torch.stack(recalls).mean()), float(right.double().mean())])
    return np.array(points)


def accuracy_at(points: np.ndarray, recall: float) -> float:
    """Return the highest accuracy with at least this mean recall; NaN if there is none."""
    reached = points[points[:, 0] >= recall - 1e-9, 1]
    return float(reached.max()) if len(reached) else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="+", type=Path)
    given = parser.parse_args()
    print("| study | method | accuracy at this recall | 0.5 points less | 1 point less | ", end="")
    print("highest mean recall |")
    print("|---|---|---|---|---|---|", flush=True)
    for path in given.studies:
        study = cosen.load(path)
        assert isinstance(study, cosen.Study)
        seeds = study.folder.record().seeds
        figures: dict[str, list[list[float]]] = {}
        for seed in seeds:
            wanted = study.run(REFERENCE, seed).metrics.mean_recall
            for method in study.folder.finished_runs():
                points = curve(study.run(method, seed))
                own = [accuracy_at(points, wanted - less) for less in BELOW]
                figures.setdefault(method, []).append([*own, points[:, 0].max()])
        ordered = sorted(figures, key=lambda name: -np.mean(figures[name], 0)[-1])
        for method in ordered:
            found = 100 * np.array(figures[method])
            pairs = zip(found.mean(0), found.std(0, ddof=1), strict=True)
            cells = ["-" if np.isnan(mean) else f"{mean:.1f} ± {sd:.1f}" for mean, sd in pairs]
            print(f"| {path.name} | `{method}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
