"""The page of the server as users see and use it, in headless Chromium."""

import csv
import io
import threading
import time
from contextlib import contextmanager

import pytest
import torch
import uvicorn
from playwright.sync_api import expect

from contrast import contrast
from cosen.serving.app import make_app
from serving.conftest import encoded

expect.set_options(timeout=30_000)

pytestmark = [pytest.mark.browser, pytest.mark.training, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def address(served_runs):
    with served(make_app(served_runs[0], name="<b>digits</b>")) as address:
        yield address


@contextmanager
def served(app):
    """Serve an application in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join(60)


@contextmanager
def opened(chromium, address, **options):
    """Open the page; it must have no error and load nothing else."""
    context = chromium.new_context(**options)
    page, troubles, requests = context.new_page(), [], []
    page.on("console", lambda one: one.type in ("error", "warning") and troubles.append(one.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda one: requests.append(one.url))
    try:
        page.goto(address)
        yield page
    finally:
        context.close()
    assert troubles == []
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)


@pytest.fixture(params=[1280, 360], ids=["wide", "phone"])
def page(chromium, address, request):
    """The page with two images and a broken one."""
    images = [
        {"name": "=one.png", "mimeType": "image/png", "buffer": encoded(0, size=(60, 40))},
        {"name": "two.jpg", "mimeType": "image/jpeg", "buffer": encoded(1, kind="JPEG")},
        {"name": "<i>bad</i>.png", "mimeType": "image/png", "buffer": b"no image"},
    ]
    with opened(chromium, address, viewport={"width": request.param, "height": 800}) as page:
        page.set_input_files("#files", images)
        expect(page.locator("#status")).to_have_text("2 images predicted, 1 could not be predicted")
        yield page


WIDE = pytest.mark.parametrize("page", [1280], indirect=True)


def shown(page):
    return page.locator(".decision").all_inner_texts()


def test_images_are_predicted_and_decided_again_in_the_page(page, address):
    expect(page.locator("#title")).to_have_text("<b>digits</b>")
    expect(page.locator(".card .map")).to_have_count(2)
    expect(page.locator(".card .problem")).to_have_text("not an image of a supported format")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"]
    first = shown(page)

    share = page.get_by_label("Share of 3 in per cent")
    share.clear()
    share.press_sequentially("99.99")  # almost all images are threes
    share.press("Tab")
    expect(page.locator(".decision").first).to_have_text("3")
    expect(page.locator("#prior-text")).to_have_text("Your own shares are used.")
    shares = [float(one.input_value()) for one in page.locator("#shares input").all()]
    assert shares[3] == 99.99
    assert sum(shares) == pytest.approx(100, abs=0.02)
    page.get_by_role("button", name="Outputs as they are").click()
    expect(page.locator(".decision")).to_have_text(first)

    for other in range(10):
        page.get_by_label(f"Cost of 7 for a true {other}", exact=True).fill("0")
    expect(page.locator(".decision")).to_have_text(["7", "7"])
    page.get_by_role("button", name="Make all mistakes equal").click()
    expect(page.locator(".decision")).to_have_text(first)


def test_the_slider_gives_the_probabilities_of_the_server(page, address):
    page.locator("#prior").focus()
    page.keyboard.press("Home")  # the training shares
    expect(page.locator("#prior-text")).to_have_text("Training shares")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    rows = list(csv.reader(io.StringIO(download.value.path().read_text())))
    assert rows[0][:5] == ["image", "class", "probability", "set", "0"]
    assert [row[0] for row in rows[1:]] == ["'=one.png", "two.jpg"]  # never a formula
    form = {"name": "x.png", "mimeType": "image/png", "buffer": encoded(0, size=(60, 40))}
    fields = {"images": form, "prior": "train", "top": "10"}
    answer = page.request.post(f"{address}predict", multipart=fields).json()["images"][0]
    expected = {one["name"]: one["probability"] for one in answer["top"]}
    for name, share in zip(rows[0][4:], rows[1][4:], strict=True):
        assert float(share) == pytest.approx(expected[name], abs=1e-5)
    assert rows[1][1] == answer["class"]


def test_maps_can_be_hidden_and_images_removed(page):
    page.get_by_label("Show where the network looked").uncheck()
    expect(page.locator(".card .map").first).to_be_hidden()
    page.get_by_role("button", name="Dark colours").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Remove all").click()
    expect(page.locator(".card")).to_have_count(0)
    expect(page.locator("#tools")).to_be_hidden()


def test_images_wait_for_the_model(chromium, address):
    image = {"name": "a.png", "mimeType": "image/png", "buffer": encoded(0)}
    with opened(chromium, address) as page:
        held = []
        page.route("**/model", lambda route: held.append(route))
        page.reload()
        page.set_input_files("#files", [image])
        deadline = time.monotonic() + 30
        while not held:
            assert time.monotonic() < deadline
            page.wait_for_timeout(10)
        held[0].continue_()
        expect(page.locator("#status")).to_have_text("1 image predicted")


@WIDE
def test_images_are_dropped(page):
    content = list(encoded(2))
    dropped = page.evaluate_handle(
        """(content) => {
          const data = new DataTransfer();
          const file = new File([new Uint8Array(content)], "new.png", { type: "image/png" });
          data.items.add(file);
          return data;
        }""",
        content,
    )
    page.dispatch_event("#drop", "dragover", {"dataTransfer": dropped})
    expect(page.locator("#drop")).to_contain_class("over")
    page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})
    expect(page.locator("#status")).to_have_text("3 images predicted, 1 could not be predicted")
    expect(page.locator("#drop")).not_to_contain_class("over")
    expect(page.locator(".card").last).to_contain_text("new.png")


FOCUS = """() => {
  const found = document.activeElement;
  const shown = found.id === "files" ? document.getElementById("drop") : found;
  const name = found.id || found.getAttribute("aria-label") || found.getAttribute("href");
  return [name ?? found.tagName, getComputedStyle(shown).outlineStyle];
}"""


@WIDE
def test_the_keyboard_reaches_every_control(page):
    reached = []
    while len(reached) < 300:
        page.keyboard.press("Tab")
        name, outline = page.evaluate(FOCUS)
        if name == "BODY" or name in reached:
            break
        assert outline != "none", name
        reached.append(name)
    expected = ["#main", "theme", "files", "maps", "download", "clear"]
    expected += ["prior", "training-shares", "equal-shares", "as-trained"]
    expected += [f"Share of {name} in per cent" for name in range(10)]
    expected += ["Costs of mistakes"]
    expected += [f"Cost of {n} for a true {p}" for p in range(10) for n in range(10)]
    assert reached == [*expected, "equal-costs"]
    page.locator("#training-shares").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#prior-text")).to_have_text("Equal shares")


# Painted and read back, to get mixed and transparent colours as users see them.
COLOURS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const painted = (layers) => {
    for (const layer of layers) {
      canvas.fillStyle = layer;
      canvas.fillRect(0, 0, 1, 1);
    }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const found = new Map();
  for (const one of document.querySelectorAll("body *")) {
    const texts = [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const hasText = one.tagName === "INPUT" || texts.some((node) => node.data.trim());
    if (!hasText || !one.checkVisibility()) continue;
    const grounds = [];
    for (let outer = one; outer; outer = outer.parentElement) {
      grounds.unshift(getComputedStyle(outer).backgroundColor);
    }
    const layers = [...grounds, getComputedStyle(one).color];
    const text = `${one.tagName} ${one.className} ${one.id}`;
    found.set(layers.join(), [text, painted(layers), painted(grounds)]);
  }
  return [...found.values()];
}"""


@WIDE
def test_contrast(page):
    page.locator("#rule-note").evaluate("(note) => (note.hidden = false)")
    grounds = set()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colours = page.evaluate(COLOURS)
        assert len(colours) > 5
        for text, ink, ground in colours:
            assert contrast(ink, ground) >= 4.5, (scheme, text, ink, ground)
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2


@WIDE
def test_a_long_prediction_set_is_a_count(page):
    names = [f"c{number}" for number in range(25)]
    script = "(names) => { inEverySet = new Set(names.slice(0, 22)); return setText(names); }"
    reason = "(too few validation images to exclude)"
    assert page.evaluate(script, names) == f"90 % set: c22, c23, c24; also 22 classes {reason}"
    assert page.evaluate(script, names[:2]) == f"90 % set: c0, c1 {reason}"
    assert page.evaluate(script, names[22:]) == f"90 % set: c22, c23, c24 {reason}"
    assert page.evaluate("setText(Array(30).fill('x'))") == "90 % set: 30 classes"
    assert page.evaluate("setText([])") == "90 % set: none"


def test_the_options_of_the_server_are_shown(chromium, served_runs):
    """A rule counts until shares or costs change in the page, and can be restored."""
    costs = torch.ones(10, 10) - torch.eye(10)
    costs[:, 4] = 0  # a decision for class 4 costs nothing
    image = {"name": "a.png", "mimeType": "image/png", "buffer": encoded(0)}
    app = make_app(served_runs[0], misclassification_costs=costs, prior="balanced")
    with served(app) as url, opened(chromium, url) as page:
        restore = page.get_by_role("button", name="As the server decides")
        expect(page.locator("#prior-text")).to_have_text("Equal shares")
        cost = page.get_by_label("Cost of 4 for a true 2", exact=True)
        expect(cost).to_have_value("0")
        page.set_input_files("#files", [image])
        expect(page.locator(".decision")).to_have_text("4")
        page.get_by_role("button", name="Training shares").click()
        expect(page.locator(".decision")).to_have_text("4")  # the costs still count
        page.get_by_role("button", name="Make all mistakes equal").click()
        expect(page.locator(".decision")).not_to_have_text("4")
        expect(cost).to_have_value("1")
        restore.click()
        expect(page.locator(".decision")).to_have_text("4")
        expect(cost).to_have_value("0")
        expect(page.locator("#prior-text")).to_have_text("Equal shares")
    app = make_app(served_runs[0], decide="review:0.9", prior="train")
    with served(app) as url, opened(chromium, url) as page:
        expect(page.locator("#prior-text")).to_have_text("Training shares")
        page.set_input_files("#files", [image])
        note, problem = page.locator("#rule-note"), page.locator(".card .problem")
        expect(problem).to_have_text("A person should check this image")
        expect(note).to_be_hidden()
        for back in ("As the server decides", "Training shares"):
            page.get_by_role("button", name="Equal shares").click()
            expect(note).to_be_visible()
            expect(problem).to_have_count(0)
            page.get_by_role("button", name=back).click()
            expect(note).to_be_hidden()
            expect(problem).to_have_count(1)


def test_a_server_without_options_needs_no_way_back(page):
    expect(page.get_by_role("button", name="As the server decides")).to_be_hidden()
    page.get_by_label("Cost of 7 for a true 1", exact=True).fill("2")
    expect(page.locator("#prior-text")).to_have_text(
        "Training shares, because costs need real shares"
    )


def test_a_failure_in_a_test_ends_the_server(served_runs):
    def fail():
        with served(make_app(served_runs[0])) as address:
            raise ConnectionError(address)

    before = set(threading.enumerate())
    with pytest.raises(ConnectionError):
        fail()
    left = [one.name for one in threading.enumerate() if one not in before]
    assert not any(name.endswith("(run)") for name in left)
