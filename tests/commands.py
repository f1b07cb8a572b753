"""Run commands in this process, which has already imported torch."""

import os
import sys
from dataclasses import dataclass
from unittest import mock

from cosen.__main__ import main


@dataclass(frozen=True)
class Done:
    """The exit code of a command, and what it printed."""

    returncode: int
    stdout: str
    stderr: str


def run_command(capsys, monkeypatch, *arguments: str) -> Done:
    """Run ``cosen`` with these arguments; restore the environment afterwards."""
    monkeypatch.setattr(sys, "argv", ["cosen", *arguments])
    code = 0
    with mock.patch.dict(os.environ):
        try:
            main()
        except SystemExit as left:
            code = left.code
    return Done(code, *capsys.readouterr())


def words(text):
    """A text without line breaks and columns."""
    return " ".join(text.split())
