"""The graph and the walk, against a plain reachability oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shelflife.contract import Rule
from shelflife.contract.names import node_id
from shelflife.server import Registry
from shelflife.server.graph import downstream, graph_of
from tests.worlds import KEYS, TABLES, fitting, grown, rule_lists, worlds


def edges_by_the_book(world, rules):
    """Edges straight from the definition, by trying every pair of rows."""
    edges = set()
    for rule in rules:
        for key, row in world[rule.from_table].items():
            columns = row.values() if rule.via is None else [row.get(rule.via)]
            members = [
                member for value in columns for member in (value if isinstance(value, list) else [value])
            ]
            names = {member for member in members if isinstance(member, str)}
            names |= {str(member) for member in members if type(member) is int}
            for target in world[rule.to_table]:
                if target in names:
                    edges.add((node_id(rule.from_table, key), node_id(rule.to_table, target), rule.relation))
    return edges


@pytest.mark.spec("8.1", "8.2")
@given(worlds, rule_lists)
def test_the_graph_has_the_edges_of_the_definition(world, rules):
    rules = fitting(rules, world)
    state = Registry(world, rules, versions=dict.fromkeys(TABLES, "1.0.0")).state
    graph = graph_of(state.tables, state.rules)
    assert {(edge.from_node, edge.to_node, edge.relation) for edge in graph.edges} == edges_by_the_book(
        world, rules
    )
    assert len(graph.edges) == len(edges_by_the_book(world, rules))
    assert set(graph.nodes) == {node_id(name, key) for name, table in world.items() for key in table}
    for node, facts in graph.nodes.items():
        assert node == node_id(facts.table, facts.key)
        assert facts.version == "1.0.0"


@pytest.mark.spec("7.6")
@given(worlds, rule_lists, st.sampled_from(TABLES), st.sets(st.sampled_from(KEYS)))
def test_the_walk_equals_reachability(world, rules, table, keys):
    state = grown(world, rules).state
    start = {node_id(table, key) for key in keys}
    edges = edges_by_the_book(world, rules)
    reached = set(start)
    while step := {to for origin, to, _ in edges if origin in reached} - reached:
        reached |= step
    assert downstream(state.tables, state.rules, table, keys) == tuple(sorted(reached - start))


@pytest.mark.spec("7.6")
def test_a_cycle_ends_the_walk():
    ring = Rule(from_table="t", to_table="t", relation="next", via="next")
    state = Registry({"t": {"a": {"next": "b"}, "b": {"next": "c"}, "c": {"next": "a"}}}, [ring]).state
    assert downstream(state.tables, state.rules, "t", ["a"]) == ("t:b", "t:c")


@pytest.mark.spec("7.6")
def test_a_walk_may_go_deeper_than_any_stack():
    chain = Rule(from_table="t", to_table="t", relation="next", via="next")
    state = Registry({"t": {str(n): {"next": n + 1} for n in range(20_000)}}, [chain]).state
    assert len(downstream(state.tables, state.rules, "t", ["0"])) == 19_999
