"""What tables, rows, rules and policies are called for a client."""

import hashlib

from shelflife.contract import Rule
from shelflife.contract.names import node_id, split_node_id

__all__ = ["PLAIN", "Words", "short_name"]


class Words:
    """What tables, rows, rules and policies are called for a client. Here by their own names; `disclosure` has aliases."""

    __slots__ = ()

    def table(self, name: str) -> str:
        """A table."""
        return self._name("t", name)

    def key(self, table: str, key: str) -> str:
        """The key of a row in its table."""
        return self._name("k", table, key)

    def column(self, table: str, column: str) -> str:
        """A column of a table."""
        return self._name("c", table, column)

    def relation(self, table: str, relation: str) -> str:
        """A relation that leaves a table."""
        return self._name("r", table, relation)

    def row(self, node: str) -> str:
        """`table:key`, or a bare table."""
        table, key = split_node_id(node)
        return self.table(table) if key is None else node_id(self.table(table), self.key(table, key))

    def rule_id(self, rule: str) -> str:
        """`table:relation`."""
        table, _, relation = rule.partition(":")
        return node_id(self.table(table), self.relation(table, relation))

    def rule(self, rule: Rule) -> Rule:
        """A rule."""
        return Rule(
            from_table=self.table(rule.from_table),
            to_table=self.table(rule.to_table),
            relation=self.relation(rule.from_table, rule.relation),
            via=None if rule.via is None else self.column(rule.from_table, rule.via),
        )

    def policy(self, name: str) -> str:
        """A policy, in short."""
        return short_name(self._name("p", name))

    def version(self, table: str, version: str) -> str:
        """A version of a table."""
        return version

    def fingerprint(self, rules_version: str) -> str:
        """A version of the rules."""
        return self._hexadecimal("f", rules_version)

    def log(self, log_id: str) -> str:
        """The log."""
        return self._hexadecimal("l", log_id)

    def digest(self, digest: str) -> str:
        """A digest over what is in the log."""
        return self._hexadecimal("d", digest)

    def _name(self, kind: str, *names: str) -> str:
        """What is called by the last of these names, within the others."""
        return names[-1]

    def _hexadecimal(self, kind: str, digits: str) -> str:
        """What is called by digits that were drawn, or made from something else."""
        return digits


PLAIN = Words()


def short_name(text: str) -> str:
    """A name of three characters. Two that share one are only told apart less."""
    return hashlib.sha256(text.encode()).hexdigest()[:3]
