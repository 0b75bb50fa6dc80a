"""The graph of rows, made from their values by the rules.

Nothing is built ahead: a row and the rules give its edges, so an old snapshot is its own old graph, and a walk
costs what it reaches.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from shelflife.contract import Rule
from shelflife.contract.messages import Edge, Graph, Node
from shelflife.contract.names import node_id
from shelflife.server.delta import Row
from shelflife.server.rules import RuleSet
from shelflife.server.tables import Table, key_of

__all__ = ["downstream", "graph_of", "target_keys"]


def target_keys(rule: Rule, row: Row) -> Iterable[str]:
    """The keys in the rule's to-table that the row's values name; the rows may or may not be there."""
    if rule.via is None:
        values: Iterable[Any] = row.values()
    else:
        value = row.get(rule.via)
        if type(value) is str:
            return (value,) if value else ()
        values = (value,)
    keys: dict[str, None] = {}
    for value in values:
        if type(value) is str:
            keys[value] = None
        else:
            members = value if type(value) is list else (value,)
            keys |= dict.fromkeys(key for key in map(key_of, members) if key is not None)
    keys.pop("", None)
    return keys


def downstream(
    tables: Mapping[str, Table], rules: RuleSet, table: str, keys: Iterable[str]
) -> tuple[str, ...]:
    """The nodes that a walk along the edges reaches from these rows, sorted, without the rows themselves."""
    start = set(keys)
    reached: dict[str, set[str]] = {table: set(start)}
    frontier: list[tuple[str, Collection[str]]] = [(table, start)]
    while frontier:
        from_table, from_keys = frontier.pop()
        from_rows = tables[from_table].rows
        for rule in rules.leaving(from_table):
            to_rows = tables[rule.to_table].rows
            seen = reached.setdefault(rule.to_table, set())
            found: list[str] = []
            for from_key in from_keys:
                row: Any = from_rows.get(from_key)
                for key in target_keys(rule, row) if row is not None else ():
                    if key not in seen and to_rows.get(key) is not None:
                        seen.add(key)
                        found.append(key)
            if found:
                frontier.append((rule.to_table, found))
    reached[table] -= start
    return tuple(sorted(node_id(name, key) for name, found_keys in reached.items() for key in found_keys))


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
                for rule in rules.leaving(name)
                for to_key in target_keys(rule, table.rows[key])
                if to_key in tables[rule.to_table].rows
            )
    return Graph(nodes=nodes, edges=tuple(edges))
