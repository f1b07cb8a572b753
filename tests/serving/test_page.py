"""The page of the server as users see and use it, in headless Chromium."""

import csv
import io
import threading
from contextlib import contextmanager

import pytest
import torch
import uvicorn
from playwright.sync_api import expect

from cosen.serving.app import make_app
from serving.conftest import encoded

pytestmark = [pytest.mark.browser, pytest.mark.training, pytest.mark.xdist_group("browser")]


@pytest.fixture(scope="module")
def address(served_runs):
    with served(make_app(served_runs[0], name="<b>digits</b>")) as address:
        yield address


@contextmanager
def served(app):
    """Serve an application in a thread."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        pass
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(params=[1280, 360], ids=["wide", "phone"])
def page(chromium, address, request):
    """The page with two images and a broken one; it must have no error and load nothing else."""
    page = chromium.new_context(viewport={"width": request.param, "height": 800}).new_page()
    troubles, requests = [], []
    page.on("console", lambda one: troubles.append(one.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda one: requests.append(one.url))
    page.goto(address)
    images = [
        {"name": "=one.png", "mimeType": "image/png", "buffer": encoded(0, size=(60, 40))},
        {"name": "two.jpg", "mimeType": "image/jpeg", "buffer": encoded(1, kind="JPEG")},
        {"name": "<i>bad</i>.png", "mimeType": "image/png", "buffer": b"no image"},
    ]
    page.set_input_files("#files", images)
    expect(page.locator("#status")).to_have_text("2 images predicted, 1 could not be predicted")
    yield page
    assert troubles == []
    assert all(url.startswith((address, "data:", "blob:")) for url in requests)
    page.context.close()


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


def test_the_options_of_the_server_are_shown(chromium, served_runs):
    """A rule counts until shares or costs change in the page."""
    costs = torch.ones(10, 10) - torch.eye(10)
    costs[:, 4] = 0  # a decision for class 4 costs nothing
    image = {"name": "a.png", "mimeType": "image/png", "buffer": encoded(0)}
    page = chromium.new_context().new_page()
    with served(make_app(served_runs[0], misclassification_costs=costs, prior="balanced")) as url:
        page.goto(url)
        expect(page.locator("#prior-text")).to_have_text("Equal shares")
        cost = page.get_by_label("Cost of 4 for a true 2", exact=True)
        expect(cost).to_have_value("0")
        page.set_input_files("#files", [image])
        expect(page.locator(".decision")).to_have_text("4")
        page.get_by_role("button", name="Training shares").click()
        expect(page.locator(".decision")).to_have_text("4")  # the costs still count
    with served(make_app(served_runs[0], decide="review:0.9", prior="train")) as url:
        page.goto(url)
        expect(page.locator("#prior-text")).to_have_text("Training shares")
        page.set_input_files("#files", [image])
        expect(page.locator(".card .problem")).to_have_text("A person should check this image")
        expect(page.locator("#rule-note")).to_be_hidden()
        page.get_by_role("button", name="Equal shares").click()
        expect(page.locator("#rule-note")).to_be_visible()
        expect(page.locator(".card .problem")).to_have_count(0)
    page.context.close()
