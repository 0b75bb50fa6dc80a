"""The contract's own endpoints for clients, free of any framework: a request in, an answer out. Those of the operator are in `admin`."""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

import msgspec

from shelflife.contract import AskFixes, BadMessage, ContractError
from shelflife.contract.names import shown
from shelflife.contract.positions import AT_HEADER, Account, Named
from shelflife.contract.values import MOST_DIGITS, fault_in, members_once
from shelflife.server.errors import (
    BadRow,
    BadRule,
    LogError,
    ReloadRefused,
    ServerError,
    SourceError,
    TableMoved,
    UnknownTable,
    VersionTaken,
)
from shelflife.server.faces import Face
from shelflife.server.feedback import JSON, Answer, error_answer, refusal_answer
from shelflife.server.operations import Operation
from shelflife.server.pins import Listening
from shelflife.server.policies import Rejected, fault_of_request
from shelflife.server.provider import Provider
from shelflife.server.signing import signed
from shelflife.server.state import State
from shelflife.server.wire import Level

__all__ = [
    "NO_STORE",
    "READ",
    "CallRefused",
    "ContractEndpoints",
    "Endpoint",
    "EndpointCall",
    "Endpoints",
    "query_of",
    "read_message",
    "too_many_listeners",
    "wants_events",
]

STATE_PATH = "/contract/state"
CHANGES_PATH = "/contract/changes"
FIXES_PATH = "/contract/fixes"
SIGNED_PATH = "/contract/signed"

READ = ("GET", "HEAD")
NO_STORE = ("Cache-Control", "no-store")
_MOST_QUERIED = 1000
_LARGEST_QUESTION = 64 * 1024
_LONGEST_ACCOUNT = 1024 * 1024
"""Clients do not read answers without end."""

_ESCAPED_COLON = re.compile(rb"\\u003[aA]")
_CONSTANT = re.compile(rb"NaN|Infinity")
"""What Python reads, and is not JSON."""

_NO_FEED = (
    "this server has no change feed, which would hold a thread for each listener; ask with from=position"
)
_OUT_OF_REACH = "the log cannot be reached; try again later"
_STATUSES = {
    BadMessage: 400,
    UnknownTable: 404,
    TableMoved: 409,
    VersionTaken: 409,
    SourceError: 502,
    LogError: 503,
}
_encode = msgspec.json.Encoder().encode
_Sent = TypeVar("_Sent", bound=msgspec.Struct)


class EndpointCall(NamedTuple):
    """A request to one of the endpoints."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes = b""
    root_path: str = ""
    """Where the contract lives on its server."""
    holds_thread: bool = False
    """Whether the server holds a thread until it is answered."""


class CallRefused(ServerError):
    """The answer is an error. Headers have underscores for dashes."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status = status
        self.headers = tuple((name.replace("_", "-"), value) for name, value in headers.items())


class Endpoint(NamedTuple):
    """One endpoint."""

    methods: tuple[str, ...]
    handler: Callable[[EndpointCall], Answer]


class Endpoints:
    """Answers calls to some endpoints of one provider."""

    def __init__(self, provider: Provider, most_bytes: int, hint: str = "") -> None:
        self.provider = provider
        self.most_bytes = most_bytes
        """How long a body may be."""
        self._hint = hint
        self.by_path: dict[str, Endpoint] = {}
        """The endpoints that are on."""

    def admit(self, call: EndpointCall) -> Answer | None:
        """The refusal of a call, before its body is read; None when it may go on."""
        try:
            self._authorize(call)
            if call.path not in self.by_path:
                raise CallRefused(404, "there is no such endpoint")
            methods = self.by_path[call.path].methods
            if call.method not in methods:
                sentence = f"{call.path} takes {' and '.join(methods)}"
                raise CallRefused(405, sentence, Allow=", ".join(methods))
        except CallRefused as refusal:
            return self._refused(call, refusal)
        return None

    def answer(self, call: EndpointCall) -> Answer:
        """Carry out an admitted call."""
        try:
            if len(call.body) > self.most_bytes:
                raise CallRefused(413, f"the body is larger than {self.most_bytes} bytes{self._hint}")
            answer = self.by_path[call.path].handler(call)
        except (CallRefused, ContractError, BadRow, BadRule, ReloadRefused, SourceError, LogError) as error:
            answer = self._refused(call, error)
        return self._sent(call, answer)

    def respond(self, call: EndpointCall, read: Callable[[int], bytes]) -> Answer:
        """The answer to a call, for whoever may wait. `read` gives so many bytes of the body at most."""
        answer = self.begin(call)
        if answer is None:
            body = read(self.most_bytes + 1) if call.method == "POST" else b""
            answer = self.answer(call._replace(body=body))
        return answer

    def begin(self, call: EndpointCall) -> Answer | None:
        """The answer to a call, as far as it can be given before the body is read; None when it may go on.

        One for the feed is never sent: the pin notes that the feed begins when the app is done.
        """
        pin = self.provider.pin
        if pin is not None:
            pin.is_own_answer, pin.is_plain = True, False
            if self.is_for_the_feed(call):
                pin.listening = self.listen_for(call)
                return Answer(200, JSON, b"")
        refused = self.admit(call)
        return None if refused is None else self._sent(call, refused)

    def listen_for(self, call: EndpointCall) -> Listening:
        """What tells whoever has made a call for the feed of changes, until they leave."""
        return partial(self.provider.feed.stream, call.headers, call.query)

    def is_for_the_feed(self, call: EndpointCall) -> bool:
        """Whether a call asks for the change feed, and there is room for another listener."""
        is_asked_for = call.path == CHANGES_PATH and call.path in self.by_path and wants_events(call)
        return is_asked_for and not call.holds_thread and not self.provider.feed.is_full

    def _sent(self, call: EndpointCall, answer: Answer) -> Answer:
        """An answer that is sent. Where there is no endpoint, the path is whatever somebody has thought of."""
        if call.path in self.by_path:
            self.provider.counts.count("endpoint_calls", call.path, f"{answer.status // 100}xx")
        return answer

    def _authorize(self, call: EndpointCall) -> None:
        """Refuse a call that may not be made."""

    def _refused(self, call: EndpointCall, error: Exception) -> Answer:
        if not isinstance(error, CallRefused):
            status = next((status for kind, status in _STATUSES.items() if isinstance(error, kind)), 422)
            error = CallRefused(status, str(error))
        accept = call.headers.get("accept", "")
        return error_answer(self.provider.wire, accept, error.status, str(error), error.headers)


class ContractEndpoints(Endpoints):
    """What clients may ask. These are routes of the app, so the app decides who may ask."""

    def __init__(self, provider: Provider, disclosed: Callable[[str], Operation | None]) -> None:
        """`disclosed` turns what a client asks for into an operation whose fixes may be told; else None."""
        super().__init__(provider, _LARGEST_QUESTION)
        self._disclosed = disclosed
        if provider.level > Level.PLAIN_TEXT:
            self.by_path[STATE_PATH] = Endpoint(READ, self._state)
            self.by_path[CHANGES_PATH] = Endpoint(READ, self._changes)
            self.by_path[FIXES_PATH] = Endpoint(("POST",), self._fixes)
        if provider.signing is not None:
            self.by_path[SIGNED_PATH] = Endpoint(READ, self._signed)

    def _state(self, call: EndpointCall) -> Answer:
        _, face = self._as_known(call)
        headers = _with_vary(face, ("ETag", f'"{face.tag}"'), ("Cache-Control", "no-cache"))
        if _names_tag(call.headers.get("if-none-match", ""), face.tag):
            return Answer(304, "", b"", headers)
        return Answer(200, JSON, b"{" + face.stamp.members + b"}", headers)

    def _changes(self, call: EndpointCall) -> Answer:
        if wants_events(call) and call.holds_thread:
            raise CallRefused(406, _NO_FEED)
        if wants_events(call):
            raise too_many_listeners()
        asked = query_of(call, "since", "rules", "from", "nonce", "state")
        if "from" in asked:
            face, _, told = self._account(call, asked)
            if "state" in asked:
                told = told[:-1] + b',"state":"%s"}' % face.tag.encode()
            return Answer(200, JSON, told, _with_vary(face, NO_STORE))
        versions: dict[str, str] = {}
        for value in asked.get("since", ()):
            table, _, version = value.partition(":")
            if not table or not version:
                raise CallRefused(400, "ask with since=table:version, once for each table")
            versions[table] = version
        if not versions and "rules" not in asked:
            raise CallRefused(400, "ask with from=position, since=table:version or rules=fingerprint")
        _, face = self._as_known(call)
        changes = face.changes_since(versions, asked["rules"][-1] if "rules" in asked else None)
        return Answer(200, JSON, _encode(changes), _with_vary(face, NO_STORE))

    def _signed(self, call: EndpointCall) -> Answer:
        face, account, _ = self._account(call, query_of(call, "from", "nonce"))
        signing = self.provider.signing
        assert signing is not None  # noqa: S101 - there is no such endpoint without
        answer = signed(account, face, self.provider.root_of(call.root_path), signing)
        return Answer(200, JSON, _encode(answer), (NO_STORE,))

    def _account(self, call: EndpointCall, asked: Mapping[str, list[str]]) -> tuple[Face, Account, bytes]:
        """What is told to a client that asks what has moved from a position. Where that is too long, the position is too far back."""
        position, nonce = asked.get("from", [""])[-1], asked.get("nonce", [""])[-1]
        named = Named.from_header(f"{position};n={nonce}" if nonce else position)
        if named is None:
            raise CallRefused(400, "ask with from=position, and with a nonce of letters and digits")
        _, face = self._at_the_end(call)
        return face, *face.account_within(_LONGEST_ACCOUNT, named, otherwise="old")

    def _fixes(self, call: EndpointCall) -> Answer:
        asked = read_message(call.body, AskFixes)
        provider, stamp, operation = self.provider, None, self._disclosed(asked.operation)
        if operation is None or (reader := provider.readers.of(operation)) is None:
            raise CallRefused(404, "fixes of this operation are told only to clients that make the request")
        named = Named.from_header(call.headers.get(AT_HEADER.lower(), ""))
        if named is None:
            state, face = self._as_known(call)
        else:
            state, face = self._at_the_end(call)
            stamp = face.stamp_at(named, with_versions=provider.wire.tells_versions)
        rejected = Rejected(provider.fixes_for(asked.request, operation.name, state, reader), state)
        return refusal_answer(provider.wire, JSON, rejected, face, stamp, status=200)

    def _as_known(self, call: EndpointCall) -> tuple[State, Face]:
        """The state that this process is at, while it can vouch for that, and what it shows to a client."""
        provider = self.provider
        if provider.registry.is_out_of_date:
            provider.counts.count("withheld_answers", "log")
            raise CallRefused(503, _OUT_OF_REACH, Retry_After="5")
        return provider.state, provider.face(provider.state, call.headers)

    def _at_the_end(self, call: EndpointCall) -> tuple[State, Face]:
        """The state at the end of the log as it is now, and what it shows to a client.

        Why the log cannot be read is for the operator alone: the reason names files, and may name tables.
        """
        provider = self.provider
        try:
            provider.registry.catch_up()
        except LogError as error:
            provider.apps.warn_once(f"a client could not be answered from the end of the log: {error}")
            provider.counts.count("withheld_answers", "log")
            raise CallRefused(503, _OUT_OF_REACH, Retry_After="5") from None
        state = provider.registry.state
        if not provider.speaks_for(state):
            provider.counts.count("withheld_answers", "policies")
            raise CallRefused(503, "this process runs other policies than the log has", Retry_After="5")
        return state, provider.face(state, call.headers)


def read_message(body: bytes, message_type: type[_Sent]) -> _Sent:
    """A message from outside, strictly: no duplicate member anywhere, nothing unknown, nothing that is not JSON.

    Rows are left to their table, which knows what to call them.
    """
    try:
        message = msgspec.convert(_quickly_read(body) or _tree_in(body), message_type)
    except UnicodeDecodeError:
        raise BadMessage("the body is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadMessage(f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise BadMessage("the body is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ContractError(f"the body does not fit: {error}") from None
    except UnicodeEncodeError:
        raise ContractError("the body does not fit: a member has a name that is not valid Unicode") from None
    if isinstance(message, AskFixes) and (why := fault_of_request(message.request)) is not None:
        raise ContractError(why)
    return message


def _quickly_read(body: bytes) -> Any:
    """What a body holds, where that is clear at once. A colon that got lost belonged to a member that is there twice."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        tree = msgspec.json.decode(body)
        if not _ESCAPED_COLON.search(body) and body.count(b":") == _encode(tree).count(b":"):
            return tree
    return None


def _tree_in(body: bytes) -> Any:
    """What a body holds, or what is wrong with it."""
    tree = json.loads(body.decode(), object_pairs_hook=members_once, parse_int=_whole_number)
    if _CONSTANT.search(body) and (fault := fault_in(tree, len(body))) is not None:
        raise BadMessage(f"the body is not valid JSON: {shown('/'.join(fault.path))} {fault.what}")
    return tree


def _whole_number(digits: str) -> int:
    """The number. One that is too long to be read becomes any number that is too long."""
    return int(digits) if len(digits) <= MOST_DIGITS else 10**MOST_DIGITS


def query_of(call: EndpointCall, *names: str) -> dict[str, list[str]]:
    """The parameters of a call, by name. One that is not among the names is refused."""
    try:
        asked = parse_qs(call.query, keep_blank_values=True, max_num_fields=_MOST_QUERIED)
    except ValueError:
        raise CallRefused(400, f"the query has more than {_MOST_QUERIED} parameters") from None
    if unknown := [name for name in asked if name not in names]:
        raise CallRefused(400, f"there is no parameter {shown(unknown[0])}; there are {' and '.join(names)}")
    return asked


def _with_vary(face: Face, *headers: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (*headers, ("Vary", face.vary)) if face.vary else headers


def wants_events(call: EndpointCall) -> bool:
    """Whether a call asks to be told of changes as they come."""
    return call.method == "GET" and "text/event-stream" in call.headers.get("accept", "")


def too_many_listeners() -> CallRefused:
    """The feed has no room for another."""
    return CallRefused(503, "there are too many listeners; try again later", Retry_After="30")


def _names_tag(if_none_match: str, tag: str) -> bool:
    candidates = (candidate.strip().removeprefix("W/") for candidate in if_none_match.split(","))
    return any(candidate in ("*", f'"{tag}"') for candidate in candidates)
