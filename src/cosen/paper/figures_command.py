"""``cosen figures``: draw the paper's figures."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosen.cli.options import DataRoot, Exclude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN = 3.5
FOLDER = Path("figures")

figures_app = typer.Typer(
    name="figures",
    help="Draw the paper's figures from your data, runs and studies, as SVG and PNG.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Out = Annotated[Path, typer.Option("--out", help="Output folder.")]
Format = Annotated[str, typer.Option("--format", help="svg, png, pdf, comma-separated.")]
Width = Annotated[
    float, typer.Option("--width", help="Inches: 3.5 is one column of a page, 7.16 is two.")
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods of a study, comma-separated; default: the baseline and the chosen method."
    ),
]
Folders = Annotated[list[Path], typer.Argument(help="Run or study folders.", metavar="FOLDER...")]


@figures_app.command()
def frequencies(
    data: Annotated[
        list[str],
        typer.Argument(
            help="Datasets as for training, protocols (mnist/odd-10), run or study folders.",
            metavar="DATA...",
        ),
    ],
    split: Annotated[
        str | None,
        typer.Option(help="official, fraction:0.6, fold:1/3, ...; all counts every image."),
    ] = None,
    imbalance: Annotated[str | None, typer.Option(help="odd:0.1, longtail:100, ...")] = None,
    by_frequency: Annotated[
        bool, typer.Option("--by-frequency", help="Sort classes by count, largest first.")
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Use a logarithmic count axis.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    exclude: Exclude = None,
    data_root: DataRoot = None,
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw training images by class, datasets side by side.

    Figures intro and exp_set of the paper.

    Examples:

        cosen figures frequencies photos/ --by-frequency

        cosen figures frequencies mnist/odd-10 rsmas ham10000/3-fold --width 7.16
    """
    from cosen.paper.figures.class_counts import ALL_IMAGES, count_classes, draw_frequencies

    def draw() -> "Figure":
        options: dict[str, Any] = {"split": split, "imbalance": imbalance, "seed": seed}
        options |= {"root": data_root, "exclude": tuple(exclude or ())}
        counts = [count_classes(one, **options) for one in data]
        ylabel = "images" if split == ALL_IMAGES else "training images"
        return draw_frequencies(
            counts, by_frequency=by_frequency, log=log, ylabel=ylabel, width=width
        )

    _draw_and_write({"frequencies": draw}, out, format_, width)


@figures_app.command()
def confusion(
    folders: Folders,
    methods: Methods = None,
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw confusion matrices on test.

    Figure CM of the paper, in per cent of each class. For a study, draw the baseline and the
    chosen method over all seeds. If the study chose the baseline, also draw cosen.

    Examples:

        cosen figures confusion studies/photos

        cosen figures confusion studies/photos --methods baseline,cosen,smote --width 7.16

        cosen figures confusion runs/photos-baseline-0 runs/photos-cosen-0
    """
    draw = partial(_confusion, folders, methods=methods, width=width)
    _draw_and_write({"confusion": draw}, out, format_, width)


@figures_app.command()
def errors(
    folders: Folders,
    methods: Methods = None,
    measure: Annotated[
        str, typer.Option(help="Validation error: overall, or balanced (mean over classes).")
    ] = "overall",
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw training and validation errors by epoch.

    Figure CIFAR_error of the paper. For a study, draw means over seeds, with a band from the
    smallest to the largest validation error.

    Examples:

        cosen figures errors studies/photos

        cosen figures errors runs/photos-baseline-0 runs/photos-cosen-0 --measure balanced
    """
    draw = partial(_errors, folders, methods=methods, measure=measure, width=width)
    _draw_and_write({"errors": draw}, out, format_, width)


@figures_app.command()
def network(
    name: Annotated[str, typer.Argument(help="Name of the network.")] = "paper",
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    size: Annotated[
        int | None, typer.Option(help="Height and width of the images in pixels.")
    ] = None,
    channels: Annotated[int, typer.Option(help="1 for grey images, 3 for RGB.")] = 3,
    features: Annotated[int, typer.Option(help="Number of input features of head.")] = 512,
    reading: Annotated[
        str | None, typer.Option(help="Variant of the paper's network: whole-vgg or two-extra.")
    ] = None,
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw the layers of a network with sizes and parameters.

    Figure cnn_arch of the paper.

    Examples:

        cosen figures network

        cosen figures network resnet32 --classes 100
    """
    options: dict[str, Any] = {"size": size, "channels": channels, "features": features}
    draw = partial(_network, name, classes=classes, **options, reading=reading, width=width)
    _draw_and_write({"network": draw}, out, format_, width)


def _draw_simple(name: str, width: float) -> "Figure":
    from cosen.paper.figures import diagrams, loss_figures

    draw = {
        "overview": diagrams.draw_overview,
        "surrogates": loss_figures.draw_surrogates,
        "loss-surface": loss_figures.draw_loss_surface,
    }
    return draw[name](width=width)


def _add_simple(name: str, help_: str) -> None:
    """Add the command for a figure that needs no data."""

    def run(out: Out = FOLDER, format_: Format = "svg,png", width: Width = COLUMN) -> None:
        _draw_and_write({name: partial(_draw_simple, name, width)}, out, format_, width)

    figures_app.command(name, help=help_)(run)


SIMPLE = {
    "overview": "Draw how the network and the costs are learned in turn.",
    "surrogates": "Draw the surrogate losses by margin, with and without costs.",
    "loss-surface": "Draw the CE loss over two outputs and its boundary.",
}
for _name, _help in SIMPLE.items():
    _add_simple(_name, _help)


@figures_app.command("all")
def all_(
    out: Annotated[Path, typer.Argument(help="Output folder.")] = FOLDER,
    study: Annotated[
        Path | None,
        typer.Option(help="Study or run folder for confusion, errors and frequencies."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Dataset or protocol for frequencies; may be repeated."),
    ] = None,
    data_root: DataRoot = None,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw all figures that are possible with the given data and study.

    Examples:

        cosen figures all figures/

        cosen figures all figures/ --study studies/photos --data mnist/odd-10 --data rsmas
    """
    from cosen.paper.figures import class_counts
    from cosen.paper.figures.folders import check_folder

    counted = list(data or ([] if study is None else [str(study)]))
    drawings: dict[str, Callable[[], Figure]] = {
        **{name: partial(_draw_simple, name, width) for name in SIMPLE},
        "network": lambda: _network("paper", width=width),
    }
    if study is not None:
        check_folder(study)
        drawings["confusion"] = lambda: _confusion([study], width=width)
        drawings["errors"] = lambda: _errors([study], width=width)
    if counted:
        drawings["frequencies"] = lambda: class_counts.draw_frequencies(
            [class_counts.count_classes(one, root=data_root) for one in counted], width=width
        )
    _draw_and_write(drawings, out, format_, width, skip_failed=True)
    if study is None:
        typer.echo("No confusion and errors: give --study.", err=True)
    if not counted:
        typer.echo("No frequencies: give --data or --study.", err=True)


def _draw_and_write(
    drawings: "dict[str, Callable[[], Figure]]",
    out: Path,
    formats: str,
    width: float,
    *,
    skip_failed: bool = False,
) -> None:
    """Check the options, draw all figures, then write them and print the paths.

    With ``skip_failed``, print why a figure cannot be drawn from a run and continue.
    """
    from cosen.errors import RunError
    from cosen.paper.figures.style import check_width, parse_formats, write_figure

    kinds = parse_formats(formats)
    check_width(width)
    drawn = {}
    for name, draw in drawings.items():
        try:
            drawn[name] = draw()
        except RunError as error:
            if not skip_failed:
                raise
            typer.echo(f"No {name}: {error}.", err=True)
    for name, figure in drawn.items():
        for path in write_figure(figure, out, name, formats=kinds):
            typer.echo(path)


def _confusion(folders: list[Path], *, methods: str | None = None, width: float) -> "Figure":
    from cosen.paper.figures.folders import read_confusions
    from cosen.paper.figures.run_figures import draw_confusion

    found, class_names = read_confusions(folders, methods=_names(methods))
    return draw_confusion(found, class_names, width=width)


def _errors(
    folders: list[Path], *, methods: str | None = None, measure: str = "overall", width: float
) -> "Figure":
    from cosen.paper.figures.folders import read_curves
    from cosen.paper.figures.run_figures import draw_errors

    curves = read_curves(folders, methods=_names(methods), measure=measure)
    label = "validation, mean of classes" if measure == "balanced" else "validation"
    return draw_errors(curves, val_label=label, width=width)


def _network(
    name: str,
    *,
    classes: int = 10,
    size: int | None = None,
    channels: int = 3,
    features: int = 512,
    reading: str | None = None,
    width: float,
) -> "Figure":
    import torch

    from cosen.networks import build_network, find_network
    from cosen.networks.layer_table import layer_table
    from cosen.paper.figures.diagrams import draw_network, pretrained_layers

    image_size = find_network(name).image_size
    options: dict[str, Any] = {} if reading is None else {"reading": reading}
    shape: tuple[int, ...]
    if image_size is None:
        shape = (features,)
        options["in_features"] = features
    else:
        shape = (channels, size or image_size, size or image_size)
    with torch.device("meta"):  # shapes without values: no memory, no time
        built = build_network(name, num_classes=classes, channels=channels, **options)
    rows = layer_table(built, shape)
    return draw_network(rows, shape, pretrained=pretrained_layers(name, rows), width=width)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
