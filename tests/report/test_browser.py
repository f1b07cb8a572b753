"""The page as users see and use it, in headless Chromium."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from contrast import contrast
from cosen.report.page import percent, points
from report.example_contents import EXAMPLES, HOSTILE, contents_of, page_of, unpack

WIDTHS = (360, 768, 1280, 1920)
SETTLED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"

# one browser for all of these
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


class Pages:
    """Open pages of the examples, and all errors on them."""

    def __init__(self, chromium, folder: Path) -> None:
        self.chromium, self.folder = chromium, folder
        self.shared, self.troubles, self.requests, self.opened = {}, [], [], 0

    def open(self, name: str, **options):
        file = self.folder / f"{name} <&> ü.html"  # an awkward name
        if not file.exists():
            file.write_text(page_of(name), encoding="utf-8")
        page = self.chromium.new_context(**options).new_page()
        page.on(
            "console",
            lambda one: one.type in ("error", "warning") and self.troubles.append(one.text),
        )
        page.on("pageerror", lambda error: self.troubles.append(str(error)))
        page.on("dialog", lambda dialog: (self.troubles.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())
        self.opened += 1
        return page

    def visit(self, name: str, *, width: int = 1280):
        """A page that tests share: at the top, in light colours, with no dialog."""
        if name not in self.shared:
            self.shared[name] = self.open(name, viewport={"width": width, "height": 900})
        page = self.shared[name]
        page.emulate_media(media="screen", color_scheme="light")
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate(
            "document.getElementById('detail').close();"
            "window.scrollTo({top: 0, behavior: 'instant'})"
        )
        settle(page)
        return page


@pytest.fixture(scope="module")
def pages(chromium, tmp_path_factory):
    pages = Pages(chromium, tmp_path_factory.mktemp("report"))
    yield pages
    for page in pages.shared.values():
        page.context.close()


@pytest.fixture(autouse=True)
def check_pages(pages):
    """Check after each test: no error, no dialog, and no request except for the file itself."""
    yield
    assert pages.troubles == []
    loaded = [url for url in pages.requests if not url.startswith("data:")]
    assert all(url.startswith("file://") for url in loaded)
    assert len(loaded) == pages.opened


@pytest.fixture
def visit(pages):
    return pages.visit


@pytest.fixture
def visit_fresh(pages):
    """Opens a new page, for tests that need an unchanged page or change it."""
    opened = []

    def open_page(name: str, **options):
        opened.append(pages.open(name, viewport={"width": 1280, "height": 900}, **options))
        return opened[-1]

    yield open_page
    for page in opened:
        page.context.close()


def settle(page) -> None:
    page.evaluate(SETTLED)


def wait_until(page, condition: str, *, seconds: float = 20) -> None:
    """Waits by polling: Playwright would evaluate code in the page, which the policy blocks."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        settle(page)


def open_table(page, details: str) -> None:
    """Opens a <details>, which is then filled."""
    page.locator(f"#{details}").evaluate("(one) => (one.open = true)")
    wait_until(page, f"document.querySelector('#{details} td')")


def draw_all(page, width: int = 1280) -> None:
    """Scrolls through the page to draw every chart at this width."""
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(
        """async () => {
          for (let y = 0; y < document.documentElement.scrollHeight; y += 1500) {
            window.scrollTo({top: y, behavior: 'instant'});
            for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
          }
        }"""
    )
    wait_until(
        page,
        "[...document.querySelectorAll('main .chart')].every("
        "(one) => one.layout && one.layout.width >= one.parentElement.clientWidth)",
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_draws_valid_charts_that_fit_every_width(visit, name):
    page = visit(name, width=WIDTHS[0])
    assert page.title().endswith("cosen report")
    for width in WIDTHS if name == "ten_classes" else (360, 1280):
        draw_all(page, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Plotly's check fails on the layout of a legend; unused and invisible parts are not errors.
    checked = page.evaluate(
        """() => [...document.querySelectorAll('.js-plotly-plot')].map(({id, data, layout}) => [
          id,
          (Plotly.validate(data, (({legend, ...others}) => others)(layout)) ?? [])
            .filter(({code}) => !['unused', 'dynamic', 'invisible'].includes(code))
            .map(({msg}) => msg),
        ])"""
    )
    assert len(checked) == page.locator("main .chart").count() >= 4
    assert [one for one in checked if one[1]] == []
    labels = page.locator(".chart").evaluate_all(
        "(all) => all.map((one) => [one.getAttribute('role'), one.getAttribute('aria-label')])"
    )
    assert all(role == "img" and label for role, label in labels)


def test_detail_fits_a_telephone(visit):
    page = visit("hostile", width=360)
    for button in page.locator("#class-table tbody button").all():
        button.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        dialog = page.locator("#detail").evaluate("(one) => [one.scrollWidth, one.clientWidth]")
        assert dialog[0] <= dialog[1]
        page.keyboard.press("Escape")


@pytest.mark.parametrize("name", ["ten_classes", "many_classes"])
def test_tradeoff_is_what_numpy_computes(visit, name):
    page = visit(name)
    page.locator("#prior-reset").click()
    settle(page)
    check_tradeoff(page, contents_of(name), None)
    for place in ("-0.5", "-0.35", "0", "0.6", "1", "1.5"):
        page.locator("#prior").fill(place)
        settle(page)
        check_tradeoff(page, contents_of(name), float(place))


def check_tradeoff(page, contents, place: float | None) -> None:
    stored = contents["tradeoff"]
    logits, target = unpack(stored["logits"]), unpack(stored["target"]).round().astype(int)
    if place is not None:
        logits = logits + stored["offsets"] - place * np.array(stored["log_shares"])
    decided = logits.argmax(1)
    recalls = {
        label: float((decided[target == label] == label).mean())
        for label in range(len(contents["classes"]))
    }
    values = dict(
        page.locator("#prior-table data").evaluate_all(
            "(all) => all.map((one) => [one.dataset.label, [Number(one.value), one.textContent]])"
        )
    )
    for label, recall in recalls.items():
        number, text = values[str(label)]
        assert number == pytest.approx(recall, abs=1e-15)
        assert text == f"{percent(recall)} %"
    rare = contents["by_rarity"][: len(recalls) // 3]
    wanted = {
        "accuracy": float((decided == target).mean()),
        "meanRecall": float(np.mean(list(recalls.values()))),
        "rareRecall": float(np.mean([recalls[label] for label in rare])),
    }
    for measure, value in wanted.items():
        shown = page.locator(f"data[data-measure={measure}]")
        assert float(shown.get_attribute("value")) == pytest.approx(value, abs=1e-12)
        assert shown.text_content() == f"{percent(value)} %"


def test_tradeoff_chart_and_reset(visit):
    page, contents = visit("ten_classes"), contents_of("ten_classes")
    page.locator("#prior-reset").click()
    wait_until(page, "document.getElementById('prior-recalls').data")
    settle(page)
    as_trained = page.locator("#prior-figures").inner_text()
    page.locator("#prior").focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    settle(page)
    assert "40 % of the way" in page.locator("#prior-value").inner_text()
    moved = page.locator("#prior-figures").inner_text()
    assert moved != as_trained
    shown = page.evaluate("document.getElementById('prior-recalls').data.at(-1).y")
    rows = page.locator("#prior-table data").evaluate_all(
        "(all) => all.map((one) => 100 * Number(one.value))"
    )
    assert shown == pytest.approx(rows)
    line = page.evaluate("document.getElementById('prior-chart').layout.shapes[0].x0")
    assert line == pytest.approx(0.4)
    wait_until(
        page,
        "document.getElementById('prior-announced').textContent"
        ".includes('equal shares: overall accuracy')",
    )
    page.locator("#prior-reset").click()
    settle(page)
    assert page.locator("#prior-figures").inner_text() == as_trained
    assert page.locator("#prior-table tbody tr").count() == len(contents["classes"])


def test_cost_slider_shows_the_epochs(visit):
    page, contents = visit("ten_classes"), contents_of("ten_classes")
    page.locator("#cost-epoch").scroll_into_view_if_needed()
    wait_until(page, "document.getElementById('costs-chart').data")
    order = np.array(contents["by_rarity"])
    costs = unpack(contents["costs"]["costs"])[:, order][:, :, order]
    epochs = contents["costs"]["epochs"]

    def shown(chart="costs-chart") -> np.ndarray:
        settle(page)
        return np.array(page.evaluate(f"document.getElementById('{chart}').data[0].z"), dtype=float)

    page.locator("#cost-epoch").focus()
    page.keyboard.press("End")
    np.testing.assert_allclose(shown(), np.log10(costs[-1]), atol=1e-9)
    page.keyboard.press("Home")
    np.testing.assert_allclose(shown(), np.log10(costs[0]), atol=1e-9)
    page.keyboard.press("ArrowRight")
    np.testing.assert_allclose(shown(), np.log10(costs[1]), atol=1e-9)
    step = next(one for one in contents["costs"]["steps"] if one["epoch"] == epochs[1])
    state = page.locator("#cost-state").inner_text()
    assert state.startswith(f"epoch {epochs[1]}: {'acc' if step['accepted'] else 'rej'}")
    assert f"validation error {percent(step['val_error'])} %" in state

    page.locator("input[name=statistic][value=confusion]").check()
    rates = unpack(contents["costs"]["confusion"])[1][order][:, order]
    np.testing.assert_allclose(shown("statistic-chart"), np.sqrt(rates), atol=1e-9)
    page.locator("input[name=statistic][value=frequencies]").check()
    frequencies = unpack(contents["costs"]["frequencies"])[0][order][:, order]
    np.testing.assert_allclose(shown("statistic-chart"), np.log10(frequencies), atol=1e-9)
    page.locator("input[name=reading][value=relative]").check()
    ratio = costs[1] / np.diag(costs[1])[:, None]
    np.testing.assert_allclose(shown(), np.log10(ratio), atol=1e-9)
    page.locator("input[name=reading][value=costs]").check()

    open_table(page, "costs-details")
    first = page.locator("#costs-details tbody tr").first.locator("td").all_inner_texts()
    assert [float(cell) for cell in first] == pytest.approx(costs[1][0], rel=1e-2)


def test_strengths_of_costs_by_epoch(visit):
    page, contents = visit("two_strengths"), contents_of("two_strengths")
    costs = contents["costs"]
    page.locator("#cost-epoch").scroll_into_view_if_needed()
    wait_until(page, "document.getElementById('steps-chart').data")

    def state() -> str:
        settle(page)
        return page.locator("#cost-state").inner_text()

    errors = [percent(step["val_error"]) for step in costs["steps"]]
    assert state() == f"epoch 8: τ 1.22, m 3.97, validation error {errors[-1]} %"
    page.locator("#cost-epoch").focus()
    page.keyboard.press("Home")
    assert state() == f"epoch 1: τ 1, m 0, validation error {errors[0]} %"
    page.keyboard.press("ArrowRight")
    assert state() == f"epoch 2: τ 1.03, m –, validation error {errors[1]} %"
    chart = page.evaluate(
        "(({data, layout}) => ({data, line: layout.shapes[0].x0}))"
        "(document.getElementById('steps-chart'))"
    )
    assert chart["line"] == 2
    lines = {line["name"]: line for line in chart["data"]}
    assert list(lines) == ["best so far", "validation error", "τ", "m"]
    assert lines["τ"]["y"] == costs["strengths"]["tau"]
    assert lines["m"]["y"] == costs["strengths"]["margin"]
    assert lines["validation error"]["y"] == [100 * step["val_error"] for step in costs["steps"]]
    assert lines["m"]["hovertext"][2].endswith("<br>τ 1.06, m 1.13")

    assert page.locator("#statistic-meaning").inner_text() == "confusion on validation"
    order = contents["by_rarity"]
    rates = unpack(costs["confusion"])[1][order][:, order]
    shown = page.evaluate("document.getElementById('statistic-chart').data[0].z")
    np.testing.assert_allclose(np.array(shown, float), np.sqrt(rates), atol=1e-9)

    open_table(page, "steps-details")
    headings = page.locator("#steps-details thead th").all_inner_texts()
    assert headings == ["epoch", "validation error, %", "best, %", "τ", "m"]
    third = page.locator("#steps-details tbody tr").nth(2).locator("td").all_inner_texts()
    assert third == [errors[2], percent(costs["steps"][2]["best_error"]), "1.06", "1.13"]
    assert not re.search("γ|accepted|rejected", page.locator("#costs").inner_text())


def test_cost_player(visit):
    page = visit("ten_classes")
    page.locator("#cost-epoch").focus()
    page.keyboard.press("End")
    last = page.locator("#cost-epoch").input_value()
    page.locator("#cost-play").click()
    wait_until(page, "Number(document.getElementById('cost-epoch').value) >= 2")
    assert page.locator("#cost-play").inner_text() == "Pause"
    assert page.locator("#cost-epoch").input_value() != last
    page.locator("#cost-play").click()
    assert page.locator("#cost-play").inner_text() == "Play"


def test_matrices_have_counts_and_follow_the_order(visit):
    page, contents = visit("ten_classes"), contents_of("ten_classes")
    page.locator("#confusion").scroll_into_view_if_needed()
    wait_until(page, "document.getElementById('confusion-difference').data")
    counts = {role: np.array(table) for role, table in contents["confusion"].items()}
    rates = {role: table / table.sum(1, keepdims=True) for role, table in counts.items()}
    for choice, order in (("label", np.arange(10)), ("rarity", np.array(contents["by_rarity"]))):
        page.locator(f"input[name=order][value={choice}]").check()
        settle(page)
        for role in ("baseline", "chosen"):
            shown = page.evaluate(f"document.getElementById('confusion-{role}').data[0]")
            np.testing.assert_allclose(
                np.array(shown["z"], dtype=float) ** 2, rates[role][order][:, order], atol=1e-9
            )
        difference = page.evaluate("document.getElementById('confusion-difference').data[0]")
        change = (rates["chosen"] - rates["baseline"])[order][:, order]
        improvement = change * (2 * np.eye(10) - 1)
        np.testing.assert_allclose(np.array(difference["z"], float), improvement, atol=1e-9)
        hover = difference["hovertext"][2][7]
        for role in ("baseline", "chosen"):
            count = counts[role][order[2], order[7]]
            assert f"{count:,} images, {percent(rates[role][order[2], order[7]])} %" in hover
        assert f"change {points(change[2, 7])}" in hover
    open_table(page, "confusion-details")
    first = page.locator("#confusion-details table").first.locator("tbody tr").first
    cells = [int(cell.replace(",", "")) for cell in first.locator("td").all_inner_texts()]
    assert cells == counts["baseline"][order[0]][order].tolist()


def test_clicking_a_class_shows_it(visit):
    page, contents = visit("ten_classes"), contents_of("ten_classes")
    label = contents["by_rarity"][3]
    dialog = page.locator("#detail")
    assert not dialog.is_visible()
    page.locator("#class-table tbody button").nth(3).click()
    assert dialog.is_visible()
    one = contents["classes"][label]
    assert page.locator("#detail-name").inner_text() == one["name"]
    text = dialog.inner_text()
    assert f"{percent(one['recall']['chosen'])} %" in text
    row = contents["confusion"]["chosen"][label]
    worst = max((other for other in range(10) if other != label), key=lambda other: row[other])
    cells = dialog.locator("table").first.locator(
        "tr",
        has=page.locator("bdi", has_text=re.compile(f"^{contents['classes'][worst]['name']}$")),
    )
    assert str(row[worst]) in cells.inner_text()
    costs = unpack(contents["costs"]["costs"])[-1][label]
    margins = page.evaluate("document.getElementById('margins-chart').data[0].y")
    wanted = [np.log10(costs[other] / costs[label]) for other in contents["by_rarity"]]
    assert margins == pytest.approx(wanted)
    pictures = [
        picture
        for kind in ("gained", "lost", "examples")
        for picture in contents["gallery"][kind]
        if picture["label"] == label
    ]
    assert dialog.locator("img").count() == len(pictures)
    dialog.get_by_role("button", name="Next more common class").click()
    more_common = contents["classes"][contents["by_rarity"][4]]["name"]
    assert page.locator("#detail-name").inner_text() == more_common
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()


def test_thousands_of_classes(visit):
    page, contents = visit("thousands"), contents_of("thousands")
    groups = page.locator("table.groups tbody tr")
    assert groups.count() == 3
    few = contents["groups"][2]
    assert f"{percent(few['recall']['chosen']['mean'])}" in groups.nth(2).inner_text()
    rows = page.locator("#class-table tbody tr")
    assert rows.count() == 200
    assert page.locator("#class-shown").inner_text() == "200"
    page.locator("#class-filter").fill("species 0834")
    assert rows.count() == 1
    one = contents["classes"][834]
    assert f"{percent(one['recall']['chosen'])}" in rows.inner_text()
    rows.locator("button").click()
    dialog = page.locator("#detail")
    assert page.locator("#detail-name").inner_text() == "species 0834"
    cells = np.reshape(contents["confusion"]["chosen"]["cells"], (-1, 3))
    own = cells[cells[:, 0] == 834]
    wrong = {f"species {label:04d}": count for _, label, count in own.tolist() if label != 834}
    shown = dialog.locator("table").first.inner_text()
    assert all(name in shown for name in list(wrong)[:1])
    page.evaluate("document.getElementById('detail').close()")
    page.locator("#class-filter").fill("")
    assert rows.count() == 200
    page.locator("#class-table th button", has_text="training images").click()
    assert rows.first.inner_text().startswith("species 1099")
    listed = page.locator("#confusion-list tbody tr").first.inner_text()
    assert listed.count("species") == 2
    assert page.locator("#confusion-chosen").count() == 0
    draw_all(page)
    assert page.evaluate("document.getElementById('recalls-chart').data.length") == 3
    assert page.evaluate("document.getElementById('steps-chart').data.length") >= 3
    assert page.locator("#cost-epoch").count() == 0


def test_a_class_by_keyboard(visit):
    page = visit("ten_classes")
    button = page.locator("#class-table tbody button").nth(2)
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("#detail").is_visible()
    for _ in range(12):  # the focus stays in the dialog, or leaves for the browser's own bar
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || "
            "document.activeElement.closest('#detail') !== null"
        )
    page.keyboard.press("Escape")
    assert not page.locator("#detail").is_visible()
    assert button.evaluate("(one) => one === document.activeElement")


def test_tab_reaches_everything_with_a_visible_focus(visit):
    page = visit("ten_classes")
    draw_all(page)
    wanted = page.evaluate(
        """() => {
          const all = [...document.querySelectorAll(
            'a[href], button, input, select, summary, [tabindex="0"]')];
          const reached = all.filter((one) =>
            one.checkVisibility() && !one.closest('dialog') &&
            (one.type !== 'radio' || one.checked));
          reached.forEach((one, i) => (one.dataset.walk = i));
          return reached.length;
        }"""
    )
    assert wanted > 40
    page.locator(".skip").focus()
    seen = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        walk, outline = page.evaluate(
            "[document.activeElement.dataset.walk,"
            " getComputedStyle(document.activeElement).outlineStyle]"
        )
        if walk is not None:
            seen.add(int(walk))
            assert outline != "none", walk
    assert seen == set(range(wanted))


def test_sorting_and_filtering(visit):
    page, contents = visit("many_classes"), contents_of("many_classes")

    def labels() -> list[int]:
        return page.locator("#class-table tbody tr:visible").evaluate_all(
            "(all) => all.map((one) => Number(one.dataset.label))"
        )

    assert labels() == contents["by_rarity"]
    change = page.locator("#class-table th[data-sort=change]")
    change.locator("button").click()
    assert change.get_attribute("aria-sort") == "ascending"
    changes = [
        contents["classes"][label]["recall"]["chosen"]
        - contents["classes"][label]["recall"]["baseline"]
        for label in labels()
    ]
    assert changes == sorted(changes)
    change.locator("button").click()
    assert change.get_attribute("aria-sort") == "descending"
    page.locator("#class-table th[data-sort=name] button").click()
    names = [contents["classes"][label]["name"] for label in labels()]
    assert names == sorted(names)
    page.locator("#class-filter").fill("DALMATIAN")
    kept = [contents["classes"][label]["name"] for label in labels()]
    assert kept == [name for name in names if "dalmatian" in name]
    wait_until(page, "document.getElementById('class-count').textContent")
    assert page.locator("#class-count").inner_text() == f"{len(kept)} of 102 classes"


def test_hostile_names_are_text_everywhere(visit):
    page = visit("hostile")
    draw_all(page)
    for details in page.locator("details").all():
        details.evaluate("(one) => (one.open = true)")
    settle(page)
    for row in range(len(HOSTILE)):
        page.locator("#class-table tbody button").nth(row).click()
        settle(page)
        page.keyboard.press("Escape")
    page.locator("#class-table tbody button", has_text=HOSTILE[0]).last.click()
    assert page.locator("#detail-name").inner_text() == HOSTILE[0]
    page.keyboard.press("Escape")
    assert page.locator("script").count() == 3
    assert page.evaluate("document.querySelectorAll('svg a, svg script, img[src=x]').length") == 0
    assert page.evaluate("document.querySelectorAll('[href^=javascript], main b').length") == 0
    ticks = page.locator("#confusion-chosen .ytick text").all_text_contents()
    assert "\u2068<script>al…ript>\u2069" in ticks
    assert "\u2068<a href='j…k</a>\u2069" in ticks
    page.locator("#confusion-chosen").scroll_into_view_if_needed()
    box = page.locator("#confusion-chosen").bounding_box()
    margin = page.evaluate("document.getElementById('confusion-chosen').layout.margin")
    cell = (box["width"] - margin["l"] - margin["r"]) / len(HOSTILE)
    place = (contents_of("hostile")["by_rarity"].index(0) + 0.5) * cell
    page.mouse.move(box["x"] + margin["l"] + place, box["y"] + margin["t"] + place)
    wait_until(page, "document.querySelector('#confusion-chosen .hoverlayer text')")
    assert HOSTILE[0] in page.locator("#confusion-chosen .hoverlayer").text_content()


def test_contrast(visit):
    page = visit("lone_run")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        check_contrast(page)


def check_contrast(page) -> None:
    # Painted and read back, to get mixed and transparent colours as users see them.
    painted = """(layers) => {
      const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
      const probe = document.body.appendChild(document.createElement("span"));
      for (const layer of layers) {
        probe.style.color = layer;
        canvas.fillStyle = getComputedStyle(probe).color;
        canvas.fillRect(0, 0, 1, 1);
      }
      probe.remove();
      return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    }"""
    grounds = {name: [f"var(--{name})"] for name in ("page", "surface", "sunken", "accent-soft")}
    for tone in ("better", "worse"):
        mixed = f"color-mix(in srgb, var(--{tone}) 45%, transparent)"
        grounds[tone] = ["var(--surface)", mixed]
    pairs = [("ink", ground) for ground in grounds]
    pairs += [("quiet", ground) for ground in ("page", "surface", "sunken", "accent-soft")]
    pairs += [("accent", ground) for ground in ("page", "surface", "accent-soft")]
    for ink, ground in pairs:
        colours = [
            page.evaluate(painted, [f"var(--{ink})"]),
            page.evaluate(painted, grounds[ground]),
        ]
        assert contrast(*colours) >= 4.5, (ink, ground, colours)
    button = [page.evaluate(painted, [f"var(--{name})"]) for name in ("accent-ink", "accent")]
    assert contrast(*button) >= 4.5


def test_colours_follow_the_button_and_nothing_is_stored(visit_fresh):
    page = visit_fresh("lone_run", color_scheme="light")
    wait_until(page, "document.getElementById('recalls-chart').data")

    def colours() -> list[str]:
        return page.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " document.getElementById('recalls-chart').layout.font.color]"
        )

    light = colours()
    page.get_by_role("button", name="Dark colours").click()
    dark = colours()
    assert dark[0] != light[0]
    assert dark[1] != light[1]
    page.get_by_role("button", name="Light colours").click()
    assert colours() == light
    page.emulate_media(color_scheme="dark")
    assert colours() == light  # the button was pressed: it stays
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert page.context.cookies() == []


@pytest.mark.parametrize("name", ["ten_classes", "many_classes"])
def test_prints_whole_and_light(visit, visit_fresh, name):
    # charts of the fresh page are not drawn yet
    page = visit(name) if name == "many_classes" else visit_fresh(name, color_scheme="dark")
    settle(page)
    page.emulate_media(media="print", color_scheme="dark")
    settle(page)
    assert page.evaluate("[...document.querySelectorAll('main .chart')].every((one) => one.data)")
    assert all(section.is_visible() for section in page.locator("section").all())
    assert not page.locator("#prior").is_visible()
    assert not page.locator("#theme").is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    widths = page.locator("main .chart").evaluate_all("(all) => all.map((one) => one.layout.width)")
    assert max(widths) <= 680
    clipped = page.locator(".scroll.tall").evaluate_all(
        "(all) => all.filter((one) => one.scrollHeight > one.clientHeight + 1).length"
    )
    assert clipped == 0
    page.emulate_media(media="screen")
    settle(page)
    assert not page.evaluate("document.documentElement.classList.contains('printing')")
    if name == "ten_classes":
        assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts(visit_fresh):
    page = visit_fresh("ten_classes", java_script_enabled=False)
    assert page.locator("main > noscript p").is_visible()
    assert page.locator(".verdict").is_visible()
    assert page.locator("#class-table tbody tr").count() == 10
    assert page.locator(".leaderboard tbody tr").count() == 4
    assert not page.locator("#prior").is_visible()
    assert not page.locator(".chart").first.is_visible()


def test_copies_the_command(visit):
    page = visit("lone_run")
    page.locator("#copy").click()
    wait_until(page, "document.getElementById('copied').textContent")
    assert page.locator("#copied").inner_text().startswith(("Copied", "Selected"))
