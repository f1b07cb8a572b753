"""An expert's misclassification costs, as a CSV with the class names in the header."""

import csv
from pathlib import Path

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import check_misclassification_costs


def read_expert(path: Path, class_names: tuple[str, ...]) -> Tensor:
    """ξ′ from a CSV: a header with the decisions, then a line for each true class.

    The first cell of a line is the true class; classes may stand in any order.

    Args:
        path: The CSV.
        class_names: The classes of the data, which all must be there.

    Returns:
        Costs, row = true class, shape ``(C, C)``.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except FileNotFoundError as error:
        raise InputError(f"there is no file {path} of misclassification costs") from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a CSV: {error}") from error
    header = lines[0][1:] if lines else []
    rows = {line[0]: line[1:] for line in lines[1:]}
    for name in class_names:
        if name not in header or name not in rows:
            raise InputError(
                f"{path} must have a column and a line for every class, but lacks {name!r}"
            )
    try:
        costs = torch.tensor(
            [[float(rows[p][header.index(n)]) for n in class_names] for p in class_names]
        )
    except (ValueError, IndexError) as error:
        raise InputError(f"{path} must hold a number in every cell: {error}") from error
    check_misclassification_costs(costs)
    if not bool(costs.any()):
        raise InputError(f"{path} has no cost above zero: then every decision is as good")
    return costs
