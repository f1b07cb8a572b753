"""The command, from a run to a self-contained page."""

import re
import webbrowser
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cosen.cli.models import report
from cosen.errors import CosenError, InputError, RunError
from cosen.report import write_report
from cosen.training.config import TrainConfig
from cosen.training.run import train_run
from report.small_runs import COSTLY, PLAIN, write_run, write_study

pytestmark = pytest.mark.training

ODD_NAMES = ("<script>alert(1)</script>", "</script> & \"quotes\" 'too'", "two\nlines שלום")
LOADED = re.compile(
    r"<(script|link|img|iframe|object|embed|source)\b[^>]*\s(src|href|data)=.([^\"']*)"
)


@dataclass(frozen=True)
class Done:
    said: str
    problem: CosenError | None


@pytest.fixture
def command():
    """Runs ``cosen report`` with these arguments."""
    app = typer.Typer()
    app.command()(report)

    def call(*arguments):
        result = CliRunner().invoke(app, list(map(str, arguments)))
        if result.exception is not None and not isinstance(result.exception, CosenError):
            raise result.exception
        return Done(result.output, result.exception)

    return call


def check_complete(page):
    """The page loads nothing."""
    text = page.read_text(encoding="utf-8")
    for tag, _, address in LOADED.findall(text):
        assert address.startswith(("data:", "#")), (tag, address)
    assert "@import" not in text
    assert not re.search(r"url\(\s*['\"]?http", text)
    return text


def test_a_real_run_to_a_page(tmp_path, command):
    config = {
        "data": "digits",
        "exclude": tuple("3456789"),
        "imbalance": "1=20",
        "epochs": 2,
        "device": "cpu",
        "precision": "float32",
    }
    for method in ("cosen", "baseline"):
        train_run(TrainConfig(**config, method=method), tmp_path / method)
    done = command(tmp_path / "cosen", "--against", tmp_path / "baseline")
    page = tmp_path / "cosen" / "report.html"
    size = page.stat().st_size
    assert done.said == f"Wrote {page} ({size / 1e6:.1f} MB)\n"
    assert size < 3_000_000
    text = check_complete(page)
    assert "digits, 1=20, cosen compared with baseline" in text
    alone = command(tmp_path / "baseline", "--out", tmp_path / "alone.html")
    assert alone.problem is None
    check_complete(tmp_path / "alone.html")


def test_a_study_to_a_page(tmp_path, command):
    study = write_study(tmp_path / "study", {"baseline": PLAIN, "cosen": COSTLY})
    assert command(study.path).problem is None
    check_complete(study.path / "report.html")


def test_names_are_escaped(tmp_path):
    names = [f"{ODD_NAMES[0]}/{row}.png" for row in range(8)]
    write_run(tmp_path / "run", COSTLY, names=ODD_NAMES, image_names=names, method="own <b>method")
    text = check_complete(write_report(tmp_path / "run"))
    assert "<script>alert(1)</script>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "own <b>method" not in text


def test_it_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_run(tmp_path / "run", COSTLY)
    page = write_report(tmp_path / "run")
    before = page.read_text()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(RunError, match="No space left on device"):
        write_report(tmp_path / "run")
    assert page.read_text() == before
    assert [path.name for path in (tmp_path / "run").glob(".*.part")] == []


def test_open(tmp_path, command, monkeypatch):
    write_run(tmp_path / "my run", COSTLY)
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not opened.append(address))
    command(tmp_path / "my run", "--open")
    assert opened == [f"file://{tmp_path}/my%20run/report.html"]
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert "No browser was found" in command(tmp_path / "my run", "--open").said


def test_mistakes_are_one_sentence(tmp_path, command):
    write_run(tmp_path / "run", COSTLY)
    write_run(tmp_path / "other", COSTLY, fingerprint="other")
    write_run(tmp_path / "cut", COSTLY)
    (tmp_path / "cut" / "metrics.json").unlink()
    study = write_study(tmp_path / "study", {"baseline": PLAIN, "cosen": COSTLY})
    run = tmp_path / "run"
    for kind, words, *arguments in (
        (RunError, "not a run folder or a study folder", tmp_path),
        (RunError, "not a run folder or a study folder", tmp_path / "nowhere"),
        (RunError, "not finished", tmp_path / "cut"),
        (RunError, "do not have the same split", run, "--against", tmp_path / "other"),
        (RunError, "is not a run folder", run, "--against", tmp_path),
        (InputError, "has its own baseline", study.path, "--against", run),
        (InputError, "is a study", run, "--against", study.path),
        (InputError, "does not exist", run, "--out", tmp_path / "nowhere" / "a.html"),
        (InputError, "is a folder: name a file", run, "--out", tmp_path),
    ):
        done = command(*arguments)
        assert isinstance(done.problem, kind), arguments
        assert words in str(done.problem)
        assert len(str(done.problem).splitlines()) == 1
        assert done.said == ""
    (study.path / "choice.json").unlink()
    assert "the study is not finished" in str(command(study.path).problem)
    assert not list(tmp_path.rglob("report.html"))
