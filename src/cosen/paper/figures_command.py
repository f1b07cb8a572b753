"""``cosen figures``: the paper's figures, for a column of a paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosen.cli.data import DataRoot, Exclude

if TYPE_CHECKING:
    from collections.abc import Callable

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

Out = Annotated[Path, typer.Option("--out", help="The folder to write to.")]
Format = Annotated[str, typer.Option("--format", help="svg, png, pdf, with commas between.")]
Width = Annotated[
    float, typer.Option("--width", help="Inches: 3.5 is a column, 7.16 both columns of a page.")
]
Methods = Annotated[
    str | None,
    typer.Option(help="Of a study, with commas between; else the baseline and the one chosen."),
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
        bool, typer.Option("--by-frequency", help="The most frequent class first.")
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Counts on a logarithmic axis.")] = False,
    seed: Annotated[int, typer.Option(help="Of the split.")] = 0,
    exclude: Exclude = None,
    data_root: DataRoot = None,
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw training images by class, datasets side by side.

    The paper has them as Fig. intro and Fig. exp_set.

    Examples:

        cosen figures frequencies photos/ --by-frequency

        cosen figures frequencies mnist/odd-10 rsmas ham10000/3-fold --width 7.16
    """
    from cosen.paper.figures.class_counts import WHOLE, count_classes
    from cosen.paper.figures.frequencies import draw_frequencies

    write = _writer(out, format_, width)
    counted = [
        count_classes(
            one,
            split=split,
            imbalance=imbalance,
            root=data_root,
            exclude=tuple(exclude or ()),
            seed=seed,
        )
        for one in data
    ]
    words = "images" if split == WHOLE else "training images"
    write(
        "frequencies",
        draw_frequencies(counted, by_frequency=by_frequency, log=log, ylabel=words, width=width),
    )


@figures_app.command()
def surrogates(out: Out = FOLDER, format_: Format = "svg,png", width: Width = COLUMN) -> None:
    """Draw the surrogate losses against the margin, under costs.

    The paper has them, without costs, as Fig. SurrogateLF.
    """
    from cosen.paper.figures.surrogates import draw_surrogates

    _writer(out, format_, width)("surrogates", draw_surrogates(width=width))


@figures_app.command("loss-surface")
def loss_surface(out: Out = FOLDER, format_: Format = "svg,png", width: Width = COLUMN) -> None:
    """Draw the CE loss over two outputs and its boundary, under costs.

    The paper has it as Fig. loss_func.
    """
    from cosen.paper.figures.loss_surface import draw_loss_surface

    _writer(out, format_, width)("loss-surface", draw_loss_surface(width=width))


@figures_app.command()
def confusion(
    folders: Folders,
    methods: Methods = None,
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw confusion matrices on test, in per cent of each class.

    The paper has them as Fig. CM. Of a study they are those of the baseline and of the method that
    it chose (of cosen, where it chose the baseline), over all seeds.

    Examples:

        cosen figures confusion studies/photos

        cosen figures confusion studies/photos --methods baseline,cosen,smote --width 7.16

        cosen figures confusion runs/photos-baseline-0 runs/photos-cosen-0
    """
    write = _writer(out, format_, width)
    write("confusion", _confusion(folders, methods=methods, width=width))


@figures_app.command()
def errors(
    folders: Folders,
    methods: Methods = None,
    measure: Annotated[
        str,
        typer.Option(help="Of validation: overall (images), or balanced (mean of the classes)."),
    ] = "overall",
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw training and validation error by epoch.

    The paper has them as Fig. CIFAR_error. Of a study they are means over seeds, with a band from
    the least to the most on validation.

    Examples:

        cosen figures errors studies/photos

        cosen figures errors runs/photos-baseline-0 runs/photos-cosen-0 --measure balanced
    """
    write = _writer(out, format_, width)
    write("errors", _errors(folders, methods=methods, measure=measure, width=width))


@figures_app.command()
def network(
    name: Annotated[str, typer.Argument(help="The network.")] = "paper",
    classes: Annotated[int, typer.Option(help="How many classes.")] = 10,
    size: Annotated[
        int | None, typer.Option(help="Height and width of the images in pixels.")
    ] = None,
    channels: Annotated[int, typer.Option(help="1 for grey images, 3 for RGB.")] = 3,
    features: Annotated[int, typer.Option(help="Width of the features that head takes.")] = 512,
    reading: Annotated[
        str | None, typer.Option(help="Of the paper's network: whole-vgg or two-extra.")
    ] = None,
    out: Out = FOLDER,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw the layers of a network with sizes and parameters.

    The paper has its own as Fig. cnn_arch.

    Examples:

        cosen figures network

        cosen figures network resnet32 --classes 100
    """
    write = _writer(out, format_, width)
    write(
        "network",
        _network(
            name,
            classes=classes,
            size=size,
            channels=channels,
            features=features,
            reading=reading,
            width=width,
        ),
    )


@figures_app.command()
def overview(out: Out = FOLDER, format_: Format = "svg,png", width: Width = COLUMN) -> None:
    """Draw how the network and the costs are learned in turn.

    The paper has it as Fig. overview_fig.
    """
    from cosen.paper.figures.overview import draw_overview

    _writer(out, format_, width)("overview", draw_overview(width=width))


@figures_app.command("all")
def all_(
    out: Annotated[Path, typer.Argument(help="The folder to write to.")] = FOLDER,
    study: Annotated[
        Path | None, typer.Option(help="A study or run folder: confusion, errors, frequencies.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Data or a protocol to count; may be repeated.")
    ] = None,
    data_root: DataRoot = None,
    format_: Format = "svg,png",
    width: Width = COLUMN,
) -> None:
    """Draw all figures that can be made from what is given.

    Examples:

        cosen figures all figures/

        cosen figures all figures/ --study studies/photos --data mnist/odd-10 --data rsmas
    """
    from cosen.errors import RunError
    from cosen.paper.figures.class_counts import count_classes
    from cosen.paper.figures.folders import check_folder
    from cosen.paper.figures.frequencies import draw_frequencies
    from cosen.paper.figures.loss_surface import draw_loss_surface
    from cosen.paper.figures.overview import draw_overview
    from cosen.paper.figures.surrogates import draw_surrogates

    write = _writer(out, format_, width)
    counted = list(data or ())
    drawings: dict[str, Callable[[], Figure]] = {
        "overview": lambda: draw_overview(width=width),
        "surrogates": lambda: draw_surrogates(width=width),
        "loss-surface": lambda: draw_loss_surface(width=width),
        "network": lambda: _network("paper", width=width),
    }
    if study is not None:
        check_folder(study)
        folders = [study]
        counted = counted or [str(study)]
        drawings["confusion"] = lambda: _confusion(folders, width=width)
        drawings["errors"] = lambda: _errors(folders, width=width)
    if counted:
        drawings["frequencies"] = lambda: draw_frequencies(
            [count_classes(one, root=data_root) for one in counted], width=width
        )
    drawn, left_out = {}, []
    for name, draw in drawings.items():
        try:
            drawn[name] = draw()
        except RunError as error:  # not every study has all: the others can be made
            left_out.append(f"No {name}: {error}")
    for name, figure in drawn.items():
        write(name, figure)
    if study is None:
        left_out.append("No confusion and errors: give --study")
    if not counted:
        left_out.append("No frequencies: give --data or --study")
    for reason in left_out:
        typer.echo(f"{reason}.", err=True)


def _writer(out: Path, formats: str, width: float) -> "Callable[[str, Figure], None]":
    """Writes figures and says where; what was asked of all of them is checked at once."""
    from cosen.paper.figures.style import check_width
    from cosen.paper.figures.writing import parse_formats, write_figure

    kinds = parse_formats(formats)
    check_width(width)

    def write(name: str, figure: "Figure") -> None:
        for path in write_figure(figure, out, name, formats=kinds):
            typer.echo(path)

    return write


def _confusion(folders: list[Path], *, methods: str | None = None, width: float) -> "Figure":
    from cosen.paper.figures.confusion import draw_confusion
    from cosen.paper.figures.folders import read_confusions

    found, class_names = read_confusions(folders, methods=_names(methods))
    return draw_confusion(found, class_names, width=width)


def _errors(
    folders: list[Path], *, methods: str | None = None, measure: str = "overall", width: float
) -> "Figure":
    from cosen.paper.figures.errors import draw_errors
    from cosen.paper.figures.folders import read_curves

    curves = read_curves(folders, methods=_names(methods), measure=measure)
    words = "validation, mean of classes" if measure == "balanced" else "validation"
    return draw_errors(curves, val_words=words, width=width)


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
    from cosen.networks.summary import layer_table
    from cosen.paper.figures.network import draw_network, pretrained_layers

    entry = find_network(name)
    options: dict[str, Any] = {} if reading is None else {"reading": reading}
    shape: tuple[int, ...]
    if entry.image_size is None:
        shape = (features,)
        options["in_features"] = features
    else:
        side = entry.image_size if size is None else size
        shape = (channels, side, side)
    with torch.device("meta"):  # shapes without values: no memory, no time
        built = build_network(name, num_classes=classes, channels=channels, **options)
    rows = layer_table(built, shape)
    return draw_network(rows, shape, pretrained=pretrained_layers(name, rows), width=width)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
