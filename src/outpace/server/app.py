"""The routes of the server and how their errors are answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, JSONResponse, Response

from outpace import __version__
from outpace.config import check_number
from outpace.errors import InvalidValueError, OutpaceError
from outpace.llm import LLM
from outpace.server import metrics
from outpace.server.admin import add_admin
from outpace.server.admin_key import admin_keys
from outpace.server.answering import EventStream, Reply, answer_whole
from outpace.server.books import Books
from outpace.server.desk import Desk, Job
from outpace.server.documents import BODY_ANSWERS, answers, describe
from outpace.server.errors import ApiError, as_api_error, unreadable_body, validation_error
from outpace.server.fields import SharedFields, StreamOptions
from outpace.server.guard import CALLER, Guard
from outpace.server.inspection import inspect
from outpace.server.keys import ApiKeys, Caller
from outpace.server.metrics import Meter
from outpace.server.order import TYPE_HEADER, Order, OrderReader
from outpace.server.page import Page, dashboard, front_page
from outpace.server.replies import ChatChoice, CompletionChoice
from outpace.server.requests import ChatRequest, CompletionRequest
from outpace.server.settings import ServerSettings
from outpace.server.tokens import TokenTexts

TIMEOUT_HEADER = "X-Outpace-Timeout"


class Service:
    """What the routes work with.

    Args:
        llm: the model; nobody else may use it meanwhile.
        settings: of the server.
        keys: who may ask.
        admin_key: for what changes the server; empty: nobody may.
    """

    def __init__(
        self, llm: LLM, settings: ServerSettings, keys: ApiKeys, admin_key: str = ""
    ) -> None:
        self.llm = llm
        self.settings = settings
        self.keys = keys
        self.admin = admin_keys(admin_key, keys)
        self.meter = Meter(llm.engine)
        self.books = Books(llm)
        self.desk = Desk(llm, settings, self.meter, self.books)
        self.reader = OrderReader(llm, settings)
        self.texts = TokenTexts(llm.tokenizer)
        self.fingerprint = f"outpace-{__version__}-{llm.fingerprint}"
        self.started = int(time.time())

    def caller(self, http: HttpRequest) -> Caller:
        """Who sent a request that passed the guard."""
        return http.scope[CALLER]  # type: ignore[no-any-return]

    def check_model(self, name: str | None) -> None:
        """Refuse another model than the served one."""
        served = self.settings.model_name
        if name is not None and name != served:
            message = f"model: {name!r} is not served here; ask for {served!r}"
            raise ApiError(404, message, "model_not_found", param="model")

    async def take(
        self,
        http: HttpRequest,
        body: SharedFields,
        read: Callable[[Caller], Order],
        samples: int,
    ) -> Job:
        """Find a seat for a request, read it, and begin to work on it."""
        caller = self.caller(http)
        self.check_model(body.model)
        seconds = _seconds(http.headers.get(TIMEOUT_HEADER), self.settings.request_seconds)
        if body.stream_options is not None and not body.stream:
            message = "stream_options: needs stream = true"
            raise ApiError(400, message, "invalid_value", param="stream_options")
        with self.desk.seat(caller, samples):
            order = await asyncio.to_thread(read, caller)
            return self.desk.take(order, caller, samples, seconds)

    async def answer(
        self, http: HttpRequest, body: SharedFields, job: Job, reply: Reply
    ) -> Response:
        """Stream or not, as was asked for."""
        if body.stream:
            return EventStream(job, reply, body.stream_options or StreamOptions())
        return await answer_whole(http, job, reply)


def _seconds(header: str | None, most: float) -> float:
    if header is None:
        return most
    wanted = f"must be a number of seconds, at most {most:g}"
    try:
        seconds = float(header)
    except ValueError:
        raise InvalidValueError(TIMEOUT_HEADER, header, wanted) from None
    check_number(TIMEOUT_HEADER, seconds, wanted, 1e-3, most)
    return seconds


def make_app(service: Service) -> FastAPI:
    """The application around a service; it works while the application's lifespan lasts."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.desk.open()
        yield
        await service.desk.close()

    app = FastAPI(
        title="Outpace",
        version=__version__,
        summary="Answers from a language model, faster, with not a token changed.",
        lifespan=lifespan,
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(
        Guard,
        keys=service.keys,
        max_body_bytes=service.settings.max_body_bytes,
        refused=service.meter.refused,
        admin=service.admin,
    )
    _add_errors(app, service)
    _add_completions(app, service)
    _add_models(app, service)
    _add_operations(app, service)
    _add_speculation(app, service)
    _add_pages(app)
    if service.admin is not None:
        add_admin(app, service.llm.drafters, service.desk)
    describe(app)
    return app


def _add_errors(app: FastAPI, service: Service) -> None:
    def respond(error: ApiError) -> JSONResponse:
        service.meter.refused(error.status)
        return JSONResponse(error.body, error.status, error.headers)

    @app.exception_handler(ApiError)
    async def refused(http: HttpRequest, error: ApiError) -> JSONResponse:
        return respond(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(http: HttpRequest, error: RequestValidationError) -> JSONResponse:
        return respond(validation_error(error.errors()))

    @app.exception_handler(HTTPException)
    async def routed(http: HttpRequest, error: HTTPException) -> JSONResponse:
        if isinstance(error.__cause__, RecursionError | ValueError):  # while the body was read
            return respond(unreadable_body(error.__cause__))
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "bad_request")
        message = f"{http.method} {http.url.path}: {error.detail}"
        answer = respond(ApiError(error.status_code, message, code))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def failed(http: HttpRequest, error: Exception) -> JSONResponse:
        return respond(as_api_error(error))

    @app.exception_handler(OutpaceError)
    async def not_honoured(http: HttpRequest, error: OutpaceError) -> JSONResponse:
        return respond(as_api_error(error))


def _add_completions(app: FastAPI, service: Service) -> None:
    settings = service.settings

    @app.post("/v1/chat/completions", responses=BODY_ANSWERS)
    async def chat_completions(http: HttpRequest, body: ChatRequest) -> Response:
        """Go on with a conversation."""
        label = http.headers.get(TYPE_HEADER)
        job = await service.take(
            http, body, lambda caller: service.reader.chat(body, caller, label), body.n or 1
        )
        reply = Reply(
            "chat.completion",
            "chat.completion.chunk",
            settings.model_name,
            service.fingerprint,
            lambda index: ChatChoice(service.texts, bool(body.logprobs), job.order.tools),
        )
        return await service.answer(http, body, job, reply)

    @app.post("/v1/completions", responses=BODY_ANSWERS)
    async def completions(http: HttpRequest, body: CompletionRequest) -> Response:
        """Go on with one text or several."""
        label = http.headers.get(TYPE_HEADER)
        prompts = body.prompts
        samples = (body.n or 1) * max(1, len(prompts))
        job = await service.take(
            http, body, lambda caller: service.reader.completion(body, caller, label), samples
        )

        def echo(index: int) -> str:
            prompt = prompts[index // (body.n or 1)] if body.echo else ""
            if isinstance(prompt, str):
                return prompt
            return service.llm.tokenizer.decode(prompt, skip_special_tokens=False)

        reply = Reply(
            "text_completion",
            "text_completion",
            settings.model_name,
            service.fingerprint,
            lambda index: CompletionChoice(service.texts, body.logprobs, echo(index)),
        )
        return await service.answer(http, body, job, reply)


def _add_models(app: FastAPI, service: Service) -> None:
    name = service.settings.model_name
    started = service.started

    def model() -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "outpace",
            "max_model_len": service.llm.max_model_len,
        }

    @app.get("/v1/models", responses=answers(401))
    async def models() -> dict[str, Any]:
        """The served model."""
        return {"object": "list", "data": [model()]}

    @app.get("/v1/models/{model_id:path}", responses=answers(401, 404))
    async def one_model(model_id: str) -> dict[str, Any]:
        """One model by its name."""
        service.check_model(model_id)
        return model()


def _add_operations(app: FastAPI, service: Service) -> None:
    desk = service.desk

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses=answers(503))
    async def health() -> JSONResponse:
        """Whether the engine works; it stays so while the server drains."""
        if desk.steps.failure is not None:
            reason = type(desk.steps.failure).__name__
            return JSONResponse({"status": "failed", "reason": reason}, 503)
        return JSONResponse({"status": "draining" if desk.draining else "ok"})

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", responses=answers(503))
    async def ready() -> JSONResponse:
        """Whether new requests are taken in."""
        is_ready = desk.steps.alive and not desk.draining
        status = "ready" if is_ready else "draining" if desk.draining else "failed"
        return JSONResponse({"status": status}, 200 if is_ready else 503)

    @app.get("/version")
    async def version() -> dict[str, str]:
        """Of the server."""
        return {"version": __version__}

    @app.get("/metrics", responses=answers(401))
    async def scrape() -> Response:
        """Figures for Prometheus."""
        return Response(service.meter.scrape(), media_type=metrics.CONTENT_TYPE)

    if service.settings.inspection:

        @app.get("/debug/engine", responses=answers(401))
        async def engine() -> dict[str, Any]:
            """The engine's books, checked between two steps."""
            return await desk.ask(inspect) | {"unfinished": desk.unfinished}


def _add_speculation(app: FastAPI, service: Service) -> None:
    live = service.books.live

    @app.get("/health/speculation", responses=answers(401))
    async def speculation() -> JSONResponse:
        """How speculation does: figures of the last requests, findings and what to do.

        Answers are right whatever it says, so that the status is 200 in any case.
        """
        return JSONResponse(await asyncio.to_thread(live.health))

    @app.get("/dashboard/data", include_in_schema=False)
    async def data() -> JSONResponse:
        return JSONResponse(await asyncio.to_thread(live.data))


def _add_pages(app: FastAPI) -> None:
    def sent(page: Page) -> HTMLResponse:
        return HTMLResponse(page.html, headers={"Content-Security-Policy": page.policy})

    @app.get("/", include_in_schema=False)
    async def index() -> HTMLResponse:
        return sent(front_page())

    @app.get("/dashboard", include_in_schema=False)
    async def overview() -> HTMLResponse:
        return sent(dashboard())
