"""A report about a study."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cosen.comparing.bootstrap import Change
from cosen.comparing.choice import Choice
from cosen.comparing.leaderboard import Leaderboard
from cosen.comparing.leaderboard_table import cells_of, headings_of, notes_of
from cosen.comparing.study_folder import StudyFolder
from cosen.errors import RunError
from cosen.report.learned_costs import learned_costs
from cosen.report.provenance import title
from cosen.report.run_data import Shown, Side, read_shown
from cosen.report.subject import Subject
from cosen.report.verdict import untested
from cosen.training.run_folder import RunFolder


def study_subject(study: StudyFolder) -> Subject:
    """A study: the method that was chosen, beside the baseline."""
    about, board, choice = study.about(), study.leaderboard(), _read_choice(study)
    if choice.method is None:
        raise RunError(f"no run of {study.path} has finished, so there is nothing to show")
    # where the choice is the baseline, the best of the others is what can be seen beside it
    chosen = choice.challenger or choice.method
    baseline = board.baseline if board.baseline != chosen else None
    shown = Shown(
        _side(study, chosen, choice.seeds),
        None if baseline is None else _side(study, baseline, choice.seeds),
    )
    roles = {chosen: "chosen" if chosen == choice.method else "shown"}
    if baseline is not None:
        roles[baseline] = "baseline"
    costs, why_no_costs = learned_costs(_runs_of_study(study, board, chosen))
    notes = [*choice.caveats]
    if chosen != choice.method:
        notes.append(
            f"Shown beside the baseline is {chosen}, the best of the other methods on validation."
        )
    return Subject(
        kind="study",
        title=title(about),
        shown=shown,
        about=about,
        objective=shown.first.folder.objective(),
        verdict=choice.sentence,
        caveats=[*notes, *untested(shown), *([why_no_costs] if why_no_costs else [])],
        costs=costs,
        leaderboard=_leaderboard(board, roles),
    )


def _side(study: StudyFolder, method: str, seeds: tuple[int, ...]) -> Side:
    return Side(method, {seed: read_shown(study.run(method, seed)) for seed in seeds})


def _runs_of_study(
    study: StudyFolder, board: Leaderboard, chosen: str
) -> Iterator[tuple[str, int, RunFolder]]:
    """All finished runs: those of the chosen method, then of cosen, then of the others."""
    seeds = {row.method: row.seeds for row in board.rows}
    for method in dict.fromkeys([chosen, "cosen", *seeds]):
        for seed in seeds.get(method, ()):
            yield method, seed, study.run(method, seed)


def _leaderboard(board: Leaderboard, roles: Mapping[str, str]) -> dict[str, Any]:
    return {
        "headings": headings_of(board),
        "rows": [
            {
                "method": row.method,
                "cells": [" ".join(cell) for cell in cells_of(board, row)[1:]],
                "role": roles.get(row.method),
            }
            for row in board.rows
        ],
        "notes": notes_of(board),
    }


def _read_choice(study: StudyFolder) -> Choice:
    path = study.path / "choice.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        changes = {name: found[name] and Change(**found[name]) for name in ("validation", "test")}
        lists = {name: tuple(found[name]) for name in ("within_noise", "seeds", "caveats")}
        return Choice(**found | changes | lists)
    except FileNotFoundError as error:
        raise RunError(
            f"{study.path} has no {path.name}: the study is not finished; run the same command "
            "again"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from error
