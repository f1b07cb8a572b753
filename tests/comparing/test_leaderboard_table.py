import io
from dataclasses import replace

import pytest
from rich.console import Console
from study.test_leaderboard import COSTS, random_runs

from cosen.comparing.bootstrap import Change
from cosen.comparing.leaderboard import Leaderboard, MethodRow, make_leaderboard
from cosen.comparing.leaderboard_table import Measure, cells_of, headings_of, leaderboard_table
from cosen.comparing.spread import Spread

NAMES = ("baseline", "balanced-softmax", "cosen", "class-balanced-cross-entropy")


def printed(board, width, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, **options)
    console.print(leaderboard_table(board, width=width))
    return console.file.getvalue()


def widest_board(measure=None):
    """Numbers as long as they come."""
    figures = {
        name: Spread(1.0, 0.123, 3)
        for name in ("accuracy", "mean_recall", "g_mean", "macro_f1", "rare_recall", "error")
    }
    change = Change(-0.1234, -0.2345, 0.1234)
    rows = [
        MethodRow(name, (0, 1, 2), {}, figures, figures, {"objective": change}, 12345.0)
        for name in NAMES
    ]
    failed = MethodRow("smote", (), dict.fromkeys(range(3), "too few cats"), {}, {}, {}, None)
    return Leaderboard(measure or Measure("balanced"), "baseline", (0, 1, 2), (*rows, failed))


@pytest.mark.parametrize("measure", [Measure("balanced"), Measure("expert", 5.0)])
@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_nothing_is_cut(width, measure):
    board = widest_board(measure)
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
    return replace(board, rows=tuple(row for row in board.rows if len(row.method) < 17))


def test_a_console_that_is_narrower_than_said_cuts_nothing():
    console = Console(file=io.StringIO(), width=80)
    console.print(leaderboard_table(short_names(widest_board())))
    assert "…" not in console.file.getvalue()
    assert "12345" in console.file.getvalue()


def test_a_row_is_a_line_where_there_is_space():
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


def test_spreads_stand_below_where_there_is_none():
    lines = printed(short_names(widest_board()), 80).splitlines()
    assert lines[2].split() == ["baseline", *["100.0"] * 5, "-12.3", "12345"]
    assert lines[3].split() == [*["±", "12.3"] * 5, "(-23.4", "to", "+12.3)"]
    assert any(line.startswith("balanced-softmax ") for line in lines)


def test_as_the_command_prints_it(tmp_path):
    """With soft wrapping, as ``cosen train`` prints tables, long reasons are whole as well."""
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8}, seeds=(0, 1))
    reason = "the data has [bold] brackets and " + "very " * 40 + "many words"
    board = make_leaderboard(runs, {"smote": {0: reason, 1: "other"}}, objective=COSTS)
    for soft_wrap in (False, True):
        text = printed(board, 80, soft_wrap=soft_wrap)
        assert "…" not in text
        whole = " ".join(text.split())
        assert f"smote failed: seed 0: {reason}; seed 1: other" in whole
        assert "Change: of the mean cost against baseline, with its 95 % interval." in whole


def test_one_seed_has_no_spread(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8}, seeds=(0,))
    text = printed(make_leaderboard(runs, {}, objective="overall"), 80)
    assert "±" not in text
    assert "On test, in per cent, one seed." in text


@pytest.mark.parametrize(
    ("largest", "text"), [(1.0, "0.250"), (5.0, "1.25"), (100.0, "25.0"), (2000.0, "500")]
)
def test_costs_have_the_decimals_that_matter(largest, text):
    assert Measure("expert", largest).value(0.25) == text


def test_no_change_has_no_sign_of_a_loss():
    assert Measure("overall").change(Change(-0.0001, -0.0004, 0.0)) == ("+0.0", "+0.0", "+0.0")
