"""The figures: they show the right values, and all text is readable."""

import ast
import re
import sys
from functools import cache
from itertools import combinations
from pathlib import Path
from unittest.mock import patch
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import same_color
from matplotlib.contour import ContourSet
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from cosen import functional as F
from cosen.errors import InputError, RunError
from cosen.networks import build_network
from cosen.networks.layer_table import layer_table, table_totals
from cosen.paper.figures import style
from cosen.paper.figures.class_counts import ClassCounts, draw_frequencies
from cosen.paper.figures.diagrams import draw_network, draw_overview, pretrained_layers
from cosen.paper.figures.loss_figures import CASES, draw_loss_surface, draw_surrogates
from cosen.paper.figures.run_figures import (
    ErrorCurves,
    NamedConfusion,
    draw_confusion,
    draw_errors,
)
from cosen.paper.figures.style import (
    PALE_BLUE,
    PALE_ORANGE,
    one_line,
    parse_formats,
    shortened,
    text_width,
    write_figure,
)

HOSTILE = [
    "$\\frac{1}$",
    "a_b^c $",
    "<script>alert('1')</script>",
    "two\nlines\tand\x00more",
    '\udcff\ufffe & "quotes"',
    "",
    "very long name of a species of coral that no axis has room for",
]


def confusions(classes, *, methods=("baseline", "cosen")):
    draw = np.random.default_rng(classes)
    return [
        NamedConfusion(
            name, draw.integers(0, 2, (classes, classes)) + np.diag(draw.integers(9, 60, classes))
        )
        for name in methods
    ]


def counts(classes, name="photos"):
    draw = np.random.default_rng(classes)
    names = tuple(f"species {number}" for number in range(classes))
    return ClassCounts(name, names, tuple(draw.integers(5, 9000, classes).tolist()))


def curves(*names, runs=2, epochs=12):
    draw = np.random.default_rng(0)
    falling = np.linspace(0.6, 0.1, epochs)
    return [
        ErrorCurves(
            name,
            np.arange(1, epochs + 1),
            falling * draw.uniform(0.3, 0.6, (runs, 1)),
            falling * draw.uniform(0.7, 1.0, (runs, 1)),
        )
        for name in names
    ]


@cache
def layers(name, shape, **options):
    with torch.device("meta"):
        return layer_table(build_network(name, num_classes=10, **options), shape)


def paper_network(width=3.5, **options):
    rows = layers("paper", (3, 224, 224), **options)
    return draw_network(
        rows, (3, 224, 224), pretrained=pretrained_layers("paper", rows), width=width
    )


def numbered(classes):
    return [f"species {number}" for number in range(classes)]


FIGURES = {
    "overview": lambda width: draw_overview(width=width),
    "surrogates": lambda width: draw_surrogates(width=width),
    "loss-surface": lambda width: draw_loss_surface(width=width),
    "network-paper": paper_network,
    "network-resnet32": lambda width: draw_network(
        layers("resnet32", (3, 32, 32)), (3, 32, 32), width=width
    ),
    "network-head": lambda width: draw_network(
        layers("head", (64,), in_features=64), (64,), width=width
    ),
    "confusion-2": lambda width: draw_confusion(confusions(2), numbered(2), width=width),
    "confusion-5": lambda width: draw_confusion(confusions(5), numbered(5), width=width),
    "confusion-10": lambda width: draw_confusion(confusions(10), numbered(10), width=width),
    "confusion-24": lambda width: draw_confusion(confusions(24), numbered(24), width=width),
    "confusion-102": lambda width: draw_confusion(confusions(102), numbered(102), width=width),
    "confusion-one": lambda width: draw_confusion(confusions(4)[:1], numbered(4), width=width),
    "confusion-hostile": lambda width: draw_confusion(
        confusions(7, methods=HOSTILE[:2]), HOSTILE, width=width
    ),
    "errors": lambda width: draw_errors(curves("baseline", "cosen"), width=width),
    "errors-one-epoch": lambda width: draw_errors(curves("cosen", epochs=1, runs=1), width=width),
    "errors-hostile": lambda width: draw_errors(curves(*HOSTILE[:4]), width=width),
    "errors-wordy": lambda width: draw_errors(
        curves("baseline", "balanced-softmax"), val_label="validation, mean of classes", width=width
    ),
    "frequencies-5": lambda width: draw_frequencies([counts(5)], width=width),
    "frequencies-14": lambda width: draw_frequencies([counts(14)], width=width, log=True),
    "frequencies-102": lambda width: draw_frequencies([counts(102)], width=width),
    "frequencies-sorted": lambda width: draw_frequencies(
        [counts(102), counts(7)], by_frequency=True, width=width
    ),
    "frequencies-many": lambda width: draw_frequencies(
        [counts(classes, "a dataset of a long name") for classes in (5, 10, 14, 67, 102)],
        width=width,
    ),
    "frequencies-hostile": lambda width: draw_frequencies(
        [ClassCounts(HOSTILE[1], tuple(HOSTILE), (3, 1, 4, 1, 5, 9, 2))], width=width
    ),
}
BOTH_COLUMNS = 7.16
ONE_OF_EACH = (
    *("overview", "surrogates", "loss-surface", "network-paper", "confusion-hostile"),
    *("errors-hostile", "frequencies-hostile"),
)
READ = [
    *((name, 3.5) for name in FIGURES),
    *((name, BOTH_COLUMNS) for name in (*ONE_OF_EACH, "confusion-24", "frequencies-many")),
    *((name, 3.0) for name in ("confusion-hostile", "errors-wordy", "frequencies-hostile")),
]


def texts(figure):
    """The labels that are really drawn: axes also have hidden ones beyond their ends."""
    found = []

    def note(text, renderer):
        if text.get_visible() and text.get_text().strip():
            found.append(text)
        original(text, renderer)

    original = Text.draw
    with patch.object(Text, "draw", note):
        FigureCanvasAgg(figure).draw()
    return list(dict.fromkeys(found))


def words(figure):
    return [text.get_text() for text in texts(figure)]


@pytest.mark.parametrize(("name", "width"), READ)
def test_every_letter_can_be_read(name, width):
    figure = FIGURES[name](width)
    found = texts(figure)
    assert found
    assert figure.get_figwidth() == width
    boxes = [(text, text.get_window_extent()) for text in found]
    for text, box in boxes:
        assert text.get_fontsize() >= 7, text
        assert box.x0 >= -1, f"{text} is cut off"
        assert box.y0 >= -1, f"{text} is cut off"
        assert box.x1 <= figure.bbox.x1 + 1, f"{text} is cut off"
        assert box.y1 <= figure.bbox.y1 + 1, f"{text} is cut off"
    for (one, first), (other, second) in combinations(boxes, 2):
        wide = min(first.x1, second.x1) - max(first.x0, second.x0)
        tall = min(first.y1, second.y1) - max(first.y0, second.y0)
        # text boxes have space above the letters: touching boxes do not overlap
        point = figure.dpi / 72
        assert wide <= 0.5 * point or tall <= 2 * point, f"{one} and {other} overlap"


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_files_are_whole_and_the_same_twice(name, tmp_path):
    for folder in ("one", "two"):
        paths = write_figure(FIGURES[name](3.5), tmp_path / folder, name)
        assert [path.name for path in paths] == [f"{name}.svg", f"{name}.png"]
    for path in paths:
        assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()
    svg = ElementTree.parse(paths[0]).getroot()
    assert svg.attrib["width"] == "252pt"  # 3.5 inches
    assert len(list(svg.iter("{http://www.w3.org/2000/svg}text"))) > 10, "text is not text"
    assert not re.search(r"dc:date|20\d\d-\d\d", paths[0].read_text())
    with Image.open(paths[1]) as image:
        assert image.width == 1050
        image.load()
    assert len(list((tmp_path / "two").iterdir())) == 2, "nothing else is left behind"


def test_pdf_has_no_date_either(tmp_path):
    one, two = (
        write_figure(draw_overview(), tmp_path / folder, "x", formats=["pdf"])[0].read_bytes()
        for folder in ("one", "two")
    )
    assert one.startswith(b"%PDF")
    assert one == two


# What is drawn


def reference_losses(margin, cost):
    """From the paper's formulas, for outputs (m/2, -m/2) and the first class."""
    true, other = margin / 2, -margin / 2
    return {
        "cross-entropy (CE)": -np.log(cost * np.exp(true) / (cost * np.exp(true) + np.exp(other))),
        "hinge": np.maximum(0, 1 - cost * true) + np.maximum(0, 1 + other),
        "MSE": ((1 - 1 / (1 + np.exp(-cost * true))) ** 2 + (1 / (1 + np.exp(-other))) ** 2) / 2,
    }


def test_surrogates_are_the_losses():
    figure = draw_surrogates()
    panels = {axes.get_title(): axes for axes in figure.axes}
    assert list(panels) == ["without costs", "cross-entropy (CE)", "hinge", "MSE"]
    for title in list(panels)[1:]:
        lines = {line.get_label(): line for line in panels[title].lines}
        assert list(lines) == ["_0-1", "ξₚₚ = 1", "ξₚₚ = 0.5", "ξₚₚ = 0.1"]
        for cost in (1.0, 0.5, 0.1):
            margins, losses = lines[f"ξₚₚ = {cost:g}"].get_data()
            np.testing.assert_allclose(losses, reference_losses(margins, cost)[title], atol=1e-12)
    plain = {line.get_label(): line for line in panels["without costs"].lines}
    assert list(plain) == ["0-1", "CE", "hinge", "MSE"]
    margins, losses = plain["CE"].get_data()
    logits = torch.from_numpy(np.stack([margins / 2, -margins / 2], 1))
    target = torch.zeros(len(logits), dtype=torch.long)
    expected = F.cost_sensitive_cross_entropy(
        logits, target, torch.ones(2, 2, dtype=torch.float64), reduction="none"
    )
    np.testing.assert_array_equal(losses, expected.numpy())
    assert plain["0-1"].get_ydata().tolist() == [1, 1, 0, 0]
    assert plain["0-1"].get_xdata().tolist()[1:3] == [0, 0]


def test_loss_surface_and_its_boundary():
    figure = draw_loss_surface()
    panels = np.array(figure.axes[: 2 * len(CASES)]).reshape(2, len(CASES))
    for column, (name, costs) in enumerate(CASES.items()):
        above, below = panels[:, column]
        assert name in above.get_title()
        image, least = above.images[0], below.images[0]
        assert image.get_extent() == [-4, 4, -4, 4]
        assert image.origin == "lower"
        side = np.linspace(-4, 4, image.get_array().shape[0])
        first, second = np.meshgrid(side, side)
        one, other = costs[0] * np.exp(first), costs[1] * np.exp(second)
        losses = -np.log(one / (one + other)), -np.log(other / (one + other))
        np.testing.assert_allclose(image.get_array(), losses[0], atol=1e-9)
        np.testing.assert_allclose(least.get_array(), np.minimum(*losses), atol=1e-9)
        (boundary,) = [found for found in below.collections if isinstance(found, ContourSet)]
        points = boundary.get_paths()[0].vertices
        shift = points[:, 0] - points[:, 1]  # o1 - o2, where both weighted outputs are equal
        np.testing.assert_allclose(shift, np.log(costs[1] / costs[0]), atol=1e-3)
    assert panels[1, 0].images[0].get_array().max() == pytest.approx(np.log(2), abs=0.02)


@pytest.mark.parametrize("classes", [2, 5, 10, 102])
def test_confusion_shows_rates(classes):
    methods = confusions(classes)
    figure = draw_confusion(methods, numbered(classes))
    for axes, method in zip(figure.axes, methods, strict=False):
        rates = method.counts / method.counts.sum(1, keepdims=True)
        np.testing.assert_allclose(axes.images[0].get_array(), 100 * rates, rtol=1e-5)
        assert axes.get_title() == method.name
        recall = f"mean recall {100 * np.diag(rates).mean():.1f} %"
        assert recall in [text.get_text() for text in axes.texts]
        cells = {text.get_position(): text.get_text() for text in axes.texts[:-1]}
        if classes < 100:
            assert cells == {
                (column, row): f"{100 * rate:.0f}"
                for (row, column), rate in np.ndenumerate(rates)
                if 100 * rate >= 0.5
            }
        else:
            assert not cells
            assert len(figure.axes) == 3, "without numbers there is a bar of colours"


def test_confusion_makes_room_for_numbers_and_names():
    def places(classes, width):
        figure = draw_confusion(confusions(classes), numbered(classes), width=width)
        named = "species 1" in words(figure)
        first, second = (axes.get_position() for axes in figure.axes[:2])
        return "beside" if second.x0 > first.x1 else "below", named, len(figure.axes) == 2

    assert places(5, 3.5) == ("beside", True, True)
    assert places(10, 3.5) == ("below", True, True)
    assert places(10, 7.16) == ("beside", True, True)
    assert places(20, 3.5) == ("below", True, False)
    assert places(102, 3.5) == ("beside", False, False)


def test_a_class_without_images_is_empty():
    found = NamedConfusion("cosen", np.array([[3, 1], [0, 0]]))
    figure = draw_confusion([found], ["a", "b"])
    assert figure.axes[0].images[0].get_array()[1].tolist() == [0, 0]
    assert "mean recall 75.0 %" in words(figure)


def test_confusion_refuses_what_does_not_fit():
    with pytest.raises(InputError, match="there is no confusion matrix"):
        draw_confusion([], ["a"])
    with pytest.raises(InputError, match=r"baseline is \(2, 2\), but there are 3 classes"):
        draw_confusion(confusions(2), ["a", "b", "c"])


def test_errors_are_means_with_a_band():
    methods = curves("baseline", "cosen", runs=3)
    figure = draw_errors(methods)
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    for method, band in zip(methods, axes.collections, strict=True):
        for part, errors in (("training", method.train), ("validation", method.val)):
            epochs, shown = lines[f"{method.name}, {part}"].get_data()
            assert epochs.tolist() == list(range(1, 13))
            np.testing.assert_allclose(shown, 100 * errors.mean(0))
        edge = band.get_paths()[0].vertices
        for number, epoch in enumerate(method.epochs):
            at_epoch = edge[edge[:, 0] == epoch, 1]
            assert at_epoch.min() == pytest.approx(100 * method.val[:, number].min())
            assert at_epoch.max() == pytest.approx(100 * method.val[:, number].max())
    assert not draw_errors(curves("cosen", runs=1)).axes[0].collections, "one run has no band"


def test_errors_of_one_epoch_are_points_and_too_many_methods_are_refused():
    lines = draw_errors(curves("baseline", "cosen", epochs=1)).axes[0].lines
    assert [line.get_marker() for line in lines] == ["o", "o", "s", "s"]
    assert lines[0].get_markerfacecolor() != lines[1].get_markerfacecolor()
    with pytest.raises(InputError, match="choose up to 6"):
        draw_errors(curves(*"abcdefg"))
    with pytest.raises(InputError, match="no run"):
        draw_errors([])


def bars(axes):
    return [bar.get_height() for bar in axes.patches if isinstance(bar, Rectangle)]


@pytest.mark.parametrize("classes", [5, 14, 102])
def test_bars_are_counts(classes):
    dataset = counts(classes)
    (axes,) = draw_frequencies([dataset]).axes
    assert bars(axes) == list(dataset.counts)
    (axes,) = draw_frequencies([dataset], by_frequency=True).axes
    assert bars(axes) == sorted(dataset.counts, reverse=True)
    facts = f"{classes} classes, {min(dataset.counts)}–{max(dataset.counts)}"
    assert facts in [text.get_text() for text in axes.texts]


def test_names_go_with_their_bars():
    dataset = ClassCounts("pets", ("ant", "bee", "cat"), (20, 5, 90))
    figure = draw_frequencies([dataset], by_frequency=True)
    assert words(figure)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cat", "ant", "bee"]
    assert [text.get_text() for text in axes.texts[:-1]] == ["90", "20", "5"]
    many = draw_frequencies([counts(102)])
    assert many.axes[0].get_xlabel() == "class number"
    assert not [text for text in words(many) if "species" in text]


def test_datasets_stand_side_by_side():
    datasets = [counts(5, "one"), counts(102, "two"), counts(9, "three")]
    figure = draw_frequencies(datasets)
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title() for axes in shown] == ["one", "two", "three"]
    assert [bars(axes) for axes in shown] == [list(dataset.counts) for dataset in datasets]
    assert words(figure)
    assert shown[0].get_position().y0 == pytest.approx(shown[1].get_position().y0)
    assert shown[2].get_position().y1 < shown[0].get_position().y0
    with pytest.raises(InputError, match="no dataset"):
        draw_frequencies([])


def test_rare_classes_show_on_a_logarithmic_axis():
    (axes,) = draw_frequencies([ClassCounts("x", ("a", "b", "c"), (3, 0, 90_000))], log=True).axes
    low, high = axes.get_ylim()
    assert 0 < low < 3
    assert high > 90_000


@pytest.mark.parametrize(
    ("reading", "pretrained", "random"), [("whole-vgg", 16, 2), ("two-extra", 15, 3)]
)
def test_network_names_every_layer(reading, pretrained, random):
    rows = layers("paper", (3, 224, 224), reading=reading)
    figure = paper_network(reading=reading)
    shown = words(figure)
    weights = [row for row in rows if row.is_weight_layer]
    assert len(weights) == 18
    for row in weights:
        assert shown.count(row.name) == 1
        assert f"{row.parameters:,}" in shown
        assert " × ".join(map(str, row.output_shape)) in shown
    assert "18 weight layers" in shown
    assert f"{table_totals(rows).parameters:,}" in shown
    (axes,) = figure.axes
    colours = [box.get_facecolor() for box in axes.patches]
    # the legend has one of each
    assert sum(same_color(colour, PALE_BLUE) for colour in colours) == pretrained + 1
    assert sum(same_color(colour, PALE_ORANGE) for colour in colours) == random + 1


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("resnet32", (3, 32, 32), {}),
        ("small-cnn", (1, 8, 8), {"channels": 1}),
        ("head", (64,), {"in_features": 64}),
    ],
)
def test_no_parameter_is_lost(name, shape, options):
    rows = layers(name, shape, **options)
    numbers = [
        int(text.replace(",", ""))
        for text in words(draw_network(rows, shape))
        if re.fullmatch(r"[\d,]+", text)
    ]
    total = table_totals(rows).parameters
    sizes = {side for row in rows if row.output_shape for side in row.output_shape} | set(shape)
    assert numbers.count(total) == 1
    assert sum(number for number in numbers if number not in sizes and number != total) == total
    assert not pretrained_layers(name, rows)


def test_deep_networks_are_summed_up_by_part():
    shown = words(draw_network(layers("resnet32", (3, 32, 32)), (3, 32, 32)))
    assert {"stem.0", "stages.0", "stages.1", "stages.2", "output"} <= set(shown)
    assert shown.count("10 × conv, norm") == 3
    with pytest.raises(InputError, match="without layers"):
        draw_network([], (3, 8, 8))


def test_overview_shows_what_is_learned_from_what():
    shown = "\n".join(words(draw_overview()))
    for symbol in ("θ", "H∘g(S)∘g(R)", "ξ ← ξ + γ(T−ξ)", "ℓ(d, F(ξₚ, o))", "separability S"):
        assert symbol in shown


# Names from data


def test_hostile_names_stay_what_they_are(tmp_path):
    figure = draw_confusion(confusions(7), HOSTILE, width=7.16)
    (svg,) = write_figure(figure, tmp_path, "hostile", formats=["svg"])
    found = [element.text for element in ElementTree.parse(svg).iter() if element.text]
    assert "$\\frac{1}$" in found
    assert "a_b^c $" in found
    assert "(no name)" in found
    assert not ElementTree.parse(svg).findall(".//{*}script")
    figure.savefig(tmp_path / "own.png")  # the user's settings do not parse mathematics either


def test_names_are_one_line_that_xml_allows():
    assert one_line("a\r\nb\tc") == "a b c"
    assert one_line("\x00\x07") == "��"
    assert one_line("\udcff\ufffe") == "��"
    assert one_line(" \n ") == "(no name)"
    assert one_line("ξ 猫 قط") == "ξ 猫 قط"


@pytest.mark.parametrize("width", [0.3, 0.5, 1.0])
def test_shortened_names_fit_and_keep_both_ends(width):
    name = "Acropora cervicornis"
    short = shortened(name, width)
    assert text_width(short) <= width
    assert short[0] == "A"
    assert short[-1] == "s"
    assert shortened("short", 1.0) == "short"
    assert shortened(name, 0.0) == "A…"


def test_letters_that_no_font_has_are_told_once(tmp_path, caplog):
    dataset = ClassCounts("x", ("\U0010fffd", "b"), (1, 2))
    svg, _ = write_figure(draw_frequencies([dataset]), tmp_path, "rare")
    assert "\U0010fffd" in svg.read_text(encoding="utf-8")
    assert sum("no installed font" in record.message for record in caplog.records) == 1


# Writing


def test_settings_of_the_user_have_no_say_and_come_back(tmp_path):
    (before,) = write_figure(draw_surrogates(), tmp_path / "before", "x", formats=["svg"])
    own = {"font.size": 20.0, "svg.fonttype": "path", "axes.facecolor": "red"}
    with matplotlib.rc_context(own):
        (after,) = write_figure(draw_surrogates(), tmp_path / "after", "x", formats=["svg"])
        assert matplotlib.rcParams["font.size"] == 20
    assert before.read_bytes() == after.read_bytes()


def test_pyplot_is_not_touched(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # importing it fails
    assert write_figure(draw_overview(), tmp_path, "x")


def test_matplotlib_is_imported_when_it_is_needed():
    folder = Path(style.__file__).parent
    for path in (*folder.glob("*.py"), folder.parent / "figures_command.py"):
        for node in ast.parse(path.read_text()).body:
            assert not (isinstance(node, ast.Import) and "matplotlib" in ast.unparse(node)), path
            assert "matplotlib" not in (getattr(node, "module", None) or ""), path


@pytest.mark.parametrize("width", [0, 2.9, 20.1, float("nan")])
def test_widths_that_cannot_be_drawn_are_refused(width):
    with pytest.raises(InputError, match="3 to 20 inches"):
        draw_overview(width=width)


def test_formats():
    assert parse_formats("SVG, png,svg") == ("svg", "png")
    with pytest.raises(InputError, match="there is no format 'gif'"):
        parse_formats("gif")
    with pytest.raises(InputError, match="no format is given"):
        parse_formats(" , ")


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot create the folder"):
        write_figure(draw_overview(), tmp_path / "file" / "x", "overview")
