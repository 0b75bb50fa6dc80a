"""The contract around any WSGI app: `ContractMiddleware(app, provider)`.

A middleware knows little of the app, and stands before its login. If there is a module for your framework, use that too. There is no
change feed under WSGI: it would hold a thread for each listener.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from functools import partial
from types import TracebackType
from typing import Any

from shelflife.contract import BadMessage
from shelflife.integrations.own_pages import endpoints_before, way_to_page
from shelflife.integrations.stamping import (
    CONTRACT_KEY,
    Headers,
    Stamping,
    headers_of_answer,
    is_pinned_around,
    warn_of_what_went_unheard,
)
from shelflife.server.admin import AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints, EndpointCall, Endpoints
from shelflife.server.feedback import Answer, error_answer, title_of
from shelflife.server.operations import Operation, Operations
from shelflife.server.pinning import Incoming, answer_to
from shelflife.server.pins import Pin
from shelflife.server.provider import Provider

__all__ = ["ContractMiddleware", "contract_app"]

Environ = dict[str, Any]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType]
Write = Callable[[bytes], object]
StartResponse = Callable[..., Write]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

FindOperation = Callable[[str, str], Operation | None]
"""Finds the operation that a request is for, by its method and its path below the contract's root, once its handler runs; None when it
cannot be told."""


class EndpointsFirst:
    """Answers calls of some endpoints, and hands everything else on."""

    def __init__(
        self, app: App, endpoints: Endpoints, is_answered: Callable[[str], bool] | None = None
    ) -> None:
        self.app = app
        self._endpoints = endpoints
        self._is_answered = is_answered or endpoints.by_path.__contains__
        self._page, self._way = way_to_page(endpoints)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if self._is_answered(path := _path_of(environ)):
            return serve_call(self._endpoints, path, environ, start_response)
        if path == self._page:
            return _led(self._way, self.app, environ, start_response)
        return self.app(environ, start_response)


def _led(way: str, app: App, environ: Environ, start_response: StartResponse) -> Iterator[bytes]:
    """What an app answers, unless it has nothing there: then the way to the operator's page."""
    is_led = False

    def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Write:
        nonlocal is_led
        is_led = status.startswith("404")
        if is_led:
            status, headers = _status_line(307), [("Location", way), ("Content-Length", "0")]
        write = start_response(status, headers, *exc_info)
        return (lambda data: None) if is_led else write

    body = app(environ, start)
    try:
        for part in body:
            yield b"" if is_led else part
    finally:
        if hasattr(body, "close"):
            body.close()


class ContractMiddleware(EndpointsFirst):
    """Gives the contract to any WSGI app: the operator's endpoints, the answers to `provider.check`, the stamps.

    The endpoints for clients are not among them, for a middleware stands before the app's own login: mount
    `contract_app` where that holds. `operations` are those of the app, as `POST /orders/{id}`: policies are held to
    them, and their successful responses are stamped. Without them, only responses to requests that were checked are.
    A refusal that the app does not handle has to come out of it, or into `start_response` as `exc_info`.
    """

    def __init__(self, app: App, provider: Provider, *, operations: Collection[str] | None = None) -> None:
        find = provider.apps.attach_unseen(operations)
        endpoints = AdminEndpoints(provider)
        contract = UnderContract(app, provider, find)
        super().__init__(contract, endpoints, endpoints_before(endpoints, app))


def contract_app(provider: Provider, *, fixes: Collection[str] = ()) -> App:
    """The endpoints for clients as a WSGI app, to be mounted at `/contract` where the app's own login holds.

    `fixes` are the operations whose fixes may be told to whoever may ask here, without making the request.
    """
    operations = Operations.named(fixes)
    endpoints = ContractEndpoints(provider, provider.apps.disclosed_fixes(lambda: operations, fixes))

    def answer(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        path = _path_of(environ)
        if not path.startswith("/contract/"):  # it is mounted there, below the root of the contract
            root_path = environ.get("SCRIPT_NAME", "").removesuffix("/contract")
            environ, path = {**environ, "SCRIPT_NAME": root_path}, f"/contract{path}"
        return serve_call(endpoints, path, environ, start_response)

    return answer


class UnderContract:
    """An app whose requests see one state each, whose refusals are answered and whose responses are
    stamped."""

    def __init__(self, app: App, provider: Provider, find_operation: FindOperation) -> None:
        self.app = app
        self.provider = provider
        self._find_operation = find_operation

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if CONTRACT_KEY in environ and is_pinned_around(self, environ):
            return self.app(environ, start_response)
        environ[CONTRACT_KEY] = self
        try:
            pin = self._pin(environ)
        except BadMessage as error:  # a precondition that cannot be understood cannot be honoured
            answer = error_answer(self.provider.wire, environ.get("HTTP_ACCEPT", ""), 400, str(error))
            return _answered(answer, environ, start_response)
        pin.headers = partial(_headers_of, environ)
        if "wsgi.input" in environ:
            environ["wsgi.input"] = _Heard(environ["wsgi.input"], pin)
        return _Response(self.provider, pin, environ, start_response).of(self.app)

    def _pin(self, environ: Environ) -> Pin:
        """What the request sees; `BadMessage` when its precondition cannot be understood."""
        method, path = environ["REQUEST_METHOD"], _path_of(environ)
        incoming, pin = Incoming(self.provider, method, _headers_of(environ)), Pin()
        pin.find = lambda: self._find_operation(method, path)
        incoming.pin_blocking(pin, environ.get("SCRIPT_NAME", ""))
        return pin


class _Response:
    """A response as the server gets it. The start of one whose body may be added to waits for that body."""

    def __init__(self, provider: Provider, pin: Pin, environ: Environ, start_response: StartResponse) -> None:
        self._provider, self._pin, self._environ = provider, pin, environ
        self._start_response = start_response
        self._stamping = Stamping(pin, environ["REQUEST_METHOD"])
        self._waiting: tuple[str, Headers, ExcInfo | None] | None = None
        self._write: Write | None = None
        """The server's, once it has been told how the response starts."""
        self._has_body = False
        self._app_body: Iterable[bytes] = ()
        self._own_body: list[bytes] | None = None
        """Of what is answered for the app."""
        self._parts: Iterator[bytes] = iter(())
        self._is_one = False

    def of(self, app: App) -> Iterable[bytes]:
        """What an app answers, as an iterable for the server."""
        try:
            with _pinned(self._provider, self._pin):
                self._app_body = app(self._environ, self._start)
        except BaseException as error:  # noqa: BLE001 - what is no refusal is raised again
            failure = self._failure_in(error)
            if failure is None:  # nobody closes a response that was never there
                self._pin.is_over = True
                self._pin.let_go()
            self._answer_for_the_app(error, failure)
        body = self._app_body if self._own_body is None else self._own_body
        if self._is_settled(self._app_body) and self._waiting is None:
            self._end()
            return body
        self._parts = iter(body)
        self._is_one = isinstance(body, Sized) and len(body) == 1
        return self

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        was_answered, part = self._own_body is not None, None
        try:
            with _pinned(self._provider, self._pin):
                part = next(self._parts, None)
                while part == b"" and self._waiting is not None:
                    part = next(self._parts, None)
        except Exception as error:  # noqa: BLE001 - what is no refusal is raised again
            self._answer_for_the_app(error, self._failure_in(error))
        if self._own_body is not None and not was_answered:
            self._parts = iter(self._own_body)  # what the app has to say instead does not leave it
            return next(self._parts)
        if part is None:
            self._begin(b"", is_all=False)
            raise StopIteration
        return self._begin(part, is_all=self._is_one)

    def close(self) -> None:
        """Let go of what the app holds for the response, whether it was read to its end or not."""
        try:
            with _pinned(self._provider, self._pin):
                if hasattr(self._app_body, "close"):
                    self._app_body.close()
        finally:
            self._end()

    def _is_settled(self, body: Iterable[bytes]) -> bool:
        """Whether nothing of the app runs any more for a body, or the server may know how to send it best."""
        wrapper = self._environ.get("wsgi.file_wrapper")
        return isinstance(body, list | tuple) or (isinstance(wrapper, type) and isinstance(body, wrapper))

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: ExcInfo | None = None) -> Write:
        """What the app is given as `start_response`."""
        self._stamping.status = int(status[:3])
        if exc_info is not None and self._stamping.status == 500 and self._own_body is None:
            failure = self._failure_in(exc_info[1])
            if failure is not None:
                self._answer_for_the_app(exc_info[1], failure)
        if self._own_body is not None:
            return lambda data: None  # what else the app has to say does not leave it
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        told, waits = self._stamping.begun(raw)
        if not waits:
            self._waiting = None
            self._go(status, told, exc_info)
        elif exc_info is None and (self._waiting is not None or self._write is not None):
            raise AssertionError("start_response was called twice, and without exc_info")
        else:
            self._waiting = status, list(told), exc_info
        return self._written

    def _written(self, data: bytes) -> None:
        """What the app is given to write with, where it does so in place of returning a body."""
        part = self._begin(data, is_all=False)
        if self._write is not None:
            self._write(part)

    def _begin(self, part: bytes, *, is_all: bool) -> bytes:
        """A part of the body as it goes out. A start that has waited for it goes out first."""
        if self._waiting is not None:
            (status, headers, exc_info), self._waiting = self._waiting, None
            part = self._stamping.first_part(headers, part, is_all=is_all)
            if is_all and self._stamping.length_at < 0:  # a server cannot tell it from this iterable
                headers.append((b"Content-Length", b"%d" % len(part)))
            self._go(status, headers, exc_info)
        self._has_body = self._has_body or bool(part)
        return part

    def _go(self, status: str, headers: Iterable[tuple[bytes, bytes]], exc_info: ExcInfo | None) -> None:
        """Tell the server how the response starts. With `exc_info` it refuses that when it is too late."""
        again = () if exc_info is None else (exc_info,)
        self._write = self._start_response(status, _decoded(headers), *again)

    def _failure_in(self, error: BaseException) -> Exception | None:
        """A refusal that has come out of the app, unless it comes too late."""
        return None if self._has_body else self._pin.failure_in(error)

    def _answer_for_the_app(self, error: BaseException, failure: Exception | None) -> None:
        """Answer a refusal that the app does not handle. Anything else that comes out of it is raised."""
        if failure is None:
            raise error
        answer = answer_to(failure, self._provider, self._pin, self._environ.get("HTTP_ACCEPT", ""))
        self._pin.is_own_answer, self._waiting = True, None
        self._own_body, self._stamping.status = _body_of(answer, self._environ), answer.status
        told, _ = self._stamping.begun(headers_of_answer(answer))
        was_begun = self._write is not None
        self._go(
            _status_line(answer.status),
            told,
            (type(error), error, error.__traceback__) if was_begun and error.__traceback__ else None,
        )

    def _end(self) -> None:
        if not self._pin.is_over:
            self._pin.is_over = True  # a thread that outlives the request has no request any more
            status = self._stamping.status
            was_refusal = bool(self._pin.failures) and status == 500 and not self._pin.is_own_answer
            warn_of_what_went_unheard(self._provider, self._pin, status, was_refusal=was_refusal)
            self._pin.let_go()


class _pinned:  # noqa: N801 - it is used as a function
    """While an app runs, its request is the one at hand. Another may be, between two parts of its response."""

    __slots__ = ("_pin", "_pinned", "_token")

    def __init__(self, provider: Provider, pin: Pin) -> None:
        self._pinned, self._pin = provider.pinned, pin

    def __enter__(self) -> None:
        self._token = self._pinned.set(self._pin)

    def __exit__(self, *exception: object) -> None:
        self._pinned.reset(self._token)


class _Heard:
    """The body of a request. Whatever the app reads of it is kept for its check, so there is no way to read but these."""

    def __init__(self, body: Any, pin: Pin) -> None:
        self._body, self._pin = body, pin

    def __iter__(self) -> Iterator[bytes]:
        return map(self._heard, self._body)

    def read(self, *size: int) -> bytes:
        return self._heard(self._body.read(*size))

    def readline(self, *size: int) -> bytes:
        return self._heard(self._body.readline(*size))

    def readlines(self, *hint: int) -> list[bytes]:
        return [self._heard(line) for line in self._body.readlines(*hint)]

    def _heard(self, part: bytes) -> bytes:
        self._pin.hear(part)
        return part


def serve_call(
    endpoints: Endpoints, path: str, environ: Environ, start_response: StartResponse
) -> Iterable[bytes]:
    """Answer a call of one of the contract's own endpoints where no view of a framework does."""
    return _answered(answer_call(endpoints, path, environ), environ, start_response)


def answer_call(endpoints: Endpoints, path: str, environ: Environ) -> Answer:
    """The answer to a call of one of the contract's own endpoints."""
    call = EndpointCall(
        environ["REQUEST_METHOD"],
        path,
        environ.get("QUERY_STRING", ""),
        _headers_of(environ),
        root_path=environ.get("SCRIPT_NAME", ""),
        holds_thread=True,
    )

    def read(most: int) -> bytes:
        length = environ.get("CONTENT_LENGTH") or (most if environ.get("wsgi.input_terminated") else 0)
        body: bytes = environ["wsgi.input"].read(min(most, int(length)))
        return body

    return endpoints.respond(call, read)


def _headers_of(environ: Environ) -> dict[str, str]:
    """The headers of a request, by lower-case name."""
    named = {
        name[5:].lower().replace("_", "-"): value
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    for name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
        if environ.get(name):
            named[name.lower().replace("_", "-")] = environ[name]
    return named


def _path_of(environ: Environ) -> str:
    """The path of a request below where its app is mounted."""
    path: str = environ.get("PATH_INFO", "")
    return path.encode("latin-1").decode(errors="replace") or "/"


def _answered(answer: Answer, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response(_status_line(answer.status), _decoded(headers_of_answer(answer)))
    return _body_of(answer, environ)


def _body_of(answer: Answer, environ: Environ) -> list[bytes]:
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]


def _status_line(status: int) -> str:
    return f"{status} {title_of(status)}"


def _decoded(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
