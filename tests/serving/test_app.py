"""Predictions by HTTP: the same as those of ``predict``, with limits, and errors as sentences."""

import asyncio
import io
import json
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
import zlib
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from torch import Tensor, nn

import cosen
from cosen.errors import InputError, RunError
from cosen.inference.predict import batch_logits, open_models, predict_images
from cosen.serving.app import Limits, _Guard, make_app, serve
from cosen.serving.engine import Engine
from cosen.training.model_file import OWN, build_classifier, load_info, save_model
from serving.conftest import BODY, LOCAL, encoded, files

pytestmark = [pytest.mark.training, pytest.mark.xdist_group("serving")]

SECONDS = 100
"""Longest time that the command may take."""


def post(client, *contents, **fields):
    answer = client.post("/predict", files=files(*contents), data=fields)
    return answer.status_code, answer.json()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prior": "train"},
        {"prior": "balanced", "decide": "review:0.3"},
        {"decide": "recall:8=0.5"},
        {"decide": "sets:0.3", "prior": "train"},
        {"runs": 2},
        {"flip": True, "prior": "balanced"},
    ],
)
def test_answers_are_those_of_predict(served_runs, tmp_path, options):
    contents = [encoded(seed) for seed in range(5)]
    for number, one in enumerate(contents):
        (tmp_path / f"{number}.png").write_bytes(one)
    options, paths = dict(options), sorted(tmp_path.glob("*.png"))
    runs = served_runs[: options.pop("runs", 1)]
    expected = predict_images(runs, paths, top=3, **options)
    with TestClient(make_app(runs, **options), base_url=LOCAL) as client:
        status, found = post(client, *contents, top=3)
    assert status == 200
    for own, other in zip(found["images"], expected, strict=True):
        assert own["class"] == other.decision
        assert own["probability"] == pytest.approx(other.probability, rel=1e-5)
        assert [one["name"] for one in own["top"]] == [one.name for one in other.top]
        assert own.get("review") == other.review
        if other.classes is not None:
            assert own["classes"] == list(other.classes)


def test_options_of_a_request(client):
    names = client.get("/model").json()["classes"]
    costs = torch.ones(10, 10) - torch.eye(10)
    costs[:, 3] = 0  # a decision for class 3 costs nothing
    status, found = post(client, encoded(), costs=json.dumps(costs.tolist()))
    assert (status, found["images"][0]["class"]) == (200, names[3])
    shares = ",".join(f"{name}={1 if name == names[7] else 1e-9}" for name in names)
    assert post(client, encoded(), prior=shares)[1]["images"][0]["class"] == names[7]
    plain = post(client, encoded())[1]["images"][0]
    assert len(plain["top"]) == 5
    assert plain["image"] == "0.png"
    assert set(plain["classes"]) <= set(names)
    (small,) = post(client, encoded(), decide="sets:0.2")[1]["images"]
    assert len(small["classes"]) < len(plain["classes"])
    assert "map" not in plain


def test_a_request_can_ignore_the_options_of_the_server(served_runs, client):
    costs = torch.ones(10, 10) - torch.eye(10)
    costs[:, 3] = 0  # a decision for class 3 costs nothing
    names = client.get("/model").json()["classes"]
    plain, trained, checked = (
        post(client, encoded(), **fields)[1]["images"][0]
        for fields in ({}, {"prior": "train"}, {"decide": "review:0.3", "prior": "train"})
    )
    assert plain["top"] != trained["top"]
    assert names[3] not in (plain["class"], trained["class"])
    app = make_app(served_runs[0], misclassification_costs=costs, prior="train")
    with TestClient(app, base_url=LOCAL) as own:

        def found(**fields):
            status, answer = post(own, encoded(), **fields)
            assert status == 200, answer
            return answer["images"][0]

        assert found()["class"] == names[3]
        assert found(prior="", decide=" ", costs="") == found()  # empty fields are none
        assert found(decide="review:0.3") == checked
        assert found(decide="probability") == found(costs="none") == trained
        assert found(costs="none", prior="outputs") == plain
        assert found(costs="none", decide="review:0.3") == checked
        as_they_are = found(prior="outputs")
        assert (as_they_are["class"], as_they_are["top"]) == (names[3], plain["top"])
        fields = own.get("/openapi.json").json()["components"]["schemas"]
        assert "0.0" not in json.dumps(fields)  # no cost table
    with TestClient(make_app(served_runs[0], decide="review:0.3"), base_url=LOCAL) as own:
        by_costs = post(own, encoded(), costs=json.dumps(costs.tolist()))[1]["images"][0]
    assert by_costs["class"] == names[3]
    assert "review" not in by_costs


def test_details_give_the_page_what_it_needs(client):
    """From the outputs, the page computes the probabilities under any class shares."""
    facts = client.get("/model").json()
    own = post(client, encoded(size=(40, 16)), details=True, prior="train", top=10)[1]["images"][0]
    (outputs,), (model,) = own["outputs"], facts["models"]
    computed = (torch.tensor(outputs) + torch.tensor(model["offsets"])).softmax(0)
    found = {one["name"]: one["probability"] for one in own["top"]}
    for name, share in zip(facts["classes"], computed.tolist(), strict=True):
        assert found[name] == pytest.approx(share, rel=1e-4)
    largest = max(zip(outputs, facts["classes"], strict=True))[1]
    assert own["map"]["class"] == largest
    assert facts["has_maps"]
    assert own["map"]["picture"].startswith("data:image/png;base64,")
    assert own["map"]["box"] == pytest.approx([0.3, 0, 0.7, 1])  # the centre is cropped
    assert facts["coverage"] == 0.9
    assert facts["limits"]["max_images"] == 64


def test_health_and_documentation_without_the_internet(client):
    assert client.get("/health").json() == {"status": "ok"}
    paths = client.get("/openapi.json").json()["paths"]
    assert {*paths} == {"/health", "/model", "/predict"}
    assert "http" not in client.get("/docs").text.replace("http-equiv", "")


def test_a_broken_image_is_an_error_of_its_own(client):
    status, found = post(client, encoded(), b"no image", b"", encoded(1)[:60], encoded(2))
    assert status == 200
    errors = [one.get("error") for one in found["images"]]
    assert errors[0] is errors[4] is None
    assert errors[1] == errors[2] == "not an image of a supported format"
    assert errors[3]
    assert "class" not in found["images"][1]


def test_an_image_with_too_many_pixels_is_refused_before_it_is_decoded(client):
    header = struct.pack(">IIBBBBB", 9000, 9000, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + header
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
    bomb += struct.pack(">I", zlib.crc32(chunk)) + encoded()[33:]
    found = post(client, bomb, encoded())[1]["images"]
    assert found[0]["error"] == "it has 81 million pixels, and the limit is 50 million"
    assert "class" in found[1]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prior": "often"}, "prior must be train"),
        ({"prior": "0=1"}, "prior has no share for"),
        ({"prior": "estimate"}, "do not determine the class shares"),
        ({"decide": "maybe"}, "decide must be"),
        ({"decide": "recall:x=0.9"}, "no class"),
        ({"costs": "[1"}, "costs must be a JSON list"),
        ({"costs": "[[1]]"}, "must have the shape"),
        ({"costs": "[" * 5000}, "costs must be a JSON list"),
        ({"costs": json.dumps([[0] * 10] * 10), "decide": "review:0.1"}, "not by both"),
        ({"top": "0"}, "top must be at least 1"),
        ({"priors": "train"}, "'priors' is unknown: did you mean 'prior'"),
        ({"top": "many"}, "top: Input should be a valid integer"),
    ],
)
def test_a_wrong_option_is_one_sentence(client, fields, message):
    status, found = post(client, encoded(), **fields)
    assert status == 422
    assert message in found["error"]
    assert [*found] == ["error"]


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        ({"url": "/predict", "method": "POST"}, 422, "form field images"),
        ({"url": "/predict", "method": "POST", "data": {"images": "/etc/passwd"}}, 422, "form"),
        ({"url": "/predict", "method": "GET"}, 405, "Method Not Allowed"),
        ({"url": "/model", "method": "GET", "headers": {"host": "["}}, 403, "not called"),
        ({"url": "/model", "method": "GET", "headers": {"origin": "http://["}}, 403, "other web"),
        ({"url": "/../../etc/passwd", "method": "GET"}, 404, "Not Found"),
        ({"url": "/model", "method": "GET", "headers": {"host": "evil.example"}}, 403, "evil"),
        (
            {"url": "/model", "method": "GET", "headers": {"origin": "http://evil.example"}},
            403,
            "other web sites",
        ),
        (
            {"url": "/predict", "method": "POST", "headers": {"content-length": "-5"}},
            413,
            "100 MB",
        ),
    ],
)
def test_a_wrong_request_is_refused(client, request_, status, message):
    answer = client.request(**request_)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert ("allow" in answer.headers) == (status == 405)


def test_costs_of_many_classes(served_runs, tmp_path):
    """A table of 400 classes has more than the 1 MB of usual form fields."""
    names = tuple(f"class {number}" for number in range(400))
    counts = torch.ones(400, dtype=torch.int64)
    classes = {"class_names": names, "class_counts": counts, "offsets": ()}
    info = load_info(served_runs[0]).model_copy(update=classes)
    save_model(tmp_path, build_classifier(info), info)
    costs = torch.rand(400, 400, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    costs[:, 7] = 0
    text = json.dumps(costs.tolist())
    assert len(text) > 2 * 2**20
    with TestClient(make_app(tmp_path), base_url=LOCAL) as client:
        status, found = post(client, encoded(), costs=text)
        assert (status, found["images"][0]["class"]) == (200, "class 7")
        assert post(client, encoded(), costs=8 * text)[0] == 400  # more than a table can have


def test_limits(served_runs):
    limits = Limits(max_images=2, max_bytes=5000, max_waiting=2)
    with TestClient(make_app(served_runs[0], limits=limits), base_url=LOCAL) as client:
        assert post(client, *[encoded()] * 2)[0] == 200
        status, found = post(client, *[encoded()] * 3)
        assert (status, found) == (413, {"error": "a request can have 2 images, but has 3"})
        status, found = post(client, encoded(size=(200, 200)))
        assert (status, found) == (413, {"error": "a request can have 0 MB"})

        def parts():  # without a length
            yield BODY.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
            yield from [b"x" * 1000] * 20

        headers = {"content-type": "multipart/form-data; boundary=b"}
        assert client.post("/predict", content=parts(), headers=headers).status_code == 413


def test_a_busy_server_says_when_to_try_again(served_runs, monkeypatch):
    answering, release = threading.Event(), threading.Event()
    answer = Engine._answer

    def wait_and_answer(engine, batch):
        answering.set()
        assert release.wait(50)
        answer(engine, batch)

    monkeypatch.setattr(Engine, "_answer", wait_and_answer)
    app = make_app(served_runs[0], limits=Limits(max_waiting=3))
    with TestClient(app, base_url=LOCAL) as client:
        first = threading.Thread(target=post, args=(client, encoded(), encoded()))
        first.start()
        assert answering.wait(50)  # the first request is counted
        busy = client.post("/predict", files=files(encoded(), encoded()))
        release.set()
        first.join()
        assert busy.status_code == 503
        assert busy.headers["retry-after"] == "5"
        assert post(client, encoded())[0] == 200


async def request(app, receive, *headers):
    """Send a request to an application, and return its messages."""
    sent = []

    async def send(message):
        sent.append(message)

    multipart = (b"content-type", b"multipart/form-data; boundary=b")
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), multipart, *headers],
    }
    await app(scope, receive, send)
    return sent


@pytest.mark.parametrize("has_length", [True, False])
def test_a_full_server_refuses_a_body_before_it_is_stored(served_runs, has_length):
    limits = Limits(max_bytes=1000)
    app = make_app(served_runs[0], limits=limits)
    length = [(b"content-length", b"1000")] * has_length
    body = BODY + b" " * (1000 - len(BODY))

    def part(content, more):
        return {"type": "http.request", "body": content, "more_body": more}

    async def send_all():
        waiting, release = asyncio.Semaphore(0), asyncio.Event()

        def slow():
            parts = iter([part(body[:999], True), part(body[999:], False)])

            async def receive():
                message = next(parts)
                if not message["more_body"]:
                    waiting.release()  # the first part is counted
                    await release.wait()
                return message

            return receive

        async def at_once():
            received.append(True)
            return part(body, False)

        received = []
        running = [asyncio.create_task(request(app, slow(), *length)) for _ in range(4)]
        for _ in running:
            await waiting.acquire()
        refused = await request(app, at_once, *length)
        assert bool(received) != has_length  # a known length is refused without reading
        release.set()
        answers = await asyncio.gather(*running)
        answers.append(await request(app, at_once, *length))  # there is room again
        return refused, answers

    with TestClient(app, base_url=LOCAL), ThreadPoolExecutor() as threads:
        refused, answers = threads.submit(asyncio.run, send_all()).result()
    assert refused[0]["status"] == 503
    assert (b"retry-after", b"5") in refused[0]["headers"]
    assert [one[0]["status"] for one in answers] == [200] * 5


def test_an_application_can_start_again(served_runs):
    app = make_app(served_runs[0])
    for _ in range(2):
        with TestClient(app, base_url=LOCAL) as client:
            assert post(client, encoded())[0] == 200
    assert post(TestClient(app, base_url=LOCAL), encoded())[0] == 200  # as in a mounted one
    with pytest.raises(InputError, match="give prior=estimate with a request"):
        make_app(served_runs[0], prior=" estimate")


def test_host_names_have_no_case(served_runs):
    app = make_app(served_runs[0], hosts=["MyBox"])
    for name in ("MyBox", "mybox:80"):
        answer = TestClient(app, base_url=LOCAL).get("/health", headers={"host": name})
        assert answer.status_code == 200


def test_a_request_that_takes_too_long_is_ended(served_runs, monkeypatch):
    release = threading.Event()
    answer = Engine._answer
    monkeypatch.setattr(Engine, "_answer", lambda *args: release.wait(50) and answer(*args))
    app = make_app(served_runs[0], limits=Limits(max_waiting=2))
    hasty = _Guard(app, limits=Limits(seconds=0.5), hosts=None)
    with TestClient(app, base_url=LOCAL) as client:
        status, found = post(TestClient(hasty, base_url=LOCAL), encoded())
        assert (status, found) == (504, {"error": "this took longer than 0.5 s"})
        release.set()
        assert post(client, encoded(), encoded())[0] == 200  # nothing waits any more


def test_outputs_that_are_not_finite_are_an_error_of_their_image(served_runs, monkeypatch):
    def overflow(classifier, inputs, *, flip):
        logits = batch_logits(classifier, inputs, flip=flip)
        logits[inputs.flatten(1).std(1) == 0] = float("nan")
        return logits

    monkeypatch.setattr("cosen.serving.engine.batch_logits", overflow)
    engine = Engine(open_models(served_runs[0]), device="cpu", max_pixels=10**6)
    black = io.BytesIO()
    Image.new("L", (16, 16)).save(black, "PNG")
    contents = [encoded(0), black.getvalue(), encoded(1)]
    batch = [engine._decoded(one, True, Future()) for one in contents]
    engine._answer(batch)
    first, second, third = (job.answer for job in batch)
    with pytest.raises(RunError, match="outputs that are not finite"):
        second.result(0)
    assert first.result(0).map.picture != third.result(0).map.picture
    assert bool(third.result(0).logits.isfinite().all())


class Tokens(nn.Module):
    """A custom transformer that has the names of timm's for some of its parts only."""

    num_prefix_tokens = 0

    def __init__(self):
        super().__init__()
        self.patch_embed, self.output = nn.Conv2d(1, 4, 4, 4), nn.Linear(4, 10)

    def forward(self, images):
        return self.output(self.patch_embed(images).flatten(2).mean(2))


def test_a_custom_network_without_maps(served_runs, tmp_path):
    info = load_info(served_runs[0])
    info = info.model_copy(update={"network": OWN, "options": {}})
    save_model(tmp_path, build_classifier(info, Tokens), info)
    with TestClient(make_app(tmp_path, network=Tokens), base_url=LOCAL) as client:
        assert not client.get("/model").json()["has_maps"]
        status, found = post(client, encoded(), details=True)
        assert (status, found["images"][0]["map"]) == (200, None)


def test_a_failure_is_logged_and_not_shown(served_runs, monkeypatch, caplog):
    def fail(*_):
        raise ZeroDivisionError("secret")

    app = make_app(served_runs[0])
    monkeypatch.setattr(Engine, "_answer", fail)
    with TestClient(app, base_url=LOCAL, raise_server_exceptions=False) as client:
        status, found = post(client, encoded())
    assert (status, found) == (500, {"error": "the server failed: see its log"})
    assert "secret" in caplog.text


def test_images_of_many_requests_share_batches(served_runs, monkeypatch):
    sizes, answer = [], Engine._answer

    def slow(engine, batch):
        sizes.append(len(batch))
        deadline = time.monotonic() + 50
        while len(sizes) == 1 and len(batch) + engine._jobs.qsize() < 40:  # until all are decoded
            assert time.monotonic() < deadline
            time.sleep(0.01)
        answer(engine, batch)

    monkeypatch.setattr(Engine, "_answer", slow)
    app = make_app(served_runs[0])

    async def send_all():
        import httpx

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=LOCAL) as client:
            requests = (client.post("/predict", files=files(encoded(n))) for n in range(40))
            return await asyncio.gather(*requests)

    with TestClient(app, base_url=LOCAL) as client:
        with ThreadPoolExecutor() as threads:  # this one may have an event loop
            found = threads.submit(asyncio.run, send_all()).result()
        assert [one.status_code for one in found] == [200] * 40
        assert sum(sizes) == 40
        assert len(sizes) <= 3
        alone = post(client, encoded(7))[1]["images"][0]
    together = found[7].json()["images"][0]
    assert together["probability"] == pytest.approx(alone["probability"], rel=1e-4)


def out_of_memory(*_, **__):
    raise RuntimeError("CUDA out of memory")


def test_mistakes_before_the_server_starts(served_runs, tmp_path, monkeypatch):
    run = cosen.load(served_runs[0])
    with pytest.raises(InputError, match="decide must be"):
        run.app(decide="maybe")
    with pytest.raises(InputError, match="device 'foo' cannot be used: "):
        run.app(device="foo")
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "to", out_of_memory)
        with pytest.raises(RunError, match="memory ran out"):
            run.app()
        patch.undo()
        patch.setattr("cosen.serving.engine.find_map_layer", out_of_memory)
        with pytest.raises(RunError, match="memory ran out"):
            run.app()
    for name in ("model.json", "model.safetensors"):
        (tmp_path / name).write_bytes((run.path / name).read_bytes())
    with TestClient(cosen.load(tmp_path).app(), base_url=LOCAL) as client:
        assert post(client, encoded())[1]["images"][0].get("classes") is None
    with pytest.raises(RunError, match="use the whole folder of a finished run"):
        cosen.load(tmp_path).app(decide="review:0.1")
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(RunError, match=r'needs the package fastapi: pip install "cosen\[serve\]"'):
        run.app()


@pytest.mark.processes
def test_the_command(served_runs):
    command = [sys.executable, "-m", "cosen", "serve", str(served_runs[0]), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        late = threading.Timer(SECONDS, process.kill)  # ends readline
        late.start()
        try:
            line = process.stdout.readline()
            address = line.split()[1]
            assert address.startswith("http://127.0.0.1:")
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(address, timeout=SECONDS) as page:
                policy = page.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "<title>cosen</title>" in page.read().decode()
            port = int(address.rstrip("/").rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as raw:
                raw.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
                assert b" 400 " in raw.makefile("rb").readline()
            with pytest.raises(RunError, match=f"cannot listen on 127.0.0.1 port {port}: .*in use"):
                serve(make_app(served_runs[0]), host="127.0.0.1", port=port, announce=print)
        finally:
            late.cancel()
            process.terminate()


def test_a_rotated_image_is_used_as_it_is_seen(client):
    """Cameras store the rotation in EXIF data."""
    image = Image.open(io.BytesIO(encoded(5, size=(16, 16))))
    turned, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    image.rotate(90, expand=True).save(turned, "PNG", exif=exif)
    first, second = post(client, encoded(5, size=(16, 16)), turned.getvalue())[1]["images"]
    assert first["top"] == second["top"]
