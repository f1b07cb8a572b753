"""Execute the notebooks of this folder, and store their outputs in them."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient


def execute(path: Path) -> nbformat.NotebookNode:
    """Execute a notebook; raise an error if a cell does. Warnings are not stored."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, record_timing=False, coalesce_streams=True)
    client.execute()
    notebook.metadata.pop("language_info", None)  # the version of Python
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    for path in sorted(Path(__file__).parent.glob("*.ipynb")):
        print(path.name, flush=True)
        nbformat.write(execute(path), path)
