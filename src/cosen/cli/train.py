"""Commands that train: train, tune."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from cosen.cli import options
from cosen.cli.display import Display, print_metrics


def train(
    data: options.Data = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; default: a new one below runs/.", parser=options.parse_out),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Resume the run in this folder; repeat only --method and --network module:NAME."
        ),
    ] = None,
    config: options.ConfigFile = None,
    method: Annotated[
        str | None,
        typer.Option(
            help='Method, also with options: "cosen(margin=4)"; cosen methods lists them.'
        ),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Finished baseline run, for methods that start from one.")
    ] = None,
    network: options.Network = None,
    weights: options.Weights = None,
    finetune: options.Finetune = None,
    size: options.Size = None,
    split: options.Split = None,
    imbalance: options.Imbalance = None,
    objective: options.Objective = None,
    augment: options.Augment = None,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.Lr = None,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Compile the network with torch.compile.")
    ] = False,
    patience: Annotated[
        int | None, typer.Option(help="Stop after this many epochs without improvement.")
    ] = None,
    seed: options.Seed = None,
    device: options.Device = None,
    devices: Annotated[int | None, typer.Option(help="Processes, one per device.")] = None,
    skip_broken: options.SkipBroken = False,
    exclude: options.Exclude = None,
    data_root: options.DataRoot = None,
    set_: options.Set = None,
    json_: options.Json = False,
) -> None:
    """Train a network and print its test metrics.

    Examples:

        cosen train photos/

        cosen train photos/ --finetune last

        cosen train photos/ --network resnet50 --size 160

        cosen train mnist --imbalance odd:0.1 --method cosen --epochs 6 --out runs/mnist

        cosen train --resume runs/mnist

        cosen train photos/ --config settings.toml --method "cosen(margin=4)" --set clip=1

        cosen train --resume runs/own --method my_module:MyMethod
    """
    import cosen
    from cosen.api import new_run_folder
    from cosen.errors import InputError
    from cosen.training.config import make_config, read_config
    from cosen.training.run import is_first_process

    settings = options.given(
        data=data,
        method=method,
        network=network,
        weights=weights,
        finetune=finetune,
        size=size,
        split=split,
        imbalance=imbalance,
        objective=objective,
        augment=augment,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        patience=patience,
        compile=compile_,
        seed=seed,
        device=device,
        devices=devices,
        skip_broken=skip_broken,
        exclude=exclude,
        data_root=data_root,
    ) | options.parse_set(set_)
    if resume is None:
        base = make_config(read_config(config)) if config else None
        run_config = make_config(settings, base=base)
        options.find_modules_here(run_config.method, run_config.network)
        folder = out or new_run_folder(run_config)
    else:
        # the user's own code is named again
        again = {
            name: settings.pop(name)
            for name in ("method", "network")
            if ":" in settings.get(name, "")
        }
        options.find_modules_here(*again.values())
        extra = [*options.given(out=out, config=config, baseline=baseline), *settings]
        if extra:
            raise InputError(f"--resume uses the settings of the run: remove {', '.join(extra)}")
        run_config, folder = None, resume
    is_first = is_first_process()  # torchrun runs the command in every process
    with Display(
        quiet=json_ or not is_first,
        interrupted=f"Stopped. Resume with: cosen train --resume {folder}",
    ) as display:
        run = cosen.train(
            config=run_config,
            out=folder if resume is None else None,
            resume=resume,
            **({} if resume is None else again),
            baseline=baseline,
            callbacks=display.callbacks(),
        )
    if not is_first:
        return
    if json_:
        metrics = run.folder.metrics().model_dump(mode="json")
        typer.echo(json.dumps({"run": str(run.path), **metrics}, indent=2))
    else:
        prepared = run.record.prepared
        print_metrics(run.metrics, prepared.class_names, prepared.class_counts.train)
        typer.echo(f"The run is in {run.path}")


def tune(
    data: options.Data = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder; resumes an existing search.", parser=options.parse_out),
    ] = None,
    weights: options.Weights = None,
    trials: Annotated[
        int, typer.Option(help="Total number of candidates, including earlier ones.")
    ] = 30,
    folds: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 3,
    epochs: Annotated[int, typer.Option(help="Epochs per fold.")] = 15,
    objective: options.Objective = None,
    imbalance: options.Imbalance = None,
    split: options.Split = None,
    seed: options.Seed = None,
    exclude: options.Exclude = None,
    data_root: options.DataRoot = None,
    set_: options.Set = None,
    json_: options.Json = False,
) -> None:
    """Choose the options of cosen-paper by cross-validation.

    Does not use the test images. Run the same command again to resume. Train with the result:
    cosen train DATA --config OUT/tuned.toml

    Examples:

        cosen tune photos/ --objective balanced

        cosen tune mnist --imbalance odd:0.1 --trials 60 --folds 5 --out runs/tuned

        cosen tune photos/ --set options.acceptance=revert --set lr=0.02
    """
    from cosen.api import folder_name
    from cosen.training.config import make_config
    from cosen.training.tuning import tune as run_tuning

    split_settings = options.given(
        weights=weights,
        split=split,
        imbalance=imbalance,
        seed=seed,
        exclude=exclude,
        data_root=data_root,
    )
    settings = options.given(data=data, epochs=epochs, objective=objective) | split_settings
    config = make_config(settings | options.parse_set(set_))
    folder = out or Path("runs") / f"{folder_name(config.data)}-tune-{config.seed}"
    with Display(
        quiet=json_,
        interrupted=f"Stopped. Finished trials are in {folder}; run the same command to resume.",
    ) as display:
        tuned = run_tuning(config, folder, trials=trials, folds=folds, progress=display.progress)
    if json_:
        typer.echo(json.dumps(tuned.as_json(), indent=2))
        return
    typer.echo(tuned.sentence())
    command = ["cosen", "train", config.data]
    for name, value in split_settings.items():
        for text in value if isinstance(value, tuple) else (value,):
            command += [f"--{name.replace('_', '-')}", str(text)]
    typer.echo(f"Train with: {shlex.join([*command, '--config', str(tuned.path)])}")
