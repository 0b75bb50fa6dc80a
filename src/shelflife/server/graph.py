"""The graph of rows, made from their values by the rules.

Nothing is built ahead: a row and the rules give its edges, so an old snapshot is its own old graph, and a walk
costs what it reaches.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shelflife.contract import Edge, Graph, Node, Row, Rule, RuleSet, node_id
from shelflife.contract.names import key_of
from shelflife.server.tables import Table

__all__ = ["downstream", "graph_of", "target_keys"]


def target_keys(rule: Rule, row: Row) -> Iterator[str]:
    """The keys in the rule's to-table that the row's values name; the rows may or may not be there."""
    values = row.values() if rule.via is None else (row.get(rule.via),)
    seen: set[str] = set()
    for value in values:
        for member in value if isinstance(value, list) else (value,):
            key = key_of(member)
            if key is not None and key not in seen:
                seen.add(key)
                yield key


def _edges(tables: Mapping[str, Table], rules: RuleSet, table: str, row: Row) -> Iterator[tuple[Rule, str]]:
    for rule in rules.leaving(table):
        targets = tables[rule.to_table].rows
        for key in target_keys(rule, row):
            if key in targets:
                yield rule, key


def downstream(
    tables: Mapping[str, Table], rules: RuleSet, table: str, keys: Iterable[str]
) -> tuple[str, ...]:
    """The nodes that a walk along the edges reaches from these rows, sorted, without the rows themselves."""
    start = {(table, key) for key in keys}
    reached: set[tuple[str, str]] = set()
    frontier: list[tuple[str, str]] = list(start)
    while frontier:
        from_table, from_key = frontier.pop()
        row: Any = tables[from_table].rows.get(from_key)
        if row is None:
            continue
        for rule, key in _edges(tables, rules, from_table, row):
            node = (rule.to_table, key)
            if node not in reached and node not in start:
                reached.add(node)
                frontier.append(node)
    return tuple(sorted(node_id(*node) for node in reached))


def graph_of(tables: Mapping[str, Table], rules: RuleSet) -> Graph:
    """The whole graph."""
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    for name, table in tables.items():
        for key in table.sorted_keys:
            node = node_id(name, key)
            nodes[node] = Node(table=name, key=key, version=table.version)
            edges += (
                Edge(from_node=node, to_node=node_id(rule.to_table, to_key), relation=rule.relation)
                for rule, to_key in _edges(tables, rules, name, table.rows[key])
            )
    return Graph(nodes=nodes, edges=tuple(edges))
