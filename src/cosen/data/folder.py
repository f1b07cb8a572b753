"""A folder of class folders, with or without ``train/``, ``val/`` and ``test/`` above them."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cosen.data.images import SYSTEM_FILES
from cosen.data.labelled import LabelledImages, check_excluded
from cosen.data.stores import ImageFiles, printable
from cosen.errors import DataError

PART_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


def from_folder(root: Path | str, *, exclude: tuple[str, ...] = ()) -> LabelledImages:
    """The images below a folder, classed by the name of their class folder.

    Every file in a class folder, at any depth, counts as an image, but for hidden files and what
    file managers leave behind; one that is not an image is reported when images are decoded.
    Classes are numbered in the order of their names.

    Args:
        root: Has the class folders, or the folders ``train``, ``val``, ``test`` (also
            ``training``, ``valid``, ``validation``, ``testing``) that have them.
        exclude: Names of class folders to leave out.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root} is not a folder: give a folder of class folders")
    parts = _part_folders(root, exclude)
    split = bool(parts)
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
                    f"the name of the class folder {printable(str(class_folder))} is not UTF-8: "
                    "rename it"
                )
            files = sorted(files_below(class_folder))
            found += [(class_folder.name, part, file) for file in files]
            if not files:
                empty.append(printable(str(class_folder.relative_to(root))))
    class_names = tuple(sorted({name for name, _, _ in found}))
    _refuse_what_cannot_be_learned(root, found, class_names, empty)

    number = {name: label for label, name in enumerate(class_names)}
    return LabelledImages(
        images=ImageFiles(root, [file for _, _, file in found]),
        rows=np.arange(len(found)),
        labels=np.array([number[name] for name, _, _ in found], dtype=np.int64),
        class_names=class_names,
        source=printable(str(root)),
        parts=np.array([part for _, part, _ in found]) if split else None,
    )


def _part_folders(root: Path, exclude: tuple[str, ...]) -> dict[Path, str]:
    """The folders below a root that are its splits, each with its part; none if it has classes."""
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
            f"{root} has {', '.join(repr(folder.name) for folder in parts)}, but beside them "
            f"{', '.join(map(repr, others))}: if those are no classes, move them elsewhere or "
            "leave them out with --exclude; if all are classes, rename those called as splits are"
        )
    if others:
        return {}
    if parts and "train" not in found:
        raise DataError(
            f"{root} has the folders {', '.join(folder.name for folder in parts)}, but no 'train'"
        )
    return parts


def _refuse_what_cannot_be_learned(
    root: Path, found: list[tuple[str, str, Path]], class_names: tuple[str, ...], empty: list[str]
) -> None:
    if empty:
        names = ", ".join(repr(name) for name in empty)
        raise DataError(
            f"{root}: no image in {names}; add some, or leave the class out with --exclude"
        )
    if not found:
        loose = sum(1 for file in root.iterdir() if file.is_file() and not _is_hidden(file.name))
        hint = f" ({loose} files lie in it directly; put each into a folder of its class)"
        raise DataError(
            f"{root} has no folder of images, one for each class{hint if loose else ''}"
        )
    if len(class_names) == 1:
        raise DataError(
            f"{root} has only one class, {class_names[0]!r}: classification needs at least two"
        )
    trained = {name for name, part, _ in found if part in ("", "train")}
    for name in class_names:
        if name not in trained:
            raise DataError(
                f"class {name!r} has no training image under {root}; "
                f"add one, or leave it out with --exclude {name!r}"
            )


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name in SYSTEM_FILES


def _folders(parent: Path) -> list[Path]:
    with os.scandir(parent) as entries:
        names = [entry.name for entry in entries if entry.is_dir() and not _is_hidden(entry.name)]
    return [parent / name for name in sorted(names)]


def files_below(folder: Path, above: tuple[str, ...] = ()) -> Iterator[Path]:
    """Every file below a folder, links followed; a link to a folder above itself is refused."""
    real = os.path.realpath(folder)
    if real in above:
        raise DataError(f"{folder} is a link to a folder that contains it: remove the link")
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from files_below(folder / entry.name, (*above, real))
            else:
                yield folder / entry.name
