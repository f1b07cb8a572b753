"""Commands that use a finished run: evaluate, predict, serve, export, report."""

import csv
import io
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cosen.cli import options
from cosen.cli.display import READING, Display, print_metrics

if TYPE_CHECKING:
    import cosen
    from cosen.inference.predict import Prediction


def evaluate(
    run: options.Run,
    data: Annotated[
        str | None,
        typer.Argument(
            help="Other data with the same classes; default: the test images of the run.",
            show_default=False,
        ),
    ] = None,
    objective: options.Objective = None,
    prior: options.Prior = None,
    decide: options.Decide = None,
    ensemble: options.Ensemble = False,
    tta: options.Tta = None,
    data_root: options.DataRoot = None,
    exclude: options.Exclude = None,
    device: options.Device = None,
    network: options.OwnNetwork = None,
    skip_broken: options.SkipBroken = False,
    json_: options.Json = False,
) -> None:
    """Print the metrics of a run on its test images, or on all images of other data.

    The objective decides what "error" measures; by default it is that of the run.

    Examples:

        cosen evaluate runs/mnist

        cosen evaluate runs/lesions new-lesions/ --objective costs.csv

        cosen evaluate runs/lesions new-lesions.csv --json

        cosen evaluate runs/lesions --prior train
    """
    import cosen
    from cosen.errors import InputError
    from cosen.inference.evaluate_run import stored_metrics
    from cosen.inference.predict import parse_prior

    options.find_modules_here(network or "")
    loaded = _load(run, network, ensemble=ensemble)
    finished = loaded.best if isinstance(loaded, cosen.Study) else loaded
    shares = None if prior is None else parse_prior(prior)
    if data is None and (tta or ensemble):
        flag = "--tta" if tta else "--ensemble"
        raise InputError(f"{flag} is for other data: give DATA, or remove {flag}")
    if data is None:
        flags = {"--data-root": data_root, "--exclude": exclude, "--device": device}
        for flag in [name for name, value in flags.items() if value]:
            raise InputError(f"{flag} is for other data: give DATA, or remove {flag}")
        goal = None if objective is None else finished.objective(objective)
        validation_runs = loaded.validation_runs if isinstance(loaded, cosen.Study) else ()
        metrics = stored_metrics(finished.path, goal, shares, decide, validation_runs)
        shown = metrics.test
        plain = {"run": str(run), **metrics.model_dump(mode="json")}
    else:
        with Display(quiet=json_) as display:
            shown = loaded.evaluate(
                data,
                **({"ensemble": True} if ensemble else {}),
                flip=tta is not None,
                objective=objective,
                prior=shares,
                decide=decide,
                data_root=data_root,
                exclude=tuple(exclude or ()),
                device=device or "auto",
                skip_broken=skip_broken,
                progress=partial(display.progress, READING),
            )
        plain = {"run": str(run), "data": data, "all": shown.model_dump(mode="json")}
    if json_:
        typer.echo(json.dumps(plain, indent=2))
    else:
        if decide is not None and decide != "probability":
            typer.echo("Without --decide, for the most probable classes:")
        prepared = finished.record.prepared
        print_metrics(shown, prepared.class_names, prepared.class_counts.train)


def predict(
    run: options.Run,
    images: Annotated[
        list[Path], typer.Argument(help="Image files, or folders of them.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write to this .csv or .json file; default: print.")
    ] = None,
    top: Annotated[int, typer.Option(help="Number of most probable classes to list.")] = 1,
    prior: options.Prior = None,
    decide: options.Decide = None,
    ensemble: options.Ensemble = False,
    tta: options.Tta = None,
    misclassification_costs: options.MisclassificationCosts = None,
    calibration: Annotated[
        bool,
        typer.Option("--calibration/--no-calibration", help="Calibrate the probabilities."),
    ] = True,
    device: options.Device = None,
    network: options.OwnNetwork = None,
    skip_broken: options.SkipBroken = False,
    json_: options.Json = False,
) -> None:
    """Predict the classes of images.

    Prints CSV: image, class, probability and, with --top, the most probable classes.

    Examples:

        cosen predict runs/lesions photo.jpg more-photos/

        cosen predict runs/lesions photos/ --top 3 --out predictions.csv

        cosen predict runs/lesions photos/ --misclassification-costs costs.csv

        cosen predict runs/lesions clinic/ --prior benign=0.98,malignant=0.02

        cosen predict runs/lesions clinic/ --decide recall:malignant=0.95
    """
    from cosen.errors import InputError, escape_controls
    from cosen.files import write_text
    from cosen.inference.predict import parse_prior

    if out is not None and out.suffix.lower() not in (".csv", ".json"):
        raise InputError(f"--out must be a .csv or .json file, but is {out}")
    options.find_modules_here(network or "")
    with Display(quiet=json_) as display:
        predictions = _load(run, network, ensemble=ensemble).predict(
            images,
            **({"ensemble": True} if ensemble else {}),
            flip=tta is not None,
            misclassification_costs=misclassification_costs,
            top=top,
            prior=None if prior is None else parse_prior(prior),
            decide=decide or "probability",
            calibrated=calibration,
            device=device or "auto",
            skip_broken=skip_broken,
            progress=partial(display.progress, READING),
        )
    if out is None:
        text = _as_json(predictions) if json_ else _as_csv(predictions)
        typer.echo(escape_controls(text, keep="\n") if sys.stdout.isatty() else text, nl=False)
        return
    is_json = out.suffix.lower() == ".json"
    write_text(out, _as_json(predictions) if is_json else _as_csv(predictions))
    if json_:
        typer.echo(json.dumps({"out": str(out), "images": len(predictions)}))
    else:
        typer.echo(f"Wrote {len(predictions)} predictions to {out}")


def _load(path: Path, network: str | None, *, ensemble: bool) -> "cosen.Run | cosen.Study":
    """Load a run, or a study, whose chosen method is used."""
    import cosen
    from cosen.comparing.study_folder import StudyFolder
    from cosen.errors import InputError

    if StudyFolder(path).has_study:
        return cosen.Study(path, network=network)
    if ensemble:
        raise InputError(f"--ensemble is for a study, but {path} is a run: remove --ensemble")
    return cosen.Run(path, network=network)


def _as_json(predictions: "list[Prediction]") -> str:
    plain = [prediction.as_json() for prediction in predictions]
    return json.dumps(plain, indent=2) + "\n"


def _as_csv(predictions: "list[Prediction]") -> str:
    """Return one line per image, with the top classes if there are several."""
    from cosen.files import spreadsheet_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    count = len(predictions[0].top)
    ranks = range(1, count + 1) if count > 1 else range(0)
    titles = [title for rank in ranks for title in (f"class_{rank}", f"probability_{rank}")]
    first = predictions[0]
    more = ["review"] * (first.review is not None) + ["set"] * (first.classes is not None)
    writer.writerow(["image", "class", "probability", *more, *titles])
    for prediction in predictions:
        row = [
            spreadsheet_text(prediction.image),
            spreadsheet_text(prediction.decision),
            f"{prediction.probability:.6f}",
        ]
        if prediction.review is not None:
            row.append("yes" if prediction.review else "no")
        if prediction.classes is not None:
            row.append(spreadsheet_text("; ".join(prediction.classes)))
        for rank in ranks:
            entry = prediction.top[rank - 1]
            row += [spreadsheet_text(entry.name), f"{entry.probability:.6f}"]
        writer.writerow(row)
    return text.getvalue().encode("utf-8", "backslashreplace").decode()  # any file name prints


def export(
    run: options.Run,
    out: Annotated[
        Path | None,
        typer.Argument(
            help="A .onnx, .pt or .torchscript file, or a new folder; default: model.onnx.",
            show_default=False,
        ),
    ] = None,
    format: Annotated[
        Literal["onnx", "torchscript", "hub"] | None,
        typer.Option(help="Default: what the name says. hub is a folder for Hugging Face."),
    ] = None,
    card: Annotated[
        bool,
        typer.Option("--card", help="Also write a model card (.md); a folder always has one."),
    ] = False,
    network: options.OwnNetwork = None,
    json_: options.Json = False,
) -> None:
    """Export a model to ONNX, TorchScript or a folder for the hub, and check it against PyTorch.

    Files take images in [0, 1], in batches of any size, and return logits. Their metadata has the
    class names, the image size and the temperature. timm and cosen can load a folder.

    Examples:

        cosen export runs/lesions lesions.onnx

        cosen export runs/lesions lesions.pt --card

        cosen export studies/lesions lesions --format hub
    """
    options.find_modules_here(network or "")
    check = _load(run, network, ensemble=False).export(out, format=format, card=card)
    if json_:
        typer.echo(json.dumps(check.as_json()))
        return
    sizes = " and ".join(str(size) for size in check.batch_sizes)
    typer.echo(
        f"Wrote {check.path}; its logits match PyTorch on batches of {sizes} images "
        f"(largest difference {check.largest_difference:.1e})"
    )
    if check.note:
        typer.echo(check.note)
    if check.card is not None:
        typer.echo(f"Model card: {check.card}; complete the parts marked To fill in")
    if check.format == "hub":
        words = ["hf", "upload", f"USER/{check.path.name}", str(check.path), "."]
        typer.echo(f"Upload: {shlex.join(words)}")


def serve(
    run: options.Run,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    prior: options.Prior = None,
    decide: options.Decide = None,
    misclassification_costs: options.MisclassificationCosts = None,
    ensemble: options.Ensemble = False,
    tta: options.Tta = None,
    max_images: Annotated[int, typer.Option(min=1, help="Images in a request.")] = 64,
    max_mb: Annotated[int, typer.Option(min=1, help="Size of a request in MB.")] = 100,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Time for a request.")] = 60.0,
    device: options.Device = None,
    network: options.OwnNetwork = None,
) -> None:
    """Serve a model on this machine: a page for the browser, and predictions by HTTP.

    Open the printed address, and drop images on the page. Programs send images to /predict; /docs
    describes this. The server has no passwords: by default only this machine can reach it.

    Examples:

        cosen serve runs/lesions

        cosen serve studies/lesions --ensemble --prior train

        curl -F images=@photo.jpg http://127.0.0.1:8000/predict
    """
    from cosen.serving import app as serving

    options.find_modules_here(network or "")
    limits = serving.Limits(max_images=max_images, max_bytes=max_mb * 2**20, seconds=max_seconds)
    hosts = None if host in serving.EVERYWHERE else (host, *serving.LOOPBACK)
    application = _load(run, network, ensemble=ensemble).app(
        **({"ensemble": True} if ensemble else {}),
        name=run.resolve().name,
        prior=prior or "",
        decide=decide or "probability",
        misclassification_costs=misclassification_costs,
        flip=tta is not None,
        limits=limits,
        device=device or "auto",
        hosts=hosts,
    )
    if host not in serving.LOOPBACK:
        typer.echo("cosen: anyone who can reach this address can use the model", err=True)
    serving.serve(application, host=host, port=port, announce=typer.echo)


def report(
    path: Annotated[Path, typer.Argument(help="Run or study folder.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; default: report.html in the folder.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another run on the same split to compare with.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a report as one HTML file.

    It shows what changed for each class, and why. The file needs no other files and no network.

    Examples:

        cosen report studies/photos

        cosen report runs/cosen --against runs/baseline --out report.html --open
    """
    from cosen.report import write_report

    place = write_report(path, out, against=against)
    typer.echo(f"Wrote {place} ({place.stat().st_size / 1e6:.1f} MB)")
    if open_:
        import webbrowser

        if not webbrowser.open(place.resolve().as_uri()):
            typer.echo("No browser was found: open the file yourself", err=True)
