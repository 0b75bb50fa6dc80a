"""Random histories of a server with tables, rules and policies of its own, and what a memory must make of them."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from shelflife.client.events import Evicted
from shelflife.contract import same_json, split_node_id
from shelflife.integrations.starlette import install
from shelflife.server import Provider, fix
from tests.cells import have_changed
from tests.programs import plain, run_step
from tests.worlds import (
    CELL_VARIANTS,
    KEYS,
    ROW_VARIANTS,
    TABLES,
    WIDE,
    fitting,
    rows_of,
    rule_lists,
    rules,
)

drifts = st.lists(
    st.one_of(
        st.tuples(
            st.just("row"), st.sampled_from(TABLES), st.sampled_from(KEYS), st.sampled_from(ROW_VARIANTS)
        ),
        st.tuples(
            st.just("cell"),
            st.sampled_from(TABLES),
            st.sampled_from(KEYS[:2]),
            st.sampled_from(WIDE),
            st.sampled_from(CELL_VARIANTS),
        ),
        st.tuples(st.just("bump"), st.sampled_from(TABLES)),
        st.tuples(st.just("rule"), rules),
        st.tuples(st.just("rules"), rule_lists),
    ),
    min_size=1,
    max_size=4,
)


class World:
    """A server whose tables, rules and policies are given anew for each history."""

    def __init__(self):
        self.provider = None
        self.app = None

    def make(self, world, declared, program_list, **options):
        self.provider = Provider(world, declared, **options)
        for number, program in enumerate(program_list):
            self.provider.policy(policy_of(number, program))
        provider = self.provider

        async def operation(request):
            provider.check(await request.json())
            return JSONResponse({"success": True})

        self.app = Starlette(routes=[Route("/x", operation, methods=["POST"])])
        install(self.app, provider)

    async def __call__(self, scope, receive, send):
        await self.app(scope, receive, send)

    def drift(self, event):
        registry = self.provider.registry
        match event:
            case ("row", table, key, None):
                registry.reload_table(table, remove=[key])
            case ("row", table, key, row):
                registry.reload_table(table, set={key: row})
            case ("cell", table, key, column, value):
                row = registry.rows(table).get(key)
                if row is not None:
                    registry.reload_table(table, set={key: row | {column: value}})
            case ("bump", table):
                version = f"bump-{random.random()}"
                registry.reload_table(table, registry.rows(table), version=version)
            case ("rule", rule):
                others = [other for other in registry.state.rules if other.id != rule.id]
                has_it = rule in list(registry.state.rules)
                registry.reload_rules(others if has_it else [*others, *fitting([rule], rows_of(registry))])
            case ("rules", declared):
                registry.reload_rules(fitting(declared, rows_of(registry)))


def policy_of(number, program):
    """A policy that is violated by most requests, and whose fix holds all that it saw."""

    def policy(request, tables):
        seen, last = [], None
        for step in program:
            if step == ("stop_when_empty",):
                if not last:
                    return None
                continue
            last = run_step(step, last, request, tables)
            seen.append(plain(last))
        return fix(f"SAW_{number}", seen=seen)

    return policy


def suggestions_now(world, request):
    return {
        violation.suggestion.type: violation.suggestion for violation in world.provider.violations(request)
    }


def has_changed(entry, old, new):
    """Whether a read of the entry has changed between two states, judged by the cells and rules themselves."""
    before, after = ({name: table.rows for name, table in state.tables.items()} for state in (old, new))
    return have_changed(entry.grounds.cells, before, after) or any(
        old.rules.find(*split_node_id(rule)) != new.rules.find(*split_node_id(rule))
        for rule in entry.grounds.rules
    )


def evicted_from_use(agent):
    """What was evicted and could have been recalled; what a late response gave is suspect, and leaves when the present one speaks."""
    return [event for event in agent.of(Evicted) if not event.entry.is_suspect]


def assert_nothing_stale(world, agent, requests):
    for request in requests:
        now = suggestions_now(world, request)
        for entry in agent.recall(request):
            assert entry.type in now
            assert same_json(entry.parameters, now[entry.type].parameters)


HISTORIES = 40 if settings().max_examples < 1000 else 10_000


def assert_exact(world, agent, requests, rounds):
    """Call, drift and call again, and hold what the memory does against the server's own tables."""
    for request in requests:
        agent.call(request)
    delayed = []
    for events, delayed_at in rounds:
        agent.events.clear()
        before = world.provider.state
        for number, event in enumerate(events):
            if number == delayed_at:
                delayed.append(agent.unobserved(requests[0]))
            world.drift(event)
        after = world.provider.state
        agent.call({"unrelated": True})
        for evicted in evicted_from_use(agent):
            assert has_changed(evicted.entry, before, after), evicted
        assert_nothing_stale(world, agent, requests)
        agent.events.clear()
        for late in delayed:
            agent.memory.observe(late)
            agent.memory.observe(late)
            assert evicted_from_use(agent) == []
            assert_nothing_stale(world, agent, requests)
        for request in requests:
            agent.call(request)
            remembered = {entry.type for entry in agent.recall(request)}
            cacheable = {
                s.type for s in suggestions_now(world, request).values() if s.cache_hint == "cacheable"
            }
            assert remembered == cacheable
