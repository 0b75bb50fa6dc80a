"""What an operator looks at: tables, the log, rows and what lies around them, policies, clients, and a reload before it is made."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from shelflife.contract.messages import ReloadTable
from shelflife.contract.names import node_id, split_node_id
from shelflife.server.delta import Delta
from shelflife.server.endpoints import (
    NO_STORE,
    READ,
    CallRefused,
    Endpoint,
    EndpointCall,
    query_of,
    read_message,
)
from shelflife.server.errors import LogError, UnknownTable
from shelflife.server.feedback import JSON, Answer
from shelflife.server.graph import downstream, graph_of, target_keys
from shelflife.server.lessons import Given
from shelflife.server.log import Entry, Header
from shelflife.server.metrics import TEXT_FORMAT, exposition
from shelflife.server.policies import Policy
from shelflife.server.provider import Provider
from shelflife.server.reloading import arguments_of
from shelflife.server.scoring import ANONYMOUS
from shelflife.server.state import State
from shelflife.server.wire import Level

__all__ = ["protocol_views_of", "views_of"]

OVERVIEW_PATH = "/admin/overview"
LOG_PATH = "/admin/log"
ROWS_PATH = "/admin/rows"
ROW_PATH = "/admin/row"
POLICIES_PATH = "/admin/policies"
RESTING_PATH = "/admin/resting"
GRAPH_PATH = "/admin/graph"
CLIENTS_PATH = "/admin/clients"
_ANYBODY = f"{ANONYMOUS} is whoever sends no credentials, which may be many clients: Scoring(client=...) says who is who"
PREVIEW_PATH = "/admin/preview-table"
METRICS_PATH = "/admin/metrics"

_MOST_ENTRIES = 20
_MOST_DIGITS = 20
_MOST_ROWS = 100
_MOST_NODES = 200
_encode = msgspec.json.Encoder().encode

View = Callable[[Provider, EndpointCall], Any]


def views_of(provider: Provider) -> dict[str, Endpoint]:
    """The endpoints by which the operator's page learns what it shows."""
    views: dict[str, View] = {
        OVERVIEW_PATH: _overview,
        LOG_PATH: _log,
        ROWS_PATH: _rows,
        ROW_PATH: _row,
        POLICIES_PATH: _policies,
    }
    if provider.clients is not None:
        views[CLIENTS_PATH] = _clients
    endpoints = _endpoints_of(provider, views)
    endpoints[METRICS_PATH] = Endpoint(READ, partial(_metrics, provider))
    return endpoints | {PREVIEW_PATH: Endpoint(("POST",), partial(_shown, provider, _preview))}


def protocol_views_of(provider: Provider) -> dict[str, Endpoint]:
    """The endpoints for looking that the protocol has, and any program may rely on."""
    views: dict[str, View] = {RESTING_PATH: _resting}
    if provider.level >= Level.GRAPH:
        views[GRAPH_PATH] = _graph
    return _endpoints_of(provider, views)


def _endpoints_of(provider: Provider, views: Mapping[str, View]) -> dict[str, Endpoint]:
    return {path: Endpoint(READ, partial(_shown, provider, view)) for path, view in views.items()}


def _shown(provider: Provider, view: View, call: EndpointCall) -> Answer:
    return Answer(200, JSON, _encode(view(provider, call)), (NO_STORE,))


def _resting(provider: Provider, call: EndpointCall) -> Any:
    table, key = split_node_id(query_of(call, "row").get("row", [""])[-1])
    if not table or key == "":
        raise CallRefused(400, "ask with row=table:key, or with row=table")
    state, _ = _at_the_end(provider)
    if table not in state.tables:
        raise UnknownTable(table)
    return provider.told_fixes.resting_on(table, key, provider.registry)


def _graph(provider: Provider, call: EndpointCall) -> Any:
    state, _ = _at_the_end(provider)
    return graph_of(state.tables, state.rules)


def _metrics(provider: Provider, call: EndpointCall) -> Answer:
    return Answer(200, TEXT_FORMAT, exposition(provider).encode(), (NO_STORE,))


def _overview(provider: Provider, call: EndpointCall) -> Any:
    state, has_log = _at_the_end(provider)
    workers = None
    if has_log:
        with suppress(LogError):  # it is shown all the same, by what is known here
            workers = provider.registry.workers()
    changed = {name: made for made in state.made for name in made.tables}
    return {
        "number": state.number,
        "log": state.log_id[:8],
        "kept_from": state.made[0].number if state.made else state.number + 1,
        "workers": workers,
        "is_cut_off": workers is None or provider.registry.is_cut_off,
        "scores_clients": provider.clients is not None,
        "tables": [
            {
                "table": name,
                "version": table.version,
                "rows": len(table.rows),
                "changed": _made(changed[name]) if name in changed else None,
            }
            for name, table in state.tables.items()
        ],
        "rules": [*state.rules],
    }


def _at_the_end(provider: Provider) -> tuple[State, bool]:
    """The state at the end of the log; without the log the one that is known, and False."""
    has_log = True
    try:
        provider.registry.catch_up()
    except LogError:
        has_log = False
    return provider.registry.state, has_log


def _policies(provider: Provider, call: EndpointCall) -> Any:
    """All policies of the log. A process that is for operators alone may have none of them itself."""
    state, _ = _at_the_end(provider)
    fixes: Mapping[str, Mapping[str, Given]] = {}
    try:
        counts = provider.counts.totals()
        if provider.clients is not None:
            fixes = provider.clients.fixes(provider.clients.others(provider.registry))
    except LogError:
        counts = provider.counts.own()
    refused: dict[str, dict[str, int]] = {}
    for (what, *labels), count in counts.items():
        if what == "fixes" and labels[2:] == ["refusal"]:
            refused.setdefault(labels[0], {})[labels[1]] = count
    here = {one.id: one for one in provider.policies.all()}
    ids = dict.fromkeys([*here, *state.policies])
    return {
        "scores_clients": provider.clients is not None,
        "policies": [_policy(id, here.get(id), refused.get(id, {}), fixes.get(id, {})) for id in ids],
    }


def _policy(id: str, policy: Policy | None, given: Mapping[str, int], seen: Mapping[str, Given]) -> Any:
    operation = None if policy is None else policy.operation
    return {
        "id": id,
        "says": None if policy is None else policy.sentence,
        "operation": None if operation is None else operation.name,
        "refused": sum(given.values()),
        "fixes": {
            type: {"count": count, **msgspec.structs.asdict(seen.get(type, Given()))}
            for type, count in given.items()
        },
    }


def _made(header: Header) -> Any:
    return {"number": header.number, "at": header.at or None, "by": header.by}


def _log(provider: Provider, call: EndpointCall) -> Any:
    asked = query_of(call, "before").get("before", [""])[-1]
    if asked and not (asked.isdecimal() and len(asked) <= _MOST_DIGITS):
        raise CallRefused(400, "ask with before=number")
    state, _ = _at_the_end(provider)
    before = int(asked or state.number + 1)
    older = [made for made in state.made if made.number < before]
    whole = {entry.number: entry for entry in state.tail}
    return {
        "number": state.number,
        "entries": [_entry(made, whole.get(made.number)) for made in reversed(older[-_MOST_ENTRIES:])],
        "has_more": len(older) > _MOST_ENTRIES,
    }


def _entry(made: Header, entry: Entry | None) -> Any:
    """A change, with all that is still known of it."""
    told = {**_made(made), "is_whole": entry is not None}
    if entry is None:
        tables = {name: {"row_count": count} for name, count in made.tables.items()}
        return {**told, "tables": tables, "has_rules": made.has_rules, "has_policies": made.has_policies}
    change = entry.change
    policies = change.policies
    moved = (
        [] if policies is None else sorted({id for id, _ in policies.before.items() ^ policies.after.items()})
    )
    return {
        **told,
        "tables": {
            name: {
                "old_version": one.old_version,
                "version": one.version,
                **_rows_of(one.delta),
                "affected_downstream": one.downstream[:_MOST_NODES],
                "downstream_count": len(one.downstream),
            }
            for name, one in change.tables.items()
        },
        "rules": change.rules,
        "policies": moved,
    }


def _rows_of(delta: Delta) -> dict[str, Any]:
    """The rows of a change, before and after, as many as a person reads."""
    keys = islice(sorted(delta.after), _MOST_ROWS)
    rows = [{"key": key, "before": delta.before[key], "after": delta.after[key]} for key in keys]
    return {"row_count": len(delta), "rows": rows}


def _rows(provider: Provider, call: EndpointCall) -> Any:
    asked = query_of(call, "table", "from", "holding")
    name, after, holding = (asked.get(one, [""])[-1] for one in ("table", "from", "holding"))
    state, _ = _at_the_end(provider)
    if name not in state.tables:
        raise UnknownTable(name)
    table = state.tables[name]
    keys = [key for key in table.sorted_keys if key > after and holding.lower() in key.lower()]
    return {
        "table": name,
        "version": table.version,
        "rows": [{"key": key, "row": table.rows[key]} for key in keys[:_MOST_ROWS]],
        "next": keys[_MOST_ROWS - 1] if len(keys) > _MOST_ROWS else None,
    }


def _row(provider: Provider, call: EndpointCall) -> Any:
    asked = query_of(call, "row").get("row", [""])[-1]
    table, key = split_node_id(asked)
    if not key:
        raise CallRefused(400, "ask with row=table:key")
    state, _ = _at_the_end(provider)
    if table not in state.tables:
        raise UnknownTable(table)
    row = state.tables[table].rows.get(key)
    below = downstream(state.tables, state.rules, table, [key])
    resting = provider.told_fixes.resting_on(table, key, provider.registry)
    return {
        "row": asked,
        "value": row,
        "edges": [*islice(_edges_around(state, table, key), _MOST_NODES)],
        "downstream": below[:_MOST_NODES],
        "downstream_count": len(below),
        "resting": resting,
    }


def _edges_around(state: State, table: str, key: str) -> Iterable[dict[str, str]]:
    node, row = node_id(table, key), state.tables[table].rows.get(key)
    for rule in state.rules:
        if rule.from_table == table and row is not None:
            found = [to for to in target_keys(rule, row) if to in state.tables[rule.to_table].rows]
            yield from (
                {"from": node, "to": node_id(rule.to_table, to), "relation": rule.relation} for to in found
            )
        if rule.to_table == table and row is not None:
            for from_key, other in state.tables[rule.from_table].rows.items():
                if key in target_keys(rule, other):
                    yield {
                        "from": node_id(rule.from_table, from_key),
                        "to": node,
                        "relation": rule.relation,
                    }


def _clients(provider: Provider, call: EndpointCall) -> Any:
    clients = provider.clients
    assert clients is not None  # noqa: S101 - there is no such endpoint without
    scores = clients.scores(clients.others(provider.registry))
    is_anybody = clients.reads is not None and any(one.client == ANONYMOUS for one in scores)
    return {"clients": scores} | ({"note": _ANYBODY} if is_anybody else {})


def _preview(provider: Provider, call: EndpointCall) -> Any:
    message = read_message(call.body, ReloadTable)
    provider.registry.catch_up()
    report, delta = provider.registry.preview_table(message.table, **arguments_of(message))
    resting = provider.told_fixes.count_on(message.table, delta.after, provider.registry)
    return {"report": report, **_rows_of(delta), "fixes_resting": resting}
