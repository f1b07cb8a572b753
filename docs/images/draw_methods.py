"""Draw the pictures of the method pages with the code of the methods.

    python docs/images/draw_methods.py              # all
    python docs/images/draw_methods.py smote focal

writes ``docs/images/methods/NAME.svg``. Text is grey and the background is transparent, so that a
picture suits light and dark pages. The same versions of the libraries write the same bytes.
"""

import argparse
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn

from cosen import AdaptiveCosts, CostLearner
from cosen import functional as F
from cosen.functional.rebalancing import ldam_margins
from cosen.methods import NetworkMethod, Setting, make_method
from cosen.methods.resampling import in_lower_approximation
from cosen.networks.network import Outputs

FOLDER = Path(__file__).parent / "methods"
GREY, FREQUENT, RARE, OTHER = "#7d838d", "#4a90d9", "#e8833a", "#3fa77a"
COLOURS = (FREQUENT, OTHER, "#a678d2", RARE)
COSTS = LinearSegmentedColormap.from_list("costs", ["#1d4f86", "#6aa5de", "#dcebf9"])
COUNTS = torch.tensor([600, 300, 80, 20])
NAMES = ("A", "B", "C", "D")
GAUSSIANS = (((0.0, 0.0), (1.2, 0.9)), ((2.2, 0.5), (0.8, 0.8)))
"""Centre and standard deviations of the two classes of the toy data."""

WIDTH, HEIGHT = (-3.9, 4.6), (-2.7, 2.9)
"""The part of the plane that is drawn."""

STYLE = {
    "svg.hashsalt": "cosen",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "figure.figsize": (6.6, 2.8),
    "figure.constrained_layout.use": True,
    "legend.frameon": False,
    "savefig.transparent": True,
    "lines.linewidth": 1.8,
} | dict.fromkeys(("text.color", "xtick.color", "ytick.color"), GREY)
STYLE |= {f"axes.{part}color": GREY for part in ("edge", "label", "title")}

PICTURES: dict[str, Callable[[], Figure]] = {}
"""What draws the picture of each method."""

Scores = Callable[[Tensor], Tensor]
"""Maps points ``(N, 2)`` to class scores ``(N, 2)``."""


def picture(name: str) -> Callable[[Callable[[], Figure]], Callable[[], Figure]]:
    """Register a function that draws the picture of a method."""

    def registered(function: Callable[[], Figure]) -> Callable[[], Figure]:
        PICTURES[name] = function
        return function

    return registered


@cache
def toy() -> tuple[Tensor, Tensor]:
    """Return 240 samples of a frequent class 0 and 24 of a rare class 1."""
    return _drawn(240, 24, seed=3)


def _drawn(*counts: int, seed: int) -> tuple[Tensor, Tensor]:
    random = np.random.default_rng(seed)
    points = [
        random.normal(centre, spread, (count, 2))
        for count, (centre, spread) in zip(counts, GAUSSIANS, strict=True)
    ]
    labels = torch.tensor([0] * counts[0] + [1] * counts[1])
    return torch.tensor(np.concatenate(points), dtype=torch.float32), labels


def toy_densities(points: Tensor) -> Tensor:
    """Return the log density of each class, up to a constant."""
    found = []
    for centre, spread in GAUSSIANS:
        distances = (points - torch.tensor(centre)) / torch.tensor(spread)
        found.append(-distances.square().sum(1) / 2 - torch.tensor(spread).log().sum())
    return torch.stack(found, 1)


def toy_setting(**known: Any) -> Setting:
    return Setting(toy()[1].bincount(), ("frequent", "rare"), **known)


def trained(method: NetworkMethod, network: nn.Module | None = None, steps: int = 400) -> nn.Module:
    """Train a network on the toy data with the loss of a method: a linear one if none is given."""
    points, labels = toy()
    torch.manual_seed(0)
    network = nn.Linear(2, 2) if network is None else network
    loss = method.make_loss(toy_setting())
    learned = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=0.05)
    draws = method.class_draws(toy_setting())
    chances = None if draws is None else torch.from_numpy(draws)[labels]
    for _ in range(steps):
        used = slice(None) if chances is None else chances.multinomial(len(labels), True)
        optimizer.zero_grad()
        loss(network(points[used]), labels[used]).backward()
        optimizer.step()
    return network.requires_grad_(False)


@cache
def toy_baseline() -> nn.Module:
    return trained(make_method("baseline"))


def draw_toy(axes: Axes, *, sizes: Sequence[float] = (9, 14), alpha: float = 0.75) -> None:
    points, labels = toy()
    for label, (colour, name) in enumerate(((FREQUENT, "frequent"), (RARE, "rare"))):
        own = points[labels == label]
        axes.scatter(
            *own.T,
            s=sizes[label],
            color=colour,
            alpha=0.85 if label else alpha,
            linewidths=0,
            label=f"{name} class, {len(own)} samples",
        )
    bare(axes)
    axes.set(xlim=WIDTH, ylim=HEIGHT)


def draw_boundary(axes: Axes, scores: Scores, name: str, colour: str, style: str = "-") -> None:
    """Draw where two scores are equal, with the recalls on 4000 new samples in the legend."""
    xs, ys = np.meshgrid(np.linspace(*WIDTH, 120), np.linspace(*HEIGHT, 84))
    grid = torch.tensor(np.stack([xs.ravel(), ys.ravel()], 1), dtype=torch.float32)
    found = scores(grid)
    level = (found[:, 1] - found[:, 0]).reshape(xs.shape)
    axes.contour(xs, ys, level, levels=[0], colors=[colour], linestyles=[style], linewidths=1.8)
    points, labels = _drawn(2000, 2000, seed=4)
    right = scores(points).argmax(1) == labels
    first, second = (100 * float(right[labels == label].float().mean()) for label in (0, 1))
    text = f"{name}\nrecall: frequent {first:.0f} %, rare {second:.0f} %"
    axes.plot([], [], style, color=colour, label=text)


def toy_panel(**how: Any) -> tuple[Figure, Axes]:
    """Return a figure with the toy data on the left and room for a legend on the right."""
    figure, (axes, aside) = plt.subplots(1, 2, width_ratios=[1.15, 1])
    draw_toy(axes, **how)
    aside.axis("off")
    return figure, axes


def finish_toy(figure: Figure, axes: Axes) -> Figure:
    figure.axes[1].legend(*axes.get_legend_handles_labels(), loc="center left", labelspacing=0.9)
    return figure


def boundaries(*others: tuple[str, str, Scores]) -> Figure:
    """Compare boundaries, each with a name and a colour, with that of the baseline."""
    figure, axes = toy_panel()
    draw_boundary(axes, toy_baseline(), "baseline", GREY, "--")
    for name, colour, scores in others:
        draw_boundary(axes, scores, name, colour)
    return finish_toy(figure, axes)


@cache
def digits() -> tuple[dict[str, tuple[Tensor, Tensor]], tuple[str, ...]]:
    """Return training and validation samples of the digits 2, 3, 8, 9, with few 3 and 9."""
    images, labels = map(torch.tensor, load_digits(return_X_y=True))
    shown = (2, 3, 8, 9)
    kept = {"train": [], "val": []}
    for digit in shown:
        own = (labels == digit).nonzero().squeeze(1)
        kept["train"].append(own[: 12 if digit % 2 else 120])
        kept["val"].append(own[120:])
    parts = {}
    for part, rows in kept.items():
        chosen = torch.cat(rows)
        classes = torch.tensor([shown.index(int(digit)) for digit in labels[chosen]])
        parts[part] = images[chosen].float() / 16, classes
    return parts, tuple(map(str, shown))


def train_digits(loss: nn.Module, epochs: int = 30) -> tuple[nn.Module, list[Any]]:
    """Train a small network; return it and the steps of learned costs."""
    parts, names = digits()
    (images, labels), (val_images, val_labels) = parts["train"], parts["val"]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(names)))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    steps = []
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(32):
            optimizer.zero_grad()
            loss(network(images[batch]), labels[batch]).backward()
            optimizer.step()
        if hasattr(loss, "step"):
            steps.append(loss.step(network(val_images), val_labels))
    return network.requires_grad_(False), steps


@cache
def digits_baseline() -> tuple[nn.Sequential, Outputs]:
    """Return the network of the baseline after a few epochs, and its validation outputs."""
    network, _ = train_digits(nn.CrossEntropyLoss(), epochs=8)
    val_images, val_labels = digits()[0]["val"]
    features = network[:2](val_images)
    return network, Outputs(network[2](features), features, val_labels)


def digits_setting() -> Setting:
    parts, names = digits()
    return Setting(parts["train"][1].bincount(), names, baseline=digits_baseline()[1])


def bare(axes: Axes) -> None:
    axes.set(xticks=[], yticks=[])
    for side in axes.spines.values():
        side.set_visible(False)


def draw_matrix(
    axes: Axes, matrix: Tensor, names: Iterable[str], title: str, *, low: float, high: float
) -> None:
    """Draw a matrix with its numbers, row = true class."""
    names = list(names)
    axes.imshow(matrix.numpy(), cmap=COSTS, vmin=low, vmax=high, interpolation="none")
    for row, values in enumerate(matrix.tolist()):
        for column, value in enumerate(values):
            is_dark = value < low + 0.45 * (high - low)
            text = f"{value:.2f}" if high <= 1 else f"{value + 0.0:.1f}"
            colour = "white" if is_dark else "#123a63"
            axes.text(column, row, text, ha="center", va="center", size=8, color=colour)
    bare(axes)
    places = range(len(names))
    axes.set_xticks(places, names)
    axes.set_yticks(places, names)
    axes.tick_params(length=0)
    axes.set(title=title, xlabel="output", ylabel="true class")


def with_counts(names: Iterable[str], counts: Tensor) -> list[str]:
    return [f"{name} ({count})" for name, count in zip(names, counts, strict=True)]


def margins(costs: Tensor) -> Tensor:
    """By how much the true class must win against each output: log ξ[p, n] − log ξ[p, p]."""
    return (costs.log() - costs.log().diagonal()[:, None]).clamp(min=-9)


def curve(axes: Axes, x: Tensor, y: Tensor, name: str, colour: str, style: str = "-") -> None:
    axes.plot(x.numpy(), y.numpy(), style, color=colour, label=name)


@picture("baseline")
def draw_baseline() -> Figure:
    return boundaries(("best for equally important classes", OTHER, toy_densities))


@picture("cosen")
def draw_cosen() -> Figure:
    parts, names = digits()
    costs = AdaptiveCosts(parts["train"][1].bincount())
    _, steps = train_digits(costs)
    figure, (left, right) = plt.subplots(1, 2, width_ratios=[1, 1.2])
    shown = with_counts(names, parts["train"][1].bincount())
    draw_matrix(left, margins(costs.costs), shown, "margins after training", low=-1, high=7)
    epochs = torch.arange(1, len(steps) + 1)
    curve(right, epochs, torch.tensor([step.tau for step in steps]), "strength τ", FREQUENT)
    curve(right, epochs, torch.tensor([step.margin for step in steps]), "margin m", RARE)
    right.set(xlabel="epoch", title="learned after each epoch", ylim=(0, None))
    right.legend()
    return figure


@picture("cosen-paper")
def draw_cosen_paper() -> Figure:
    parts, names = digits()
    learner = CostLearner(parts["train"][1].bincount())
    _, steps = train_digits(learner, epochs=6)
    figure, (left, middle, right) = plt.subplots(1, 3)
    frequencies = F.frequency_matrix(learner.frequencies)
    for axes, matrix, title, high in (
        (left, frequencies, "class frequencies H", 0.6),
        (middle, steps[-1].confusion, "confusion rates R", 1),
        (right, steps[-1].target_costs, "target costs T", 0.6),
    ):
        draw_matrix(axes, matrix, names, title, low=0, high=high)
    return figure


def _output_losses(loss: Callable[..., Tensor], name: str) -> Figure:
    """Loss and gradient of the true output for costs of 1, 0.3 and 0.05."""
    outputs = torch.linspace(-4, 6, 201, requires_grad=True)
    figure, panels = plt.subplots(1, 2)
    target = torch.zeros(len(outputs), dtype=torch.long)
    for cost, colour in ((1.0, FREQUENT), (0.3, OTHER), (0.05, RARE)):
        costs = torch.tensor([[cost, 1.0], [1.0, 1.0]])
        logits = torch.stack([outputs, torch.full_like(outputs, -100)], 1)
        losses = loss(logits, target, costs, reduction="none")
        (gradient,) = torch.autograd.grad(losses.sum(), outputs)
        for axes, values in zip(panels, (losses.detach(), -gradient), strict=True):
            curve(axes, outputs.detach(), values, f"cost {cost:g}", colour)
    for axes, title in zip(panels, (name, "size of the gradient"), strict=True):
        axes.set(xlabel="output of the true class", title=title)
    panels[1].legend()
    return figure


@picture("cosen-hinge")
def draw_cosen_hinge() -> Figure:
    return _output_losses(F.cost_sensitive_hinge, "hinge loss")


@picture("cosen-mse")
def draw_cosen_mse() -> Figure:
    return _output_losses(F.cost_sensitive_mse, "squared error")


@picture("fixed-h")
def draw_fixed_h() -> Figure:
    costs = make_method("fixed-h").make_loss(Setting(COUNTS, NAMES)).costs
    figure, (left, right) = plt.subplots(1, 2)
    names = with_counts(NAMES, COUNTS)
    draw_matrix(left, costs, names, "costs H", low=0, high=1)
    draw_matrix(right, margins(costs), names, "margins: log ratio to the diagonal", low=0, high=4)
    return figure


def _statistic(name: str, title: str) -> Figure:
    """A statistic of the baseline on digits, and the costs that follow from it."""
    method, setting = make_method(name), digits_setting()
    figure, (left, right) = plt.subplots(1, 2)
    names = with_counts(setting.class_names, setting.class_counts)
    draw_matrix(left, method.statistic(setting), names, title, low=0, high=1)
    draw_matrix(right, method.make_loss(setting).costs, names, "costs ξ", low=0, high=1)
    return figure


@picture("fixed-s")
def draw_fixed_s() -> Figure:
    return _statistic("fixed-s", "separability S")


@picture("fixed-m")
def draw_fixed_m() -> Figure:
    return _statistic("fixed-m", "confusion rates R of the baseline")


@picture("fixed-costs")
def draw_fixed_costs() -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costs.csv"
        path.write_text("true,frequent,rare\nfrequent,1,1\nrare,1,0.05\n")
        method = make_method("fixed-costs", {"costs": str(path)})
        costs, network = method.make_loss(toy_setting()).costs, trained(method)
    figure, (left, middle, right) = plt.subplots(1, 3, width_ratios=[1, 1.3, 1.1])
    draw_matrix(left, costs, ["frequent", "rare"], "costs ξ", low=0, high=1)
    draw_toy(middle)
    draw_boundary(middle, toy_baseline(), "all costs 1", GREY, "--")
    draw_boundary(middle, network, "these costs", RARE)
    right.axis("off")
    right.legend(*middle.get_legend_handles_labels(), loc="center left", labelspacing=0.9)
    return figure


def toy_features() -> tuple[np.ndarray, np.ndarray]:
    points, labels = toy()
    return points.numpy(), labels.numpy()


def draw_synthetic(axes: Axes, points: np.ndarray, name: str, colour: str) -> None:
    text = f"{len(points)} synthetic samples{name}"
    axes.scatter(*points.T, s=12, marker="x", color=colour, linewidths=0.8, zorder=0.9, label=text)


@picture("smote")
def draw_smote() -> Figure:
    features, labels = toy_features()
    found, _ = make_method("smote").resample(features, labels, toy_setting())
    figure, axes = toy_panel()
    draw_synthetic(axes, found[len(features) :], "", OTHER)
    return finish_toy(figure, axes)


@picture("rus")
def draw_rus() -> Figure:
    found, labels = make_method("rus").resample(*toy_features(), toy_setting())
    used = found[labels == 0]
    figure, axes = toy_panel(alpha=0.25)
    text = f"{len(used)} of the frequent class are used"
    axes.scatter(*used.T, s=14, color=FREQUENT, linewidths=0, label=text)
    return finish_toy(figure, axes)


@picture("smote-rsb")
def draw_smote_rsb() -> Figure:
    (features, labels), setting = toy_features(), toy_setting()
    more, more_labels = make_method("smote").resample(features, labels, setting)
    start, method = len(features), make_method("smote-rsb")
    kept = in_lower_approximation(
        more[start:], more_labels[start:], features, labels, similarity=method.similarity
    )
    found, _ = method.resample(features, labels, setting)
    assert np.array_equal(found[start:], more[start:][kept])
    figure, axes = toy_panel()
    draw_synthetic(axes, more[start:][kept], " kept", OTHER)
    draw_synthetic(axes, more[start:][~kept], " removed", GREY)
    return finish_toy(figure, axes)


def _classifier(name: str) -> Scores:
    fitted = make_method(name).fit(*toy_features(), toy_setting())
    return lambda points: torch.from_numpy(fitted(points.numpy()))


@picture("wsvm")
def draw_wsvm() -> Figure:
    return boundaries(("wsvm", RARE, _classifier("wsvm")))


@picture("wrf")
def draw_wrf() -> Figure:
    return boundaries(("wrf", RARE, _classifier("wrf")))


@picture("sosr")
def draw_sosr() -> Figure:
    estimates = torch.linspace(-3, 4, 141)
    target = torch.zeros(len(estimates), dtype=torch.long)
    figure, (left, right) = plt.subplots(1, 2)
    costs = torch.tensor([[0.0, 1.0], [4.0, 0.0]])
    far = torch.full_like(estimates, 50.0)  # its part of the loss is 0
    for decisions, name, colour in (
        ((estimates, far), "right decision, cost 0", FREQUENT),
        ((-far, estimates), "wrong decision, cost 1", RARE),
    ):
        logits = -torch.stack(decisions, 1)
        losses = F.smooth_one_sided_regression(logits, target, costs, reduction="none")
        curve(left, estimates, losses, name, colour)
    left.set(xlabel="estimated cost r", title="loss of a decision", ylim=(0, 6.5))
    left.legend()
    drawn = make_method("sosr").make_loss(Setting(COUNTS, NAMES)).misclassification_costs
    names = with_counts(NAMES, COUNTS)
    draw_matrix(right, drawn, names, "costs drawn for four classes", low=0, high=4)
    return figure


@picture("class-weights")
def draw_class_weights() -> Figure:
    method = make_method("class-weights")
    weights = method.make_loss(toy_setting()).loss.weight
    figure, axes = toy_panel(sizes=(9 * weights).tolist())
    draw_boundary(axes, toy_baseline(), "baseline", GREY, "--")
    draw_boundary(axes, trained(method), "class-weights", RARE)
    return finish_toy(figure, axes)


@picture("weighted-sampling")
def draw_weighted_sampling() -> Figure:
    figure, (left, right) = plt.subplots(1, 2)
    places = np.arange(len(COUNTS))
    for shift, power, colour in ((-0.27, 0, GREY), (0, 0.5, OTHER), (0.27, 1, RARE)):
        method = make_method("weighted-sampling", {"power": power})
        drawn = method.class_draws(Setting(COUNTS, NAMES)) * COUNTS.numpy()
        shares = drawn / drawn.sum()
        left.bar(places + shift, 100 * shares, 0.25, color=colour, label=f"power {power:g}")
        times = shares * int(COUNTS.sum()) / COUNTS.numpy()
        right.bar(places + shift, times, 0.25, color=colour)
    left.set(title="share of a batch in per cent")
    right.set(title="draws of one image per epoch")
    for axes in (left, right):
        axes.set_xticks(places, with_counts(NAMES, COUNTS))
        axes.tick_params(axis="x", length=0)
    left.legend()
    return figure


@picture("focal")
def draw_focal() -> Figure:
    chances = torch.linspace(0.01, 0.99, 99)
    logits = torch.stack([chances.log(), (1 - chances).log()], 1)
    target = torch.zeros(len(chances), dtype=torch.long)
    figure, (left, right) = plt.subplots(1, 2)
    plain = F.focal_loss(logits, target, gamma=0, reduction="none")
    for gamma, colour in ((0, GREY), (1, OTHER), (2, FREQUENT), (5, RARE)):
        losses = F.focal_loss(logits, target, gamma=gamma, reduction="none")
        curve(left, chances, losses, f"γ = {gamma}", colour)
        curve(right, chances, losses / plain, f"γ = {gamma}", colour)
    left.set(xlabel="probability of the true class", title="loss", ylim=(0, 4))
    right.set(xlabel="probability of the true class", title="ratio to cross-entropy")
    left.legend()
    return figure


@picture("class-balanced")
def draw_class_balanced() -> Figure:
    counts = torch.logspace(0, 4, 81)
    figure, axes = plt.subplots()
    for beta, colour in ((0.9, GREY), (0.99, OTHER), (0.999, FREQUENT), (0.9999, RARE)):
        weights = F.class_balanced_weights(counts, beta=beta)
        curve(axes, counts, weights / weights[0], f"β = {beta:g}", colour)
    curve(axes, counts, 1 / counts, "1 / n", GREY, ":")
    axes.set(xscale="log", yscale="log", xlabel="training images of the class, n")
    axes.set(title="weight, relative to a class with one image")
    axes.legend()
    return figure


@picture("ldam-drw")
def draw_ldam_drw() -> Figure:
    method, setting = make_method("ldam-drw"), Setting(COUNTS, NAMES)
    counts = torch.logspace(1, 4, 61)
    figure, (left, right) = plt.subplots(1, 2)
    found = ldam_margins(counts, max_margin=method.max_margin, scale=1).matrix
    curve(left, counts, -found.diagonal(), "", FREQUENT)
    left.set(xscale="log", ylim=(0, 0.55), xlabel="training images of the class")
    left.set(title="margin in cosines")
    loss, weights, progress = method.make_loss(setting), [], torch.linspace(0, 1, 101)
    for share in progress.tolist():
        method.begin_epoch(loss, setting, share)
        weights.append(loss.loss.weight.clone())
    for name, count, values, colour in zip(
        NAMES, COUNTS, torch.stack(weights).T, COLOURS, strict=True
    ):
        curve(right, progress, values, f"{name} ({count})", colour)
    right.set(yscale="log", xlabel="share of the epochs", title="class weight")
    right.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"])
    right.minorticks_off()
    right.legend()
    return figure


@picture("balanced-softmax")
def draw_balanced_softmax() -> Figure:
    return boundaries(
        *(
            (f"τ = {tau:g}", colour, trained(make_method("balanced-softmax", {"tau": tau})))
            for tau, colour in ((0.5, OTHER), (1, RARE))
        )
    )


@picture("logit-adjustment")
def draw_logit_adjustment() -> Figure:
    adjusted = []
    for tau, colour in ((0.5, OTHER), (1, RARE)):
        output = nn.Linear(2, 2)
        output.load_state_dict(toy_baseline().state_dict())
        make_method("logit-adjustment", {"tau": tau}).adjust(output, toy_setting())
        adjusted.append((f"τ = {tau:g}", colour, output.requires_grad_(False)))
    return boundaries(*adjusted)


@picture("crt")
def draw_crt() -> Figure:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
    before = trained(make_method("baseline"), network, steps=150)
    after = trained(make_method("crt"), nn.Sequential(*before[:2], nn.Linear(4, 2)))
    figure, axes = toy_panel()
    draw_boundary(axes, before, "baseline", GREY, "--")
    draw_boundary(axes, after, "new output layer", RARE)
    return finish_toy(figure, axes)


@picture("tau-norm")
def draw_tau_norm() -> Figure:
    network, _ = digits_baseline()
    setting = digits_setting()
    figure, axes = plt.subplots()
    places = np.arange(len(setting.class_names))
    for shift, tau, colour in ((-0.27, 0, GREY), (0, 0.5, OTHER), (0.27, 1, RARE)):
        output = nn.Linear(32, len(places))
        output.load_state_dict(network[2].state_dict())
        make_method("tau-norm", {"tau": tau}).adjust(output, setting)
        norms = torch.linalg.vector_norm(output.weight.detach(), dim=1)
        axes.bar(places + shift, norms.numpy(), 0.25, color=colour, label=f"τ = {tau:g}")
    axes.set_xticks(places, with_counts(setting.class_names, setting.class_counts))
    axes.tick_params(axis="x", length=0)
    axes.set(title="norm of the class weights", xlabel="digit (training images)")
    axes.legend()
    return figure


def draw(name: str, folder: Path) -> Path:
    """Write the picture of a method."""
    path = folder / f"{name}.svg"
    with mpl.rc_context(STYLE):
        figure = PICTURES[name]()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
    path.write_text(smaller(path.read_text()))
    return path


def smaller(svg: str) -> str:
    """Round positions to two decimals, which also hides the last bits of the training.

    Removes comments, and writes the style of many markers once, in their group.
    """

    def rounded(tag: re.Match[str]) -> str:
        return re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag[0])

    def styled(group: re.Match[str]) -> str:
        style = f' style="{group[2]}"'
        return group[1][:-1] + style + ">" + group[0][len(group[1]) :].replace(style, "")

    svg = re.sub(r"<[^>]*>", rounded, re.sub(r" *<!--.*?-->\n", "", svg))
    marker = r'\s*<use [^>]*style="{}"/>'
    first, same = marker.format('([^"]*)'), marker.format(r"\2")
    return re.sub(rf'(<g clip-path="[^"]*">)(?={first})(?:{same})+', styled, svg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", help="default: all", metavar="METHOD")
    names = parser.parse_args().methods or list(PICTURES)
    for name in names:
        if name not in PICTURES:
            parser.error(f"there is no method {name!r}: see cosen methods")
    torch.set_num_threads(1)
    for name in names:
        print(draw(name, FOLDER))


if __name__ == "__main__":
    main()
