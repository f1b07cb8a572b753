"""A CSV of paths and labels, with optional columns for groups and splits."""

import csv
from pathlib import Path

import numpy as np

from cosen.data.folder import PART_FOLDERS
from cosen.data.labelled import LabelledImages, check_excluded
from cosen.data.stores import ImageFiles
from cosen.errors import DataError


def from_table(
    table: Path | str,
    *,
    exclude: tuple[str, ...] = (),
    path_column: str = "path",
    label_column: str = "label",
    group_column: str = "group",
    split_column: str = "split",
) -> LabelledImages:
    """The images that a CSV lists.

    Args:
        table: A CSV in UTF-8 with a header. Paths are relative to its folder, or absolute.
        exclude: Labels to leave out.
        path_column: Where the path of an image stands.
        label_column: Where its class stands.
        group_column: Where its group stands, if there is such a column.
        split_column: Where ``train``, ``val`` or ``test`` stands, if there is such a column; an
            empty cell counts as ``train``.
    """
    table = Path(table)
    rows = _read(table)
    columns = set(rows[0]) if rows else set()
    for column in (path_column, label_column):
        if column not in columns:
            raise DataError(
                f"{table} has no column {column!r}, but {', '.join(sorted(columns)) or 'none'}: "
                "the first line must name the columns, at least path and label"
            )
    check_excluded(exclude, {row[label_column] for row in rows}, str(table))
    rows = [row for row in rows if row[label_column] not in exclude]
    paths = [table.parent / row[path_column] for row in rows]
    missing = [str(path) for path in paths if not path.is_file()]
    if missing:
        shown = "".join(f"\n  {path}" for path in missing[:20])
        more = f"\n  and {len(missing) - 20} more" if len(missing) > 20 else ""
        raise DataError(f"{table} lists files that are not there ({len(missing)}):{shown}{more}")
    class_names = tuple(sorted({row[label_column] for row in rows}))
    if len(class_names) < 2:
        raise DataError(
            f"{table} has {len(class_names)} class{'' if len(class_names) == 1 else 'es'}: "
            "classification needs at least two"
        )
    number = {name: label for label, name in enumerate(class_names)}
    return LabelledImages(
        images=ImageFiles(table.parent, paths),
        rows=np.arange(len(rows)),
        labels=np.array([number[row[label_column]] for row in rows], dtype=np.int64),
        class_names=class_names,
        source=str(table),
        groups=np.array([row[group_column] for row in rows]) if group_column in columns else None,
        parts=_parts(table, rows, split_column) if split_column in columns else None,
    )


def _read(table: Path) -> list[dict[str, str]]:
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except FileNotFoundError as error:
        raise DataError(f"{table} is not there") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{table} is not UTF-8: save it as UTF-8") from error
    except csv.Error as error:
        raise DataError(f"{table} is not a CSV: {error}") from error
    if not rows:
        raise DataError(f"{table} lists no images")
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise DataError(f"{table}, line {number}: not as many cells as the header has columns")
    return rows


def _parts(table: Path, rows: list[dict[str, str]], column: str) -> np.ndarray:
    parts = []
    for number, row in enumerate(rows, start=2):
        given = row[column].strip().lower()
        if given and given not in PART_FOLDERS:
            raise DataError(
                f"{table}, line {number}: {column} is {row[column]!r}; use train, val or test"
            )
        parts.append(PART_FOLDERS.get(given, "train"))
    return np.array(parts)
