"""Read costs from a CSV with the class names in the header and in the first column."""

import csv
import io
from pathlib import Path

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.files import read_regular
from cosen.functional.checks import check_misclassification_costs


def read_cost_table(path: Path, class_names: tuple[str, ...]) -> Tensor:
    """Read a number for each pair of classes, row = true class, shape ``(C, C)``.

    The header names the outputs, and each line starts with its true class, in any order.

    Args:
        path: The CSV.
        class_names: The classes of the data; each needs a column and a line.
    """
    try:
        text = read_regular(path).decode("utf-8-sig")
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except FileNotFoundError as error:
        raise InputError(f"there is no cost file {path}") from error
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV: {error}") from error
    if not lines:
        raise InputError(f"{path} is empty: it must have a column and a line for every class")
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(lines[0]) == 1 and separator in lines[0][0]:
            raise InputError(f"{path} is separated by {name}: separate the cells by commas")
    header, rows = lines[0][1:], {line[0]: line[1:] for line in lines[1:]}
    for kind, names in (("columns", header), ("lines", [line[0] for line in lines[1:]])):
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{path} has two {kind} for {name!r}: keep one")
    for name in class_names:
        if name not in header or name not in rows:
            raise InputError(
                f"{path} must have a column and a line for every class, but lacks {name!r}"
            )
    return torch.tensor(
        [
            [_number(path, rows[p], header.index(n), (p, n)) for n in class_names]
            for p in class_names
        ]
    )


def _number(path: Path, row: list[str], column: int, classes: tuple[str, str]) -> float:
    text = row[column] if column < len(row) else ""
    try:
        return float(text)
    except ValueError as error:
        raise InputError(
            f"{path} must hold a number in every cell, but line {classes[0]!r}, column "
            f"{classes[1]!r} has {text!r}"
        ) from error


def read_misclassification_costs(path: Path, class_names: tuple[str, ...]) -> Tensor:
    """Read misclassification costs ξ′: zero on the diagonal, not negative, not all zero."""
    costs = read_cost_table(path, class_names)
    check_misclassification_costs(costs)
    if not bool(costs.any()):
        raise InputError(f"{path} has no cost above zero: set at least one")
    return costs
