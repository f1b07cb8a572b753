"""``cosen figures``: figures from data, runs and studies, and error messages."""

from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from cosen.comparing.choice import Choice
from cosen.comparing.study_folder import MethodRecord, StudyFolder, StudyRecord
from cosen.errors import CosenError
from cosen.paper.figures.class_counts import count_classes
from cosen.paper.figures.folders import read_confusions, read_curves, shown_methods
from cosen.paper.figures_command import figures_app
from cosen.training.config import TrainConfig
from cosen.training.records import EpochRecord
from cosen.training.run_folder import RunFolder
from report.small_runs import write_run

app = typer.Typer()
app.add_typer(figures_app)

CLASSES = ("cat", "dog", "<b>$e_1$")


def run(*arguments):
    result = CliRunner().invoke(app, ["figures", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def refusal(*arguments):
    with pytest.raises(CosenError) as caught:
        CliRunner().invoke(app, ["figures", *map(str, arguments)], catch_exceptions=False)
    message = str(caught.value)
    assert "\n" not in message
    return message


def epoch(number, train_error, val_accuracy, mean_recall):
    return EpochRecord(
        epoch=number,
        lr=0.1,
        train_loss=1.0,
        train_error=train_error,
        val_error=0.123,  # of the objective, which the figure does not show
        val_accuracy=val_accuracy,
        mean_recall=mean_recall,
        rare_recall=0.0,
        seconds=1.0,
        images_per_second=1.0,
        cost_accepted=None,
        cost_lr=None,
        best=True,
    )


def make_run(
    path, method="cosen", *, epochs=3, finished=True, right=10, classes=CLASSES, history=True
):
    """A run that predicts each class ``1 + right`` times correctly, and once as any other."""
    others = np.ones((len(classes), len(classes)), int)
    counts = others + np.eye(len(classes), dtype=int) * right
    target, predicted = np.nonzero(others)
    times = counts[target, predicted]
    write_run(
        path,
        np.repeat(predicted, times).tolist(),
        target=np.repeat(target, times).tolist(),
        names=classes,
        train=tuple(range(4, 4 + len(classes))),
        method=method,
        history=0,
        pictures=False,
    )
    folder = RunFolder(path)
    if history:
        folder.write_history(
            [epoch(n, 0.5 / n, 1 - 0.4 / n, 1 - 0.6 / n) for n in range(1, epochs + 1)]
        )
    if not finished:
        (path / "metrics.json").unlink()
    return path


@pytest.fixture
def make_study(tmp_path):
    def make(methods, *, seeds=(0, 1), chosen=None, **options):
        study = StudyFolder(tmp_path / "study")
        study.path.mkdir()
        StudyRecord.now(
            TrainConfig(),
            methods={name: MethodRecord(method=name, options={}) for name in methods},
            seeds=seeds,
            data="digits",
        ).write(study.path)
        for place, method in enumerate(methods):
            for seed in seeds:
                make_run(study.run(method, seed).path, method, right=10 * place + seed, **options)
        if chosen:
            Choice(method=chosen, sentence="").write(study.path)
        return study.path

    return make


# Figures from data, runs and studies


def test_counts_of_data_are_those_of_training(make_folder):
    photos = make_folder(cat=20, dog=10)
    assert count_classes(str(photos)).counts == (16, 8)
    assert count_classes(str(photos), split="all").counts == (20, 10)
    assert count_classes(str(photos), split="fraction:0.5").counts == (10, 5)
    reduced = count_classes(str(photos), split="fraction:0.5", imbalance="odd:0.2")
    assert reduced.counts == (10, 1)
    assert reduced.class_names == ("cat", "dog")
    assert reduced.name == "images, odd:0.2"
    make_folder(eel=4)
    assert count_classes(str(photos), exclude=("dog",)).class_names == ("cat", "eel")


def test_counts_of_a_protocol_are_before_validation_is_held_out(monkeypatch):
    asked = []

    def digits(data, **options):
        from cosen.data import open_data

        asked.append(data)
        found = open_data("digits", **options)
        parts = np.where(np.arange(len(found)) % 4 == 0, "test", "train")
        return type(found)(**(vars(found) | {"parts": parts}))

    monkeypatch.setattr("cosen.paper.figures.class_counts.open_data", digits)
    found = count_classes("mnist/odd-10")
    assert asked == ["mnist"]
    assert found.name == "mnist/odd-10"
    standard = np.array(count_classes("mnist/standard").counts)
    kept = np.where(np.arange(10) % 2, np.round(0.1 * standard), standard)
    assert found.counts == tuple(kept.astype(int))


def test_counts_of_a_run_need_no_data(tmp_path, make_study):
    assert count_classes(str(make_run(tmp_path / "run"))).counts == (4, 5, 6)
    study = make_study(["baseline", "cosen"])
    found = count_classes(str(study))
    assert (found.name, found.class_names, found.counts) == ("study", CLASSES, (4, 5, 6))


def test_confusion_is_the_sum_over_seeds(make_study):
    study = make_study(["baseline", "cosen"], chosen="cosen")
    (baseline, cosen), class_names = read_confusions([study])
    assert (baseline.name, cosen.name) == ("baseline", "cosen")
    assert class_names == CLASSES
    assert baseline.counts.tolist() == (2 + np.eye(3, dtype=int) * (0 + 1)).tolist()
    assert cosen.counts.tolist() == (2 + np.eye(3, dtype=int) * (10 + 11)).tolist()


def test_only_seeds_that_all_have_are_compared(make_study):
    study = make_study(["baseline", "cosen"], chosen="cosen")
    (study / "runs" / "cosen" / "1" / "metrics.json").unlink()
    (baseline, cosen), _ = read_confusions([study])
    assert baseline.counts.sum() == 9
    assert cosen.counts.sum() == 9 + 3 * 10
    (study / "runs" / "baseline" / "0" / "metrics.json").unlink()
    with pytest.raises(CosenError, match="no seed yet with finished runs of baseline and cosen"):
        read_confusions([study])


@pytest.mark.parametrize(
    ("methods", "chosen", "shown"),
    [
        (["baseline", "smote", "cosen"], "smote", ["baseline", "smote"]),
        (["baseline", "smote", "cosen"], "baseline", ["baseline", "cosen"]),
        (["baseline", "smote", "cosen"], None, ["baseline", "cosen"]),
        (["baseline", "smote"], "baseline", ["baseline", "smote"]),
        (["smote", "cosen"], "smote", ["smote"]),
        (["baseline"], "baseline", ["baseline"]),
    ],
)
def test_a_study_shows_the_baseline_and_one_beside_it(make_study, methods, chosen, shown):
    study = StudyFolder(make_study(methods, seeds=[0], chosen=chosen))
    assert shown_methods(study, methods) == shown
    assert shown_methods(study, methods, asked=methods[:1]) == methods[:1]


def test_errors_are_overall_or_balanced(tmp_path):
    path = make_run(tmp_path / "run", epochs=4)
    (overall,) = read_curves([path])
    number = np.arange(1, 5)
    assert overall.epochs.tolist() == number.tolist()
    np.testing.assert_allclose(overall.train, [0.5 / number])
    np.testing.assert_allclose(overall.val, [0.4 / number])
    (balanced,) = read_curves([path], measure="balanced")
    np.testing.assert_allclose(balanced.val, [0.6 / number])
    np.testing.assert_allclose(balanced.train, overall.train)


def test_runs_of_one_method_are_told_apart_and_may_be_unfinished(tmp_path):
    one = make_run(tmp_path / "one", epochs=2, finished=False)
    two = make_run(tmp_path / "two")
    other = make_run(tmp_path / "other", "baseline")
    names = [found.name for found in read_curves([one, two, other])]
    assert names == ["cosen (one)", "cosen (two)", "baseline"]


def test_seeds_that_stopped_early_are_averaged_as_far_as_all_go(make_study):
    study = make_study(["cosen"])
    run = StudyFolder(study).run("cosen", 1)
    run.write_history([epoch(1, 0.3, 0.5, 0.5)])
    (found,) = read_curves([study])
    assert found.val.shape == (2, 1)


def test_a_method_without_epochs_is_passed_over(make_study):
    study = make_study(["baseline", "wsvm", "cosen"], chosen="wsvm")
    for path in study.glob("runs/wsvm/*/history.csv"):
        path.unlink()
    assert [found.name for found in read_curves([study])] == ["baseline", "cosen"]
    assert "has no run of wsvm" in refusal("errors", study, "--methods", "wsvm")


# The commands


@pytest.mark.parametrize("name", ["surrogates", "loss-surface", "network", "overview"])
def test_figures_of_nothing_but_the_paper(name, tmp_path):
    lines = run(name, "--out", tmp_path / "out", "--format", "svg")
    assert lines == [str(tmp_path / "out" / f"{name}.svg")]
    assert Path(lines[0]).read_text().startswith("<?xml")


def test_figures_go_to_figures_as_svg_and_png(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("overview") == ["figures/overview.svg", "figures/overview.png"]
    assert sorted(path.name for path in Path("figures").iterdir()) == [
        "overview.png",
        "overview.svg",
    ]


def test_figures_of_runs_and_studies(tmp_path, make_study):
    study = make_study(["baseline", "cosen"], chosen="cosen")
    run("confusion", study, "--out", tmp_path, "--format", "svg")
    shown = (tmp_path / "confusion.svg").read_text()
    assert "cosen" in shown
    assert "&lt;b&gt;$e_1$" in shown
    run("errors", study, "--out", tmp_path, "--format", "svg", "--measure", "balanced")
    assert "cosen, validation, mean of classes" in (tmp_path / "errors.svg").read_text()
    run("frequencies", study, "digits", "--out", tmp_path, "--format", "svg", "--width", "7.16")
    shown = (tmp_path / "frequencies.svg").read_text()
    assert "digits" in shown
    assert "training images" in shown
    run("frequencies", "digits", "--split", "all", "--out", tmp_path, "--format", "svg", "--log")
    assert "training images" not in (tmp_path / "frequencies.svg").read_text()


def test_other_networks(tmp_path):
    run("network", "small-cnn", "--channels", 1, "--size", 8, "--out", tmp_path, "--format", "svg")
    assert "pre-trained" not in (tmp_path / "network.svg").read_text()
    run("network", "head", "--features", 64, "--out", tmp_path, "--format", "svg")
    run("network", "paper", "--reading", "two-extra", "--out", tmp_path, "--format", "svg")
    assert "167,864,138" in (tmp_path / "network.svg").read_text()


def test_all_makes_what_it_can(tmp_path, make_study, monkeypatch):
    from cosen.paper.figures.diagrams import draw_overview

    for name in ("surrogates", "loss_surface"):  # tested above, and slower
        monkeypatch.setattr(f"cosen.paper.figures.loss_figures.draw_{name}", draw_overview)
    result = CliRunner().invoke(app, ["figures", "all", str(tmp_path / "a"), "--format", "svg"])
    assert result.exit_code == 0
    made = [Path(line).stem for line in result.stdout.splitlines()]
    assert made == ["overview", "surrogates", "loss-surface", "network"]
    assert "No confusion and errors: give --study." in result.stderr
    assert "No frequencies: give --data or --study." in result.stderr
    study = make_study(["baseline", "wsvm"], history=False, chosen="wsvm")
    arguments = ["figures", "all", str(tmp_path / "b"), "--study", str(study), "--format", "svg"]
    result = CliRunner().invoke(app, arguments)
    assert [Path(line).stem for line in result.stdout.splitlines()] == [
        *made,
        "confusion",
        "frequencies",
    ]
    assert result.stderr.startswith("No errors: ")
    with pytest.raises(CosenError, match="neither a folder"):
        CliRunner().invoke(app, [*arguments, "--data", "nope"], catch_exceptions=False)


# Mistakes


def test_folders_that_cannot_be_shown_are_named(tmp_path, make_study):
    (tmp_path / "empty").mkdir()
    for command in ("confusion", "errors"):
        assert "neither a run nor a study" in refusal(command, tmp_path / "empty")
    assert "neither a run nor a study" in refusal("all", tmp_path, "--study", tmp_path / "nowhere")
    begun = make_run(tmp_path / "begun", finished=False, history=False)
    assert "is not finished; resume it with --resume" in refusal("confusion", begun)
    assert "no epoch has ended yet" in refusal("errors", begun)
    ended = make_run(tmp_path / "ended", "wsvm", history=False)
    assert "its method has no epochs" in refusal("errors", ended)
    study = make_study(["baseline", "cosen"], finished=False, history=False)
    assert "no run to show yet" in refusal("confusion", study)
    assert "no finished run yet" in refusal("frequencies", study)


def test_other_mistakes_are_named(tmp_path, make_study, make_folder):
    study = make_study(["baseline", "cosen"])
    assert "did you mean 'cosen'" in refusal("confusion", study, "--methods", "cosn")
    assert "there is no measure 'loss'" in refusal("errors", study, "--measure", "loss")
    other = make_run(tmp_path / "other", classes=("a", "b"))
    assert "has other classes than" in refusal("confusion", study, other)
    (study / "choice.json").write_text("{")
    assert "choice.json is damaged" in refusal("confusion", study)
    (other / "history.csv").write_text("epoch,train_error\n1,oops\n")
    assert "damaged" in refusal("errors", other)
    assert "holds a run" in refusal("frequencies", other, "--split", "official")
    assert "is a protocol" in refusal("frequencies", "mnist/odd-10", "--imbalance", "odd:0.1")
    assert "did you mean 'mnist/odd-10" in refusal("frequencies", "mnist/odd-1")
    assert "neither a folder, nor a CSV" in refusal("frequencies", "nope")
    assert "split 'half' is unknown" in refusal("frequencies", "digits", "--split", "half")
    assert "did you mean 'paper'" in refusal("network", "papr")
    assert "there is no format 'gif'" in refusal("overview", "--format", "gif")
    assert "3 to 20 inches" in refusal("overview", "--width", "1")
    assert not list(tmp_path.glob("**/*.svg"))


def test_a_folder_named_like_a_protocol_is_that_folder(tmp_path, make_folder, monkeypatch):
    make_folder("mnist/odd-1", cat=5, dog=5)
    monkeypatch.chdir(tmp_path)
    assert count_classes("mnist/odd-1").class_names == ("cat", "dog")
