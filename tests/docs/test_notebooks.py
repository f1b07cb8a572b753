"""The notebooks of the tutorials run, and have small stored outputs."""

import importlib.util
import json
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))

pytest.importorskip("nbclient", reason="notebooks need the extra docs")
spec = importlib.util.spec_from_file_location("execute", TUTORIALS / "execute.py")
program = importlib.util.module_from_spec(spec)
spec.loader.exec_module(program)


@pytest.mark.training
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs_and_prints(path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = program.execute(path)
    stored = json.loads(path.read_text(encoding="utf-8"))
    for cell, before in zip(notebook.cells, stored["cells"], strict=True):
        assert bool(cell.get("outputs")) == bool(before.get("outputs")), cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_stored_outputs_are_small_and_name_no_folder_of_a_machine(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = json.dumps([cell.get("outputs", []) for cell in cells])
    assert 500 < len(outputs) < 10_000
    assert "image/png" not in outputs
    assert not any(folder in outputs for folder in ("/home/", "/tmp/", "/root/", "site-packages"))
