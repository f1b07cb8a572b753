"""Open a dataset: a name, a folder of class folders, a CSV, arrays, or a PyTorch dataset."""

import csv
import logging
import os
from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosen.data.labelled import LabelledImages, check_excluded
from cosen.data.stores import DatasetImages, ImageArray, ImageFiles, as_bytes, printable
from cosen.errors import DataError, InputError, choices_hint, escape_controls
from cosen.files import expand_user, is_file, is_folder

if TYPE_CHECKING:
    from torch import Tensor

_log = logging.getLogger("cosen")

PART_FOLDERS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}

SYSTEM_FILES = frozenset(("Thumbs.db", "desktop.ini", "__MACOSX"))
"""Files of file managers and archivers; they are ignored like hidden files."""


def open_data(
    data: Any, *, root: Path | None = None, exclude: tuple[str, ...] = ()
) -> LabelledImages:
    """Open a dataset.

    Args:
        data: One of

            - the name of a dataset, such as ``"digits"``, ``"mnist"`` or ``"dil:5"``,
            - the path of a folder of class folders (:func:`from_folder`),
            - the path of a CSV with the columns ``path`` and ``label`` (:func:`from_table`),
            - a tuple ``(images, labels)`` of arrays (:func:`from_arrays`),
            - a ``torch.utils.data.Dataset`` of (image, label) pairs (:func:`from_dataset`),
            - a :class:`LabelledImages`.

            If a folder has the name of a dataset, write ``./digits`` for the folder.
        root: The folder of named datasets; default: ``COSEN_DATA`` or ``~/.cache/cosen/data``.
        exclude: Names of classes to remove.

    Example:
        >>> data = open_data((np.zeros((3, 8, 8), np.uint8), [0, 1, 1]))
        >>> data.class_counts
        tensor([1, 2])
    """
    if isinstance(data, str | Path):
        # not at the top: the named datasets import this module
        from cosen.data.named import NAMED, load_named

        path = expand_user(data)
        if isinstance(data, str) and data.partition(":")[0] in NAMED:
            opened = load_named(data, root=root)
        elif is_folder(path):
            return from_folder(path, exclude=exclude)
        elif is_file(path) and path.suffix.lower() == ".csv":
            return from_table(path, exclude=exclude)
        elif is_file(path):
            raise DataError(f"{path} is neither a folder of class folders nor a CSV")
        else:
            raise DataError(
                f"{data} is neither a folder, nor a CSV, nor a dataset's name"
                f"{choices_hint(str(data), NAMED)}"
            )
    elif isinstance(data, LabelledImages):
        opened = data
    elif type(data) is tuple and len(data) == 2:
        opened = from_arrays(*data)
    elif _is_torch_dataset(data):
        opened = from_dataset(data)
    else:
        raise InputError(
            "data must be a path, the name of a dataset, a tuple (images, labels) or a "
            f"torch.utils.data.Dataset with a length, but is of type {type(data).__name__}"
        )
    return opened.without_classes(exclude) if exclude else opened


def _is_torch_dataset(data: object) -> bool:
    from torch.utils.data import Dataset

    return isinstance(data, Dataset) and hasattr(data, "__len__")


def from_folder(root: Path | str, *, exclude: tuple[str, ...] = ()) -> LabelledImages:
    """Open a folder of class folders.

    All files in a class folder, at any depth, count as images, except hidden files and files of
    file managers. Files that are not images are reported when images are decoded. Classes are
    sorted by name.

    Args:
        root: Contains the class folders, or folders ``train``, ``val``, ``test`` (also
            ``training``, ``valid``, ``validation``, ``testing``) with class folders in them.
        exclude: Names of class folders to ignore.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder: give a folder of class folders")
    parts = _part_folders(root, exclude)
    tops = parts or {root: ""}
    known = {folder.name for top in {root, *tops} for folder in _folders(top)}
    check_excluded(exclude, known, printable(str(root)))

    found: list[tuple[str, str, Path]] = []  # class, part, file
    empty: list[str] = []
    for top, part in tops.items():
        for class_folder in _folders(top):
            if class_folder.name in exclude:
                continue
            if printable(class_folder.name) != class_folder.name:
                raise DataError(
                    f"the name of the class folder {printable(str(class_folder))} is not UTF-8 or "
                    "has control characters: rename it"
                )
            files = sorted(files_below(class_folder), key=attrgetter("parts"))  # fast
            found += [(class_folder.name, part, file) for file in files]
            if not files:
                empty.append(printable(str(class_folder.relative_to(root))))
    _check_classes(root, found, empty)
    return LabelledImages.from_names(
        ImageFiles(root, [file for _, _, file in found]),
        [name for name, _, _ in found],
        source=printable(str(root)),
        parts=np.array([part for _, part, _ in found]) if parts else None,
    )


def _part_folders(root: Path, exclude: tuple[str, ...]) -> dict[Path, str]:
    """The split folders below a root, each with its part; empty if the root has class folders."""
    folders = _folders(root)
    parts = {
        folder: PART_FOLDERS[folder.name.lower()]
        for folder in folders
        if folder.name.lower() in PART_FOLDERS
    }
    others = [folder.name for folder in folders if folder not in parts]
    others = [printable(name) for name in others if name not in exclude]
    found = set(parts.values())
    if others and "train" in found and len(found) > 1:
        raise DataError(
            f"{root} has the split folders {', '.join(repr(folder.name) for folder in parts)}, but "
            f"also {', '.join(map(repr, others))}: move these elsewhere or use --exclude. If all "
            "are class folders, rename those with names of splits"
        )
    if others:
        return {}
    if parts and "train" not in found:
        raise DataError(
            f"{root} has the folders {', '.join(folder.name for folder in parts)}, but no 'train'"
        )
    return parts


def _check_classes(root: Path, found: list[tuple[str, str, Path]], empty: list[str]) -> None:
    """Raise an error if a class has no (training) image, or if there are fewer than two classes."""
    if empty:
        names = ", ".join(repr(name) for name in empty)
        raise DataError(f"{root}: no image in {names}; add some, or use --exclude")
    if not found:
        loose = sum(1 for file in root.iterdir() if file.is_file() and not _is_hidden(file.name))
        hint = f" ({loose} files are directly in it; move each into a folder for its class)"
        raise DataError(f"{root} has no class folders with images{hint if loose else ''}")
    class_names = sorted({name for name, _, _ in found})
    if len(class_names) == 1:
        raise DataError(
            f"{root} has only one class, {class_names[0]!r}: classification needs at least two"
        )
    trained = {name for name, part, _ in found if part in ("", "train")}
    for name in class_names:
        if name not in trained:
            raise DataError(
                f"class {name!r} has no training image under {root}; "
                f"add one, or use --exclude {name!r}"
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in SYSTEM_FILES


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: decoding reports it
        return False


def _folders(parent: Path) -> list[Path]:
    with os.scandir(parent) as entries:
        names = [
            entry.name for entry in entries if _is_folder(entry) and not _is_hidden(entry.name)
        ]
    return [parent / name for name in sorted(names)]


def files_below(folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """List all files below a folder. Links are followed; a link to a parent folder is an error."""
    real = os.path.realpath(folder)
    if real in above:
        raise DataError(f"{folder} is a link to a folder that contains it: remove the link")
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if _is_folder(entry):
                yield from files_below(folder / entry.name, (*above, real))
            else:
                yield folder / entry.name


def from_table(table: Path | str, *, exclude: tuple[str, ...] = ()) -> LabelledImages:
    """Open a CSV in UTF-8 with a header.

    The columns ``path`` and ``label`` are required. Paths are absolute, or relative to the folder
    of the CSV. ``group`` and ``split`` are optional; a split is ``train``, ``val`` or ``test``, and
    an empty cell counts as ``train``.

    Args:
        table: The CSV.
        exclude: Labels to remove.
    """
    table = Path(table)
    lines = _read_csv(table)
    check_excluded(exclude, {row["label"] for _, row in lines}, str(table))
    lines = [(number, row) for number, row in lines if row["label"] not in exclude]
    rows = _without_repeats(table, lines)
    paths = [table.parent / row["path"] for row in rows]
    missing = [printable(str(path)) for path in paths if not is_file(path)]
    if missing:
        shown = "".join(f"\n  {path}" for path in missing[:20])
        more = f"\n  and {len(missing) - 20} more" if len(missing) > 20 else ""
        raise DataError(
            f"{table} lists files that do not exist or are not files ({len(missing)}):{shown}{more}"
        )
    columns = rows[0].keys() if rows else ()
    data = LabelledImages.from_names(
        ImageFiles(table.parent, paths),
        [row["label"] for row in rows],
        source=str(table),
        groups=np.array([row["group"] for row in rows]) if "group" in columns else None,
        parts=np.array([row["split"] for row in rows]) if "split" in columns else None,
    )
    if data.num_classes < 2:
        raise DataError(
            f"{table} has {data.num_classes} class{'' if data.num_classes == 1 else 'es'}: "
            "classification needs at least two"
        )
    return data


def _read_csv(table: Path) -> list[tuple[int, dict[str, str]]]:
    """Read and check the lines of a CSV; returns each with its number."""
    lines = []
    try:
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            for row in reader:
                lines.append((reader.line_num, row))
    except FileNotFoundError as error:
        raise DataError(f"{table} does not exist") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{table} is not UTF-8: save it as UTF-8") from error
    except (csv.Error, OSError) as error:
        raise DataError(f"{table} is not a CSV: {error}") from error
    if not lines:
        raise DataError(f"{table} lists no images")
    columns = [column for column in lines[0][1] if column is not None]
    for column in ("path", "label"):
        for separator, name in ((";", "semicolons"), ("\t", "tabs")):
            if len(columns) == 1 and separator in columns[0]:
                raise DataError(f"{table} is separated by {name}: separate the cells by commas")
        if column not in columns:
            raise DataError(
                f"{table} has no column {column!r}, but {', '.join(sorted(columns))}: "
                "the first line must name the columns, at least path and label"
            )
    for number, row in lines:
        where = f"{table}, line {number}"
        if None in row or None in row.values():
            raise DataError(f"{where}: the number of cells differs from the header")
        label, split = row["label"], row.get("split", "").strip().lower()
        if not label.strip():
            raise DataError(f"{where}: the label is empty; give every image a class")
        if escape_controls(label) != label:
            raise DataError(f"{where}: the label {label!r} has control characters; rename it")
        row["label"] = label.strip()
        if split and split not in PART_FOLDERS:
            raise DataError(f"{where}: split is {row['split']!r}; use train, val or test")
        if "split" in row:
            row["split"] = PART_FOLDERS.get(split, "train")
    return lines


@cache
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def _real_path(path: Path) -> str:
    """Return the path without links; quickly, since many files are in the same folder."""
    try:
        if path.is_symlink():
            return os.path.realpath(path)
        folder, name = os.path.split(os.path.normpath(path))
        return os.path.join(_real_folder(folder), name)  # noqa: PTH118
    except (OSError, ValueError):  # a name that no file can have
        return str(path)


def _without_repeats(table: Path, lines: list[tuple[int, dict[str, str]]]) -> list[dict[str, str]]:
    """Use a file that is listed twice once, with a warning; it must have the same label each time.

    Otherwise it could be in the training and in the test set.
    """
    first: dict[str, tuple[int, dict[str, str]]] = {}
    repeats: list[str] = []
    for number, row in lines:
        earlier, known = first.setdefault(_real_path(table.parent / row["path"]), (number, row))
        if known is row:
            continue
        for column in ("label", "split", "group"):
            if known.get(column) != row.get(column):
                raise DataError(
                    f"{table}, lines {earlier} and {number}: {printable(row['path'])} has the "
                    f"{column} {known[column]!r} and {row[column]!r}; keep one of the lines"
                )
        repeats.append(f"{earlier} and {number}")
    if repeats:
        more = f" and {len(repeats) - 5} more" if len(repeats) > 5 else ""
        shown = ", ".join(repeats[:5])
        _log.warning("%s lists files twice, each is used once: lines %s%s", table, shown, more)
    return [row for _, row in first.values()]


def from_arrays(
    images: Any,
    labels: Any,
    *,
    class_names: Sequence[str] | None = None,
    groups: Any = None,
    source: str = "arrays",
) -> LabelledImages:
    """Use images and labels in memory.

    Args:
        images: uint8, or floats in [0, 1]; ``(N, H, W)``, ``(N, H, W, C)`` or ``(N, C, H, W)``
            with one or three channels.
        labels: Class numbers, shape ``(N,)``.
        class_names: The names of the classes; default: their numbers.
        groups: The group of each image, shape ``(N,)``; splits keep groups together.
        source: Name of the data in messages.
    """
    pixels = _as_array(images)
    if pixels.ndim == 4 and pixels.shape[3] not in (1, 3) and pixels.shape[1] in (1, 3):
        pixels = pixels.transpose(0, 2, 3, 1)
    numbers = _as_labels(labels, source)
    if len(numbers) != len(pixels):
        raise DataError(f"{source}: {len(pixels)} images, but {len(numbers)} labels")
    return LabelledImages(
        images=ImageArray(as_bytes(pixels)),
        rows=np.arange(len(numbers)),
        labels=numbers,
        class_names=_names(numbers, class_names),
        source=source,
        groups=None if groups is None else np.asarray(groups),
    )


def from_dataset(
    dataset: Any, *, class_names: Sequence[str] | None = None, source: str = "dataset"
) -> LabelledImages:
    """Use a map-style ``torch.utils.data.Dataset`` of (image, label) pairs.

    Args:
        dataset: The dataset, also a ``Subset`` or ``ConcatDataset``.
        class_names: The names of the classes; default: its ``classes``, else their numbers.
        source: Name of the data in messages.
    """
    labels = labels_of(dataset)
    names = class_names if class_names is not None else _classes_of(dataset)
    return LabelledImages(
        images=DatasetImages(dataset),
        rows=np.arange(len(labels)),
        labels=labels,
        class_names=_names(labels, names),
        source=source,
    )


def labels_of(dataset: Any) -> np.ndarray:
    """Return the label of each item of a dataset, if possible without decoding images.

    Labels are taken from ``targets``, ``labels`` or ``y``, from the (path, label) pairs in
    ``samples``, or from the last tensor of a ``TensorDataset``, also inside a ``Subset`` or
    ``ConcatDataset``. Otherwise every item is read.
    """
    if isinstance(dataset, LabelledImages):
        return dataset.labels
    if hasattr(dataset, "datasets"):  # ConcatDataset
        return np.concatenate([labels_of(part) for part in dataset.datasets])
    if hasattr(dataset, "dataset") and hasattr(dataset, "indices"):  # Subset
        return labels_of(dataset.dataset)[np.asarray(dataset.indices, dtype=np.int64)]
    for name in ("targets", "labels", "y"):
        if getattr(dataset, name, None) is not None:
            return _as_labels(getattr(dataset, name), f"the dataset's {name}")
    if hasattr(dataset, "samples"):
        return _as_labels([label for _, label in dataset.samples], "the dataset's samples")
    if hasattr(dataset, "tensors"):
        return _as_labels(dataset.tensors[-1], "the dataset's last tensor")
    return _as_labels([int(dataset[index][1]) for index in range(len(dataset))], "the dataset")


def class_counts(dataset: Any, *, num_classes: int | None = None) -> "Tensor":
    """Count the items of each class of a dataset, shape ``(C,)``; see :func:`labels_of`.

    Example:
        >>> import torch
        >>> from torch.utils.data import Subset, TensorDataset
        >>> whole = TensorDataset(torch.zeros(6, 2), torch.tensor([0, 0, 1, 2, 2, 2]))
        >>> class_counts(Subset(whole, [0, 1, 5]), num_classes=3)
        tensor([2, 0, 1])
    """
    import torch

    return torch.from_numpy(np.bincount(labels_of(dataset), minlength=num_classes or 0))


def _as_array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _as_labels(labels: Any, source: str) -> np.ndarray:
    numbers = _as_array(labels)
    kind = numbers.dtype.kind
    whole = kind in "iub" or (kind == "f" and bool((numbers == np.floor(numbers)).all()))
    if numbers.ndim != 1 or not (whole or not len(numbers)):
        raise DataError(
            f"labels of {source} must be class numbers of shape (N,), "
            f"but are {numbers.dtype} of shape {numbers.shape}"
        )
    if len(numbers) and numbers.min() < 0:
        raise DataError(f"labels of {source} must not be negative, but one is {numbers.min()}")
    return numbers.astype(np.int64)


def _classes_of(dataset: Any) -> Sequence[str] | None:
    if hasattr(dataset, "datasets") and len(dataset.datasets):
        return _classes_of(dataset.datasets[0])
    if hasattr(dataset, "dataset"):
        return _classes_of(dataset.dataset)
    classes = getattr(dataset, "classes", None)
    return [str(name) for name in classes] if classes is not None else None


def _names(labels: np.ndarray, class_names: Sequence[str] | None) -> tuple[str, ...]:
    if class_names is not None:
        return tuple(class_names)
    return tuple(str(label) for label in range(int(labels.max(initial=-1)) + 1))
