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
from cosen.networks.device import resolve_device
from cosen.serving.engine import Answer, Engine
from cosen.serving.page import page, policy
from cosen.serving.service import Options, Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

LOOPBACK = ("127.0.0.1", "localhost", "::1")

EVERYWHERE = ("0.0.0.0", "::")
"""Addresses that stand for all of this machine."""

MAX_CONNECTIONS = 256

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class Limits:
    """What a server accepts.

    Attributes:
        max_bytes: Of a request.
        max_pixels: Of an image.
        max_images: In a request.
        max_waiting: Images of all requests together; their bytes are limited to those of four
            requests.
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
        prior: Class shares, unless a request gives others; empty to use the outputs as they are.
        decide: The rule, unless a request gives another.
        misclassification_costs: ξ′, row = true class, shape ``(C, C)``, to decide by.
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
    device = resolve_device(device)
    engines: list[Engine] = []
    waiting, waiting_bytes = 0, 0

    def engine() -> Engine:
        """Return the engine; it starts with the first request, also in a mounted application."""
        if not engines:
            engines.append(Engine(models, device=device, max_pixels=limits.max_pixels))
        return engines[0]

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> "AsyncIterator[None]":
        engine()
        yield
        engines.pop().close()

    app: FastAPI = FastAPIOffline(
        title="cosen",
        version=cosen.__version__,
        description=f"Predictions of {service.name}.",
        lifespan=lifespan,
        redoc_url=None,
    )

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
        facts = {"has_maps": engine().has_maps, "limits": asdict(limits)}
        return service.describe() | facts

    @app.post("/predict", summary="Predict images")
    async def predict(
        request: Request,
        images: Annotated[list[UploadFile], File(description="Image files.")],
        prior: Annotated[
            str, Form(description="Class shares: train, balanced, estimate, or cat=0.2,dog=0.8.")
        ] = defaults.prior,
        decide: Annotated[
            str, Form(description="probability, recall:NAME=0.95, review:0.1 or sets:0.9.")
        ] = defaults.decide,
        costs: Annotated[
            str, Form(description="Misclassification costs as JSON, row = true class.")
        ] = defaults.costs,
        top: Annotated[int, Form(description="Number of most probable classes.")] = defaults.top,
        details: Annotated[
            bool, Form(description="Add activation maps and calibrated outputs.")
        ] = defaults.details,
    ) -> JSONResponse:
        nonlocal waiting, waiting_bytes
        wanted = Options(prior.strip(), decide, costs, top, details)
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
        size = sum(one.size or 0 for one in images)
        is_full = waiting + len(images) > limits.max_waiting
        if is_full or (waiting and waiting_bytes + size > 4 * limits.max_bytes):
            raise HTTPException(
                503, "the server is busy: try again later", headers={"Retry-After": "5"}
            )
        waiting, waiting_bytes = waiting + len(images), waiting_bytes + size
        try:
            found = await asyncio.gather(*(_answer(one, details) for one in images))
        finally:
            waiting, waiting_bytes = waiting - len(images), waiting_bytes - size
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
        future = engine().submit(await upload.read(), with_map=with_map)
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
    """Refuses requests that are too large, take too long, or come from another web site."""

    def __init__(self, app: Any, *, limits: Limits, hosts: Sequence[str] | None) -> None:
        self.app, self.limits, self.hosts = app, limits, hosts

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

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self.limits.max_bytes:
                raise ConnectionAbortedError  # FastAPI would answer with a status of its own
            return message

        async def started(message: Message) -> None:
            nonlocal has_started
            if taken <= self.limits.max_bytes:
                has_started = True
                await send(message)

        try:
            async with asyncio.timeout(self.limits.seconds):
                await self.app(scope, counted, started)
        except TimeoutError:
            if not has_started:
                await _send_error(send, 504, f"this took longer than {self.limits.seconds:g} s")
        if taken > self.limits.max_bytes and not has_started:
            await _send_error(send, 413, self._too_large())

    def _refusal(self, headers: dict[bytes, str]) -> tuple[int, str] | None:
        """Return the status and the sentence for a request that is refused; None if it is not."""
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        if self.hosts is not None and _split(f"//{host}").hostname not in self.hosts:
            return 403, f"this server is not called {host!r}"
        if origin is not None and _split(origin).netloc != host:
            return 403, "requests from other web sites are refused"
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.max_bytes:
            return 413, self._too_large()
        return None

    def _too_large(self) -> str:
        return f"a request can have {self.limits.max_bytes / 2**20:.0f} MB"


def _split(address: str) -> SplitResult:
    """Return the parts of an address; empty ones if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


async def _send_error(send: Send, status: int, sentence: str) -> None:
    from fastapi.responses import JSONResponse

    response = JSONResponse({"error": sentence}, status, headers={"Connection": "close"})
    start = {"type": "http.response.start", "status": status, "headers": response.raw_headers}
    await send(start)
    await send({"type": "http.response.body", "body": response.body})
