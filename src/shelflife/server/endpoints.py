"""The contract's own endpoints, free of any framework: a request in, an answer out."""

import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl

import msgspec

from shelflife.contract import AskFixes, BadMessage, ContractError
from shelflife.contract.messages import ReloadRules, ReloadTable
from shelflife.contract.names import shown
from shelflife.contract.positions import AT_HEADER, Account, Named
from shelflife.contract.values import MOST_DIGITS, fault_in
from shelflife.server.errors import (
    BadRow,
    BadRule,
    LogError,
    ReloadRefused,
    ServerError,
    UnknownTable,
    VersionTaken,
)
from shelflife.server.faces import Face
from shelflife.server.feedback import JSON, Answer, error_answer, form_asked_for, refusal_answer
from shelflife.server.graph import graph_of
from shelflife.server.policies import Rejected, fault_of_request
from shelflife.server.provider import Provider
from shelflife.server.signing import signed
from shelflife.server.wire import Level

__all__ = ["AdminEndpoints", "ContractEndpoints", "EndpointCall", "Endpoints", "read_message"]

STATE_PATH = "/contract/state"
CHANGES_PATH = "/contract/changes"
FIXES_PATH = "/contract/fixes"
SIGNED_PATH = "/contract/signed"
RELOAD_TABLE_PATH = "/admin/reload-table"
RELOAD_RULES_PATH = "/admin/reload-rules"
GRAPH_PATH = "/admin/graph"

_READ = ("GET", "HEAD")
_NO_STORE = ("Cache-Control", "no-store")
_MOST_QUERIED = 1000
_LARGEST_QUESTION = 64 * 1024
_LONGEST_ACCOUNT = 1024 * 1024
"""Clients do not read answers without end."""

_ESCAPED_COLON = re.compile(rb"\\u003[aA]")
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


class _CallRefused(ServerError):
    """The answer is an error."""

    def __init__(self, status: int, error: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(error)
        self.status = status
        self.headers = headers


class Endpoint(NamedTuple):
    """One endpoint."""

    methods: tuple[str, ...]
    handler: Callable[[EndpointCall], Answer]


class Endpoints:
    """Answers calls to some endpoints of one provider."""

    def __init__(self, provider: Provider, most_bytes: int, hint: str = "") -> None:
        self.provider = provider
        self._too_large = f"the body is larger than {most_bytes} bytes{hint}"
        self.most_bytes = most_bytes
        """How long a body may be."""
        self.by_path: dict[str, Endpoint] = {}
        """The endpoints that are on."""

    def admit(self, call: EndpointCall) -> Answer | None:
        """The refusal of a call, before its body is read; None when it may go on."""
        try:
            self._authorize(call)
            if call.path not in self.by_path:
                raise _CallRefused(404, "there is no such endpoint")
            methods = self.by_path[call.path].methods
            if call.method not in methods:
                raise _CallRefused(
                    405, f"{call.path} takes {' and '.join(methods)}", (("Allow", ", ".join(methods)),)
                )
            length = call.headers.get("content-length", "")
            if re.fullmatch("[0-9]{1,18}", length) and int(length) > self.most_bytes:
                raise _CallRefused(413, self._too_large)
        except _CallRefused as refusal:
            return self._refused(call, refusal)
        return None

    def answer(self, call: EndpointCall) -> Answer:
        """Carry out an admitted call."""
        try:
            if len(call.body) > self.most_bytes:
                raise _CallRefused(413, self._too_large)
            return self.by_path[call.path].handler(call)
        except _CallRefused as refusal:
            return self._refused(call, refusal)
        except (ContractError, BadRow, BadRule, ReloadRefused, LogError) as error:
            return self._refused(call, _CallRefused(_status_of(error), str(error)))

    def is_for_the_feed(self, call: EndpointCall) -> bool:
        """Whether a call asks for the change feed, and there is room for another listener."""
        return call.path in self.by_path and _wants_events(call) and not self.provider.feed.is_full

    def _authorize(self, call: EndpointCall) -> None:
        """Refuse a call that may not be made."""

    def _refused(self, call: EndpointCall, refusal: _CallRefused) -> Answer:
        wire = self.provider.wire
        form = form_asked_for(call.headers.get("accept", ""), wire.errors)
        return error_answer(wire, refusal.status, str(refusal), form, refusal.headers)


class ContractEndpoints(Endpoints):
    """What clients may ask. These are routes of the app, so the app decides who may ask."""

    def __init__(self, provider: Provider, disclosed: Callable[[str], str | None]) -> None:
        """`disclosed` turns what a client asks for into an operation whose fixes may be told; else None."""
        super().__init__(provider, _LARGEST_QUESTION)
        self._disclosed = disclosed
        if provider.level > Level.PLAIN_TEXT:
            self.by_path[STATE_PATH] = Endpoint(_READ, self._state)
            self.by_path[CHANGES_PATH] = Endpoint(_READ, self._changes)
            self.by_path[FIXES_PATH] = Endpoint(("POST",), self._fixes)
        if provider.signing is not None:
            self.by_path[SIGNED_PATH] = Endpoint(_READ, self._signed)

    def _state(self, call: EndpointCall) -> Answer:
        face = self.provider.face(self.provider.state, call.headers)
        headers = _with_vary(face, ("ETag", f'"{face.tag}"'), ("Cache-Control", "no-cache"))
        if _names_tag(call.headers.get("if-none-match", ""), face.tag):
            return Answer(304, "", b"", headers)
        return Answer(200, JSON, b"{" + face.stamp.members + b"}", headers)

    def _changes(self, call: EndpointCall) -> Answer:
        if _wants_events(call):
            raise _CallRefused(503, "there are too many listeners; try again later", (("Retry-After", "30"),))
        asked = _query_of(call, "since", "rules", "from", "nonce")
        if "from" in asked:
            face, named = self._asked_from(call, asked)
            return Answer(200, JSON, _encode(_account(face, named)), _with_vary(face, _NO_STORE))
        versions: dict[str, str] = {}
        for value in asked.get("since", ()):
            table, colon, version = value.partition(":")
            if not colon or not table or not version:
                raise _CallRefused(400, "ask with since=table:version, once for each table")
            versions[table] = version
        rules_version = asked["rules"][-1] if "rules" in asked else None
        if not versions and rules_version is None:
            raise _CallRefused(400, "ask with from=position, since=table:version or rules=fingerprint")
        face = self.provider.face(self.provider.state, call.headers)
        changes = face.changes_since(versions, rules_version)
        return Answer(200, JSON, _encode(changes), _with_vary(face, _NO_STORE))

    def _asked_from(self, call: EndpointCall, asked: Mapping[str, list[str]]) -> tuple[Face, Named]:
        """What is shown to a client that asks what has moved from a position. It is answered from the end of the log as it is now."""
        nonce = asked.get("nonce", [""])[-1]
        named = Named.from_header(asked["from"][-1] + (f";n={nonce}" if nonce else ""))
        if named is None:
            raise _CallRefused(400, "ask with from=position, and with a nonce of letters and digits")
        return self._face_at_the_end(call), named

    def _face_at_the_end(self, call: EndpointCall) -> Face:
        """What the state at the end of the log shows to a client.

        Why the log cannot be read is for the operator alone: the reason names files, and may name tables.
        """
        try:
            self.provider.registry.catch_up()
        except LogError as error:
            self.provider.apps.warn_once(f"a client could not be answered from the end of the log: {error}")
            raise _CallRefused(
                503, "the log cannot be reached; try again later", (("Retry-After", "5"),)
            ) from None
        state = self.provider.registry.state
        if not self.provider.speaks_for(state):
            raise _CallRefused(
                503, "this process runs other policies than the log has", (("Retry-After", "5"),)
            )
        return self.provider.face(state, call.headers)

    def _fixes(self, call: EndpointCall) -> Answer:
        asked = read_message(call.body, AskFixes)
        operation = self._disclosed(asked.operation)
        if operation is None:
            raise _CallRefused(404, "fixes of this operation are told only to clients that make the request")
        provider, named = self.provider, Named.from_header(call.headers.get(AT_HEADER.lower(), ""))
        if named is None:
            state, stamp = provider.state, None
            face = provider.face(state, call.headers)
        else:
            face, state = self._face_at_the_end(call), provider.registry.state
            stamp = face.stamp_at(named, with_versions=provider.wire.tells_versions)
        rejected = Rejected(provider.fixes_for(asked.request, operation, state), state)
        return refusal_answer(provider.wire, rejected, "json", face, stamp, status=200)

    def _signed(self, call: EndpointCall) -> Answer:
        asked = _query_of(call, "from", "nonce")
        if "from" not in asked:
            raise _CallRefused(400, "ask with from=position, or from=* where none is known")
        face, named = self._asked_from(call, asked)
        signing = self.provider.signing
        assert signing is not None  # noqa: S101 - there is no such endpoint without
        answer = signed(_account(face, named), face, self.provider.root_of(call.root_path), signing)
        return Answer(200, JSON, _encode(answer), (_NO_STORE,))


class AdminEndpoints(Endpoints):
    """What an operator may do. The token for it has nothing to do with the app's own login."""

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider, provider.limits.most_bytes, "; send a change instead")
        if provider.admin_token is not None:
            self.by_path[RELOAD_TABLE_PATH] = Endpoint(("POST",), self._reload_table)
            self.by_path[RELOAD_RULES_PATH] = Endpoint(("POST",), self._reload_rules)
            self.by_path[GRAPH_PATH] = Endpoint(_READ, self._graph)

    def _authorize(self, call: EndpointCall) -> None:
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(_digest(token.strip()), _digest(self.provider.admin_token or ""))
        if scheme.lower() != "bearer" or not is_right:
            raise _CallRefused(
                401, "this endpoint needs the admin token as bearer token", (("WWW-Authenticate", "Bearer"),)
            )

    def _reload_table(self, call: EndpointCall) -> Answer:
        message = read_message(call.body, ReloadTable)
        whole = message.rows is not msgspec.UNSET
        with self._within_limit():
            report = self.provider.registry.reload_table(
                message.table,
                message.rows or {} if whole else None,
                set=None if whole else message.set or {},
                remove=message.remove or (),
                version=message.version,
            )
        return Answer(200, JSON, _encode(self.provider.wire.report(report)))

    @contextmanager
    def _within_limit(self) -> Iterator[None]:
        """A reload counts when it changes something. One too many is refused before it begins."""
        budget = self.provider.reload_budget
        if budget is None:
            yield
            return
        if wait_s := budget.wait_s():
            seconds = math.ceil(wait_s)
            raise _CallRefused(
                429,
                f"there were too many reloads; try again in {seconds} s",
                (("Retry-After", str(seconds)),),
            )
        before = self.provider.registry.state
        try:
            yield
        finally:
            if self.provider.registry.state is before:
                budget.give_back()

    def _reload_rules(self, call: EndpointCall) -> Answer:
        message = read_message(call.body, ReloadRules)
        with self._within_limit():
            report = self.provider.registry.reload_rules(
                None if message.rules is msgspec.UNSET else message.rules,
                add=message.add or (),
                remove=message.remove or (),
            )
        return Answer(200, JSON, _encode(report))

    def _graph(self, call: EndpointCall) -> Answer:
        if self.provider.level < Level.GRAPH:
            raise _CallRefused(
                404, f"the graph starts at Level 5; this server is at Level {self.provider.level}"
            )
        state = self.provider.state
        return Answer(200, JSON, _encode(graph_of(state.tables, state.rules)))


def read_message(body: bytes, message_type: type[_Sent]) -> _Sent:
    """A message from outside, strictly: no duplicate member anywhere, nothing unknown, nothing that is not JSON.

    Rows are left to their table, which knows what to call them.
    """
    try:
        message = msgspec.convert(_tree_of(body), message_type)
    except RecursionError:
        raise BadMessage("the body is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ContractError(f"the body does not fit: {error}") from None
    except UnicodeEncodeError:
        raise ContractError("the body does not fit: a member has a name that is not valid Unicode") from None
    if isinstance(message, AskFixes) and (why := fault_of_request(message.request)) is not None:
        raise ContractError(why)
    return message


def _tree_of(body: bytes) -> Any:
    """What a body holds.

    Each member has a colon of its own, so a colon that got lost belonged to a member that is there twice. The slow way
    says what is wrong. It is also taken where colons are written as escapes.
    """
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        tree = msgspec.json.decode(body)
        if not _ESCAPED_COLON.search(body) and body.count(b":") == _encode(tree).count(b":"):
            return tree
    constants: list[str] = []

    def noted(constant: str) -> float:
        constants.append(constant)
        return float(constant)

    try:
        tree = json.loads(
            body.decode(), object_pairs_hook=_members_once, parse_int=_whole_number, parse_constant=noted
        )
    except UnicodeDecodeError:
        raise BadMessage("the body is not valid UTF-8") from None
    except json.JSONDecodeError as error:
        raise BadMessage(f"the body is not valid JSON: {error}") from None
    if constants and (fault := fault_in(tree, len(body))) is not None:
        raise BadMessage(f"the body is not valid JSON: {shown('/'.join(fault.path))} {fault.what}")
    return tree


def _members_once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    once = dict(members)
    if len(once) < len(members):
        raise BadMessage("an object in the body has two members of the same name")
    return once


def _whole_number(digits: str) -> int:
    """The number. One that is too long to be read becomes any number that is too long."""
    return int(digits) if len(digits) <= MOST_DIGITS else 10**MOST_DIGITS


def _query_of(call: EndpointCall, *names: str) -> dict[str, list[str]]:
    """The parameters of a call, by name. One that is not among the names is refused."""
    try:
        query = parse_qsl(call.query, keep_blank_values=True, max_num_fields=_MOST_QUERIED)
    except ValueError:
        raise _CallRefused(400, f"the query has more than {_MOST_QUERIED} parameters") from None
    asked: dict[str, list[str]] = {}
    for name, value in query:
        if name not in names:
            raise _CallRefused(400, f"there is no parameter {shown(name)}; there are {' and '.join(names)}")
        asked.setdefault(name, []).append(value)
    return asked


def _account(face: Face, named: Named) -> Account:
    """What is told to a client that asks. Where that is too long it is told that it is too far back."""
    account = face.account(named)
    if len(_encode(account)) <= _LONGEST_ACCOUNT:
        return account
    return Account(to=account.to, since=account.since, unknown="old", nonce=account.nonce)


def _with_vary(face: Face, *headers: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return (*headers, ("Vary", face.stamp.vary)) if face.stamp.vary else headers


def _wants_events(call: EndpointCall) -> bool:
    is_asked_for = "text/event-stream" in call.headers.get("accept", "")
    return is_asked_for and (call.method, call.path) == ("GET", CHANGES_PATH)


def _names_tag(if_none_match: str, tag: str) -> bool:
    candidates = (candidate.strip().removeprefix("W/") for candidate in if_none_match.split(","))
    return any(candidate in ("*", f'"{tag}"') for candidate in candidates)


def _digest(token: str) -> bytes:
    """The same length for any token, so that the comparison takes constant time."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def _status_of(error: Exception) -> int:
    match error:
        case BadMessage():
            return 400
        case UnknownTable():
            return 404
        case VersionTaken():
            return 409
        case LogError():
            return 503
        case _:
            return 422
