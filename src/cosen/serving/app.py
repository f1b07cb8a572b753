"""The HTTP interface: routes, limits and errors.

The server reads images from requests only. It takes no paths, loads no uploaded models, and answers
with one sentence if something is wrong.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import SplitResult, urlsplit

from torch import Tensor, nn

import cosen
from cosen.errors import CosenError, RunError, choices_hint
from cosen.inference.decisions import MostProbable
from cosen.inference.predict import open_models
from cosen.serving.engine import Answer, Engine
from cosen.serving.page import page, policy
from cosen.serving.service import Options, Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from fastapi import FastAPI, Response

LOOPBACK = ("127.0.0.1", "localhost", "::1")

EVERYWHERE = ("0.0.0.0", "::")
"""Addresses that stand for all of this machine."""

MAX_CONNECTIONS = 256

FIELD_BYTES, NUMBER_BYTES, FILES = 2**20, 32, 1000
"""Starlette's limits on a form field and on files, and the room for each number of a cost table."""

BUSY, RETRY = "the server is busy: try again later", {"Retry-After": "5"}

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class Limits:
    """What a server accepts.

    Attributes:
        max_bytes: Of a request; all requests at a time can have four times as many.
        max_pixels: Of an image.
        max_images: In a request.
        max_waiting: Images of all requests together.
        seconds: For a request.
    """

    max_bytes: int = 100 * 2**20
    max_pixels: int = 50_000_000
    max_images: int = 64
    max_waiting: int = 512
    seconds: float = 60.0


def make_app(
    runs: Path | str | Sequence[Path | str],
    *,
    name: str | None = None,
    prior: str = "",
    decide: str = MostProbable.kind,
    misclassification_costs: Tensor | None = None,
    flip: bool = False,
    validation_runs: Sequence[Path] = (),
    limits: Limits | None = None,
    network: Callable[[], nn.Module] | None = None,
    device: str = "auto",
    hosts: Sequence[str] | None = LOOPBACK,
) -> "FastAPI":
    """Create the application for a run, or for several whose probabilities are averaged.

    Args:
        runs: The run folder, or several.
        name: Shown on the page; by default that of the first folder.
        prior: Class shares, unless a request gives others; empty to use the outputs as they are,
            or with costs the shares of training.
        decide: The rule, unless a request gives another or costs.
        misclassification_costs: ξ′, row = true class, shape ``(C, C)``, to decide by, unless a
            request gives others or a rule.
        flip: Average the outputs for each image and its mirror image.
        validation_runs: Runs whose validation images rules are fitted to; by default ``runs``.
        limits: What is accepted.
        network: Creates the network, if the runs trained a custom one.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        hosts: Host names that requests may use, against DNS rebinding; None for any. Set it if your
            application has another name.
    """
    try:
        from fastapi import FastAPI, File, Form, HTTPException, Request, UploadFile
        from fastapi.exceptions import RequestValidationError
        from fastapi.responses import HTMLResponse, JSONResponse
        from fastapi.routing import APIRoute
        from fastapi_offline import FastAPIOffline
        from starlette.exceptions import HTTPException as StarletteHTTPException
    except ImportError as error:
        raise RunError(
            f'serving needs the package {error.name}: pip install "cosen[serve]"'
        ) from error

    limits = limits or Limits()
    models = open_models(runs, network, flip=flip, validation_runs=validation_runs)
    costs = "" if misclassification_costs is None else misclassification_costs.tolist()
    defaults = Options(prior, decide, json.dumps(costs) if costs else "")
    service = Service(models, name=name or models.paths[0].resolve().name, options=defaults)
    engine = Engine(models, device=device, max_pixels=limits.max_pixels)
    waiting = 0

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> "AsyncIterator[None]":
        yield
        engine.close()

    app: FastAPI = FastAPIOffline(
        title="cosen",
        version=cosen.__version__,
        description=f"Predictions of {service.name}.",
        lifespan=lifespan,
        redoc_url=None,
    )

    form_limits = {
        "max_part_size": FIELD_BYTES + NUMBER_BYTES * len(models.class_names) ** 2,
        "max_files": max(FILES, limits.max_images + 1),
    }

    class LargeForm(Request):
        """A request whose form may have a cost table of all classes."""

        def form(self, **_: Any) -> Any:
            return super().form(**form_limits)

    class LargeFormRoute(APIRoute):
        def get_route_handler(self) -> "Callable[[Request], Coroutine[Any, Any, Response]]":
            handle = super().get_route_handler()

            async def handle_large(request: Request) -> "Response":
                return await handle(LargeForm(request.scope, request.receive))

            return handle_large

    app.router.route_class = LargeFormRoute

    @app.exception_handler(StarletteHTTPException)
    async def on_http_error(_: Request, error: StarletteHTTPException) -> JSONResponse:
        return JSONResponse({"error": str(error.detail)}, error.status_code, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def on_wrong_request(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"] if part != "body"]
        sentence = f"{'.'.join(where) or 'the request'}: {first['msg']}"
        if where[:1] == ["images"]:
            sentence = "send image files in the form field images: curl -F images=@photo.jpg ..."
        return JSONResponse({"error": sentence}, 422)

    @app.exception_handler(CosenError)
    async def on_wrong_option(_: Request, error: CosenError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, 422)

    @app.exception_handler(Exception)
    async def on_error(_: Request, error: Exception) -> JSONResponse:
        _log.error("a request failed", exc_info=error)
        return JSONResponse({"error": "the server failed: see its log"}, 500)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def show_page() -> HTMLResponse:
        return HTMLResponse(page(), headers={"Content-Security-Policy": policy()})

    @app.get("/health", summary="Whether the server is ready")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/model", summary="The classes, the class shares of training, and the limits")
    async def model() -> dict[str, Any]:
        facts = {"has_maps": engine.has_maps, "limits": asdict(limits)}
        return service.describe() | facts

    @app.post("/predict", summary="Predict images")
    async def predict(
        request: Request,
        images: Annotated[list[UploadFile], File(description="Image files.")],
        prior: Annotated[
            str | None,
            Form(
                description="Class shares: train, balanced, estimate, cat=0.2,dog=0.8, or outputs "
                "for the outputs as they are. Default: as the server was started."
            ),
        ] = None,
        decide: Annotated[
            str | None,
            Form(
                description="probability, recall:NAME=0.95, review:0.1 or sets:0.9, instead of the "
                "server's rule or costs."
            ),
        ] = None,
        costs: Annotated[
            str | None,
            Form(
                description="Misclassification costs as JSON, row = true class, instead of the "
                "server's costs or rule; none for no costs."
            ),
        ] = None,
        top: Annotated[int, Form(description="Number of most probable classes.")] = defaults.top,
        details: Annotated[
            bool, Form(description="Add activation maps and calibrated outputs.")
        ] = defaults.details,
    ) -> JSONResponse:
        nonlocal waiting
        texts = {"prior": prior, "decide": decide, "costs": costs}
        given = {name: text.strip() for name, text in texts.items() if text and text.strip()}
        wanted = service.options_of(given | {"top": top, "details": details})
        known = ("images", *(field.name for field in fields(Options)))
        for name in await request.form():
            if name not in known:
                hint = choices_hint(name, known)
                raise HTTPException(422, f"the form field {name!r} is unknown{hint}")
        if len(images) > limits.max_images:
            raise HTTPException(
                413, f"a request can have {limits.max_images} images, but has {len(images)}"
            )
        await asyncio.to_thread(service.check, wanted)
        if waiting + len(images) > limits.max_waiting:
            raise HTTPException(503, BUSY, headers=RETRY)
        waiting += len(images)
        try:
            found = await asyncio.gather(*(_answer(one, details) for one in images))
        finally:
            waiting -= len(images)
        names = [one.filename or "" for one in images]
        pairs = list(zip(names, found, strict=True))
        whole = [(name, answer) for name, answer in pairs if isinstance(answer, Answer)]
        results = iter(
            await asyncio.to_thread(
                service.results, [name for name, _ in whole], [one for _, one in whole], wanted
            )
        )
        return JSONResponse(
            {
                "images": [
                    next(results)
                    if isinstance(answer, Answer)
                    else {"image": name, "error": answer}
                    for name, answer in pairs
                ]
            }
        )

    async def _answer(upload: UploadFile, with_map: bool) -> Answer | str:
        """Predict an upload; return a sentence if it is broken."""
        future = engine.submit(await upload.read(), with_map=with_map)
        try:
            return await asyncio.wrap_future(future)
        except CosenError as error:
            return str(error)

    app.add_middleware(_Guard, limits=limits, hosts=hosts)
    return app


def serve(app: "FastAPI", *, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Run an application until it is interrupted.

    Args:
        app: The result of :func:`make_app`.
        host: The address to listen on.
        port: The port; 0 for any free one.
        announce: Called with the address of the page.
    """
    import uvicorn

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except (OSError, UnicodeError) as error:
        listener.close()
        raise RunError(
            f"cannot listen on {host} port {port}: {error}; use another --host or --port"
        ) from error
    shown = f"[{host}]" if ":" in host else host
    announce(f"Open http://{shown}:{listener.getsockname()[1]}/ (stop with Ctrl-C)")
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=5, limit_concurrency=MAX_CONNECTIONS
    )
    with listener:
        uvicorn.Server(config).run(sockets=[listener])


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Guard:
    """Refuses requests that are too large, take too long, or come from another web site.

    A request reserves room for its body before it is read, because bodies are stored on disk.
    """

    def __init__(self, app: Any, *, limits: Limits, hosts: Sequence[str] | None) -> None:
        self.app, self.limits = app, limits
        self.hosts = None if hosts is None else [host.lower() for host in hosts]
        self.reserved = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {key: value.decode("latin-1") for key, value in scope["headers"]}
        refusal = self._refusal(headers)
        if refusal is not None:
            await _send_error(send, *refusal)
            return
        taken, has_started = 0, False
        room = int(headers.get(b"content-length", "0"))
        self.reserved += room

        async def counted() -> Message:
            nonlocal taken, room, refusal
            message = await receive()
            taken += len(message.get("body", b""))
            more = max(0, taken - room)  # of a body without a length
            refusal = refusal or self._no_room(taken, more)
            if refusal is not None:
                raise ConnectionAbortedError  # FastAPI would answer with a status of its own
            room, self.reserved = room + more, self.reserved + more
            return message

        async def started(message: Message) -> None:
            nonlocal has_started
            if refusal is None:
                has_started = True
                await send(message)

        try:
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, counted, started)
        except TimeoutError:
            refusal = refusal or (504, f"this took longer than {self.limits.seconds:g} s")
        finally:
            self.reserved -= room
        if refusal is not None and not has_started:
            await _send_error(send, *refusal)

    def _refusal(self, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """Return the status and the sentence for a request that is refused; None if it is not."""
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if self.hosts is not None and _split(f"//{host}").hostname not in self.hosts:
            return 403, f"this server is not called {host!r}"
        if origin is not None and _split(origin).netloc != host:
            return 403, "requests from other web sites are refused"
        length = headers.get(b"content-length", "0")
        size = int(length) if length.isdecimal() else self.limits.max_bytes + 1
        return self._no_room(size, size)

    def _no_room(self, size: int, more: int) -> tuple[int, str] | None:
        """Return the refusal of a body of this size, if it needs this much more room."""
        if size > self.limits.max_bytes:
            return 413, f"a request can have {self.limits.max_bytes / 2**20:.0f} MB"
        return (503, BUSY) if more and self.reserved + more > 4 * self.limits.max_bytes else None


def _split(address: str) -> SplitResult:
    """Return the parts of an address; empty ones if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


async def _send_error(send: Send, status: int, sentence: str) -> None:
    from fastapi.responses import JSONResponse

    headers = {"Connection": "close"} | (RETRY if status == 503 else {})
    response = JSONResponse({"error": sentence}, status, headers=headers)
    start = {"type": "http.response.start", "status": status, "headers": response.raw_headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.body})
