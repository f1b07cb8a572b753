import io

import pytest
from rich.console import Console

from comparing.test_leaderboard import COSTS, board_of, random_runs
from cosen.comparing.bootstrap import Change, Spread
from cosen.comparing.leaderboard import Leaderboard, MethodRow
from cosen.comparing.leaderboard_table import (
    cells_of,
    format_change,
    format_error,
    headings_of,
    leaderboard_table,
)
from cosen.costs import OVERALL

NAMES = ("baseline", "balanced-softmax", "cosen", "class-balanced-cross-entropy")


def printed(board, width, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, **options)
    console.print(leaderboard_table(board, width=width))
    return console.file.getvalue()


def widest_board(largest_cost=None):
    """Make a leaderboard with the longest numbers."""
    means = {
        name: Spread(1.0, 0.123, 3)
        for name in ("accuracy", "mean_recall", "g_mean", "macro_f1", "rare_recall", "error")
    }
    seeds, failures = (0, 1, 2), dict.fromkeys(range(3), "too few cats")
    rows = [
        MethodRow(
            method=name,
            seeds=seeds,
            failures={},
            test=means,
            val=means,
            changes={"objective": Change(-0.1234, -0.2345, 0.1234)},
            seconds=12345.0,
        )
        for name in NAMES
    ]
    empty = {"test": {}, "val": {}, "changes": {}, "seconds": None}
    return Leaderboard(
        objective="balanced" if largest_cost is None else "costs",
        largest_cost=largest_cost,
        baseline="baseline",
        seeds=seeds,
        rows=(*rows, MethodRow(method="smote", seeds=(), failures=failures, **empty)),
    )


@pytest.mark.parametrize("largest_cost", [None, 5.0])
@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_nothing_is_cut(width, largest_cost):
    board = widest_board(largest_cost)
    text = printed(board, width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for row in board.rows:
        for cell in cells_of(board, row)[1:]:
            for part in cell:
                assert all(word in words for word in part.split()), part
    for heading in headings_of(board):
        assert all(word in words for word in heading.split())
    for name in NAMES:
        assert name in text or all(piece in text for piece in name.split("-"))
    assert "too few cats" in text


def short_names(board):
    return board.changed(rows=tuple(row for row in board.rows if len(row.method) < 17))


def test_a_console_narrower_than_the_width_cuts_nothing():
    console = Console(file=io.StringIO(), width=80)
    console.print(leaderboard_table(short_names(widest_board()), width=120))
    assert "…" not in console.file.getvalue()
    assert "12345" in console.file.getvalue()


def test_a_row_is_one_line_if_there_is_space():
    board = short_names(widest_board())
    lines = printed(board, 120).splitlines()
    assert lines[0].split() == " ".join(headings_of(board)).split()
    assert lines[1].split() == [
        "baseline",
        *["100.0", "±", "12.3"] * 5,
        *["-12.3", "(-23.4", "to", "+12.3)"],
        "12345",
    ]
    assert lines[4].split() == ["smote", *["-"] * 7]
    assert lines[-1].strip() == "smote failed: too few cats"


def test_deviations_move_to_a_second_line_if_there_is_no_space():
    lines = printed(short_names(widest_board()), 80).splitlines()
    assert lines[2].split() == ["baseline", *["100.0"] * 5, "-12.3", "12345"]
    assert lines[3].split() == [*["±", "12.3"] * 5, "(-23.4", "to", "+12.3)"]
    assert any(line.startswith("balanced-softmax ") for line in lines)


def test_long_reasons_are_not_cut(tmp_path):
    """Also with soft wrapping, which ``cosen train`` uses for tables."""
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8}, seeds=(0, 1))
    reason = "the data has [bold] brackets and " + "very " * 40 + "many words"
    board = board_of(runs, {"smote": {0: reason, 1: "other"}}, objective=COSTS)
    for soft_wrap in (False, True):
        text = printed(board, 80, soft_wrap=soft_wrap)
        assert "…" not in text
        whole = " ".join(text.split())
        assert f"smote failed: seed 0: {reason}; seed 1: other" in whole
        assert "On test, in per cent except for costs, mean" in whole
        assert "Change in mean cost against baseline, with 95 % interval." in whole


def test_one_seed_has_no_deviation(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8}, seeds=(0,))
    text = printed(board_of(runs, objective=OVERALL), 80)
    assert "±" not in text
    assert "On test, in per cent, one seed." in text


@pytest.mark.parametrize(
    ("largest", "text"), [(1.0, "0.250"), (5.0, "1.25"), (100.0, "25.0"), (2000.0, "500")]
)
def test_costs_have_the_decimals_that_matter(largest, text):
    assert format_error(0.25, largest) == text


def test_no_change_has_no_sign_of_a_loss():
    assert format_change(Change(-0.0001, -0.0004, 0.0), None) == ("+0.0", "+0.0", "+0.0")
