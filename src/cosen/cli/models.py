"""Commands that use a trained model: evaluate, predict, export."""

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosen.cli.data import DataRoot, Exclude, Json
from cosen.cli.progress import READING, progress_bar

if TYPE_CHECKING:
    from cosen.training.predict import Prediction

Run = Annotated[Path, typer.Argument(help="The run folder.", show_default=False)]
Costs = Annotated[
    Path | None,
    typer.Option(help="A CSV of misclassification costs: a column and a line for each class."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Leave out images that do not decode.")
]


def evaluate(
    run: Run,
    data: Annotated[
        str | None,
        typer.Argument(help="Other data with the same classes: a folder, a CSV or a name."),
    ] = None,
    costs: Costs = None,
    data_root: DataRoot = None,
    exclude: Exclude = None,
    device: Device = "auto",
    skip_broken: SkipBroken = False,
    json_: Json = False,
) -> None:
    """Say how good a run is: on its own test images, or on all images of other data.

    With --costs, the error is the mean cost, the worst mistake being 1.

    Examples:

        cosen evaluate runs/mnist

        cosen evaluate runs/lesions new-lesions/ --costs costs.csv

        cosen evaluate runs/lesions new-lesions.csv --json
    """
    from cosen.cli.train import report
    from cosen.training.evaluate_run import evaluate_run
    from cosen.training.run_folder import RunFolder

    if data is None:
        folder = RunFolder.existing(run)
        metrics = evaluate_run(run, objective=_read_costs(run, costs))
        report(folder, json_=json_, metrics=metrics)
        return
    with progress_bar(READING, quiet=json_) as progress:
        metrics = evaluate_run(
            run,
            data,
            data_root=data_root,
            exclude=tuple(exclude or ()),
            objective=_read_costs(run, costs),
            skip_broken=skip_broken,
            device=device,
            progress=progress,
        )
    if json_:
        typer.echo(json.dumps({"run": str(run), "data": data, **metrics}, indent=2))
    else:
        _print_metrics(RunFolder(run).about()["class_names"], metrics["all"])


def _print_metrics(class_names: list[str], metrics: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table("class", box=None, pad_edge=False)
    for title in ("images", "recall", "precision"):
        table.add_column(title, justify="right")
    for label, name in enumerate(class_names):
        recall = metrics["class_recall"][label]
        table.add_row(
            Text(name),
            str(sum(metrics["confusion"][label])),
            "-" if recall is None else f"{100 * recall:.1f}",
            f"{100 * metrics['class_precision'][label]:.1f}",
        )
    console.print(table)
    console.print(
        f"accuracy {100 * metrics['accuracy']:.2f} %, "
        f"mean recall {100 * metrics['mean_recall']:.2f} %, "
        f"error {100 * metrics['error']:.2f} %, on {metrics['samples']} images"
    )


def predict(
    run: Run,
    images: Annotated[
        list[Path], typer.Argument(help="Image files, and folders of them.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="A .csv or .json to write to, in place of the terminal.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many of the most probable classes to name.")] = 1,
    prior: Annotated[
        str | None,
        typer.Option(
            help="Correct probabilities from the classes' shares in training to others: balanced, "
            "or name=0.1,name=0.9. Approximate where costs were learned."
        ),
    ] = None,
    costs: Costs = None,
    calibration: Annotated[
        bool,
        typer.Option(
            "--calibration/--no-calibration",
            help="Probabilities by the temperature that was found on validation.",
        ),
    ] = True,
    device: Device = "auto",
    skip_broken: SkipBroken = False,
    json_: Json = False,
) -> None:
    """Say what is on images, as CSV: image, class, probability, and the top classes.

    The class is the most probable one or, with --costs, the one with the least expected cost.

    Examples:

        cosen predict runs/lesions photo.jpg more-photos/

        cosen predict runs/lesions photos/ --top 3 --out predictions.csv

        cosen predict runs/lesions photos/ --prior benign=0.98,malignant=0.02 --costs costs.csv
    """
    from cosen.errors import InputError
    from cosen.training.files import write_text
    from cosen.training.predict import parse_prior, predict_images

    if out is not None and out.suffix.lower() not in (".csv", ".json"):
        raise InputError(f"--out takes a .csv or a .json, but was given {out}")
    with progress_bar("Looking at images", quiet=json_) as progress:
        predictions = predict_images(
            run,
            images,
            top=top,
            calibrated=calibration,
            prior=parse_prior(prior) if prior is not None else None,
            costs=_read_costs(run, costs),
            skip_broken=skip_broken,
            device=device,
            progress=progress,
        )
    if out is None:
        typer.echo(_as_json(predictions) if json_ else _as_csv(predictions), nl=False)
        return
    write_text(
        out, _as_json(predictions) if out.suffix.lower() == ".json" else _as_csv(predictions)
    )
    if json_:
        typer.echo(json.dumps({"out": str(out), "images": len(predictions)}))
    else:
        typer.echo(f"{len(predictions)} predictions are in {out}")


def _as_json(predictions: "list[Prediction]") -> str:
    plain = [prediction.as_json() for prediction in predictions]
    return json.dumps(plain, indent=2) + "\n"


def _as_csv(predictions: "list[Prediction]") -> str:
    """A line for each image; the top classes are there where more than one was asked for."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    count = len(predictions[0].top)
    ranks = range(1, count + 1) if count > 1 else range(0)
    titles = [title for rank in ranks for title in (f"class_{rank}", f"probability_{rank}")]
    writer.writerow(["image", "class", "probability", *titles])
    for prediction in predictions:
        row = [prediction.image, prediction.decision, f"{prediction.probability:.6f}"]
        for rank in ranks:
            entry = prediction.top[rank - 1]
            row += [entry.name, f"{entry.probability:.6f}"]
        writer.writerow(row)
    return text.getvalue().encode("utf-8", "backslashreplace").decode()  # any file name prints


def export(
    run: Run,
    out: Annotated[Path, typer.Argument(help="The .onnx file to write.")] = Path("model.onnx"),
    json_: Json = False,
) -> None:
    """Write a model as ONNX, and check that onnxruntime gives what PyTorch gives.

    The file takes images in [0, 1] of any batch and gives logits; its metadata hold the class
    names, the size of images and the temperature.

    Examples:

        cosen export runs/lesions lesions.onnx
    """
    from cosen.training.export import export_onnx

    check = export_onnx(run, out)
    if json_:
        typer.echo(json.dumps(check.as_json()))
        return
    sizes = " and ".join(str(size) for size in check.batch_sizes)
    typer.echo(
        f"{check.path}: onnxruntime gives PyTorch's logits on batches of {sizes} images "
        f"(largest difference {check.largest_difference:.1e})"
    )


def _read_costs(run: Path, costs: Path | None) -> Any:
    if costs is None:
        return None
    from cosen.methods.cost_table import read_misclassification_costs
    from cosen.training.model_file import load_facts

    return read_misclassification_costs(costs, load_facts(run).class_names)
