"""The operator's endpoints, free of any framework. They have a token of their own."""

import hashlib
import hmac
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import msgspec

from shelflife.contract.messages import RefreshTable, ReloadReport, ReloadRules, ReloadTable, RulesReport
from shelflife.contract.names import shown
from shelflife.server.endpoints import (
    READ,
    CallRefused,
    Endpoint,
    EndpointCall,
    Endpoints,
    read_message,
    too_many_listeners,
    wants_events,
)
from shelflife.server.errors import LogError
from shelflife.server.feedback import JSON, Answer
from shelflife.server.operating import protocol_views_of, views_of
from shelflife.server.page import page_of
from shelflife.server.pins import Listening
from shelflife.server.provider import Provider
from shelflife.server.reloading import arguments_of

__all__ = ["AdminEndpoints"]

RELOAD_TABLE_PATH = "/admin/reload-table"
REFRESH_TABLE_PATH = "/admin/refresh-table"
RELOAD_RULES_PATH = "/admin/reload-rules"
FEED_PATH = "/admin/changes"

_MOST_WAITING = 2
"""So many reloads at most wait at the same time until all workers have them."""

_SOMEBODY = "an operator"
"""Stands in the log for whoever has the token and gives no name. What has none there was done by code."""

_encode = msgspec.json.Encoder().encode


class AdminEndpoints(Endpoints):
    """What an operator may do. The token for it has nothing to do with the app's own login."""

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider, provider.limits.most_bytes, "; send a change instead")
        self._being_read: set[str] = set()
        self._waiting = threading.BoundedSemaphore(_MOST_WAITING)
        self.page: Mapping[str, Endpoint] = {}
        """What anybody may see: the operator's page, before anything is in it."""
        if provider.admin_token is not None:
            self.by_path[RELOAD_TABLE_PATH] = Endpoint(("POST",), self._reload_table)
            self.by_path[REFRESH_TABLE_PATH] = Endpoint(("POST",), self._refresh_table)
            self.by_path[RELOAD_RULES_PATH] = Endpoint(("POST",), self._reload_rules)
            self.by_path |= protocol_views_of(provider) | views_of(provider)
            self.by_path[FEED_PATH] = Endpoint(READ, self._no_feed)
            self.page = page_of(provider)
            self.by_path |= self.page

    def is_for_the_feed(self, call: EndpointCall) -> bool:
        """Whether an operator asks to be told of every change, and there is room for another listener."""
        is_asked_for = call.path == FEED_PATH and wants_events(call)
        has_room = is_asked_for and not call.holds_thread and not self.provider.feed.is_full
        return has_room and self.admit(call) is None

    def answer(self, call: EndpointCall) -> Answer:
        """Carry out an admitted call. From the first on the process follows the log, for nobody else may have seen to that."""
        if call.path not in self.page:
            with suppress(LogError):  # whatever needs the log says so
                self.provider.registry.follow()
        return super().answer(call)

    def listen_for(self, call: EndpointCall) -> Listening:
        """An operator is told that something is new, and not what a client would be told of it."""
        return self.provider.feed.stream_to_operator

    def _no_feed(self, call: EndpointCall) -> Answer:
        if wants_events(call) and not call.holds_thread:
            raise too_many_listeners()
        raise CallRefused(406, "ask with Accept: text/event-stream; under WSGI there is no feed")

    def _authorize(self, call: EndpointCall) -> None:
        if call.path in self.page:
            return
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        is_right = hmac.compare_digest(_digest(token.strip()), _digest(self.provider.admin_token or ""))
        if scheme.lower() != "bearer" or not token.strip():
            sentence = "this endpoint needs the admin token as bearer token"
            raise CallRefused(401, sentence, WWW_Authenticate="Bearer")
        if not is_right:
            raise CallRefused(401, "this is not the admin token", WWW_Authenticate="Bearer")

    def _reload_table(self, call: EndpointCall) -> Answer:
        message = read_message(call.body, ReloadTable)
        reload, by = self.provider.registry.reload_table, message.by or _SOMEBODY
        return self._reloaded(partial(reload, message.table, **arguments_of(message), by=by), message.wait_s)

    def _refresh_table(self, call: EndpointCall) -> Answer:
        message, being_read = read_message(call.body, RefreshTable), self._being_read
        if (
            message.table in being_read
        ):  # else calls that wait for a slow source would take all threads there are
            sentence = f"the table {shown(message.table)} is being read already; try again later"
            raise CallRefused(503, sentence, Retry_After="5")
        being_read.add(message.table)
        try:
            refresh = partial(
                self.provider.refresh, message.table, message.version, by=message.by or _SOMEBODY
            )
            return self._reloaded(refresh, message.wait_s)
        finally:
            being_read.discard(message.table)

    def _reload_rules(self, call: EndpointCall) -> Answer:
        message = read_message(call.body, ReloadRules)
        rules, reload = message.rules or (), self.provider.registry.reload_rules
        given = None if message.rules is msgspec.UNSET else rules
        by = message.by or _SOMEBODY
        reload = partial(reload, given, add=message.add or (), remove=message.remove or (), by=by)
        return self._reloaded(reload, message.wait_s)

    def _reloaded(
        self, reload: Callable[[], ReloadReport | RulesReport], wait_s: float | msgspec.UnsetType
    ) -> Answer:
        """The report of a reload, when all workers have it. One too many is refused before it begins."""
        if isinstance(wait_s, msgspec.UnsetType):
            return self._reported(self._counted(reload))
        if not self._waiting.acquire(blocking=False):  # they would take all threads there are
            sentence = "other reloads wait for all workers already; try again later, or without wait_s"
            raise CallRefused(503, sentence, Retry_After="5")
        try:
            report = self._counted(reload)
            with suppress(LogError):  # it has been made, whether others have it or not
                report = msgspec.structs.replace(report, workers=self.provider.registry.workers(wait_s))
            return self._reported(report)
        finally:
            self._waiting.release()

    def _counted(self, reload: Callable[[], ReloadReport | RulesReport]) -> ReloadReport | RulesReport:
        """The report of a reload. It counts when it changes something."""
        budget, is_change = self.provider.reload_budget, False
        if budget is not None and (wait_s := math.ceil(budget.wait_s())):
            sentence = f"there were too many reloads; try again in {wait_s} s"
            raise CallRefused(429, sentence, Retry_After=str(wait_s))
        try:
            report = reload()
            is_change = report.old_version != report.new_version
            return report
        finally:
            if budget is not None and not is_change:
                budget.give_back()

    def _reported(self, report: ReloadReport | RulesReport) -> Answer:
        shown = self.provider.wire.report(report) if isinstance(report, ReloadReport) else report
        return Answer(200, JSON, _encode(shown))


def _digest(token: str) -> bytes:
    """The same length for any token, so that the comparison takes constant time."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
