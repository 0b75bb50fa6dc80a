"""Disclosing less: a face that shows each client aliases of its own, and counts in place of lists."""

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from shelflife.contract import Rule, RulesChanges, Suggestion, TableChanges, split_node_id
from shelflife.contract.compact import Moved, MovedRules, MovedTable
from shelflife.contract.messages import Counts, TableVersion
from shelflife.contract.names import node_id
from shelflife.contract.signed import Statement
from shelflife.server.delta import Diff
from shelflife.server.errors import BadSetting
from shelflife.server.state import Face, State, StateVersions
from shelflife.server.tables import MINTED_VERSION, Table
from shelflife.server.wire import Level

__all__ = ["Aliases", "ClientFaces", "Disclosure"]

_SHORTEST_SECRET = 16
_DIGITS = 15
_MOST_FACES = 1024
_CREDENTIALS = ("authorization", "x-api-key")
_ANONYMOUS = ""
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True, slots=True)
class Disclosure:
    """What clients are shown: aliases of names and keys, different for each of them, and counts in place of
    diffs."""

    secret: str | bytes = field(repr=False)
    """What all aliases are made from, 16 bytes at least. The same secret gives the same aliases, after a
    restart and on every replica."""

    client: Callable[[Mapping[str, str]], str] | None = None
    """Names the client from the headers of its request (by lower-case name), by something that the request
    proves. By default it is a digest of the `Authorization` or `X-API-Key` header. All who send neither are
    one client."""

    sees_diffs: Callable[[str], bool] | None = None
    """Whether a client is told which rows changed, in aliases. It can then keep fixes that rest on other
    rows. By default no client is."""

    def __post_init__(self) -> None:
        given: object = self.secret
        if not isinstance(given, str | bytes) or len(self._raw_secret) < _SHORTEST_SECRET:
            raise BadSetting(f"the secret of a disclosure has at least {_SHORTEST_SECRET} bytes")

    def aliases(self, client: str) -> "Aliases":
        """What things are called for a client. An operator can look up here what a client means."""
        return Aliases(hmac.digest(self._raw_secret, client.encode(errors="surrogateescape"), "sha256"))

    @property
    def _raw_secret(self) -> bytes:
        return self.secret.encode() if isinstance(self.secret, str) else self.secret


class ClientFaces:
    """The faces of the current state, one for each client. Those of an older state are dropped."""

    def __init__(self, disclosure: Disclosure, level: Level) -> None:
        self._disclosure = disclosure
        self._level = level
        self._client = disclosure.client or _by_credentials
        self._sees_diffs = disclosure.sees_diffs or _nobody
        self._vary = ", ".join(_CREDENTIALS) if disclosure.client is None else "*"
        self._faces: tuple[State | None, dict[tuple[str, bool], Face]] = (None, {})

    def face(self, state: State, headers: Mapping[str, str]) -> Face:
        """What a state shows to the client whose request has these headers."""
        client = self._client(headers)
        sees_diffs = self._sees_diffs(client)
        shown_state, faces = self._faces
        if shown_state is not state:
            faces = {}
            self._faces = state, faces
        face = faces.get((client, sees_diffs))
        if face is None:
            if len(faces) >= _MOST_FACES:
                faces.clear()
            aliases = self._disclosure.aliases(client)
            face = faces[client, sees_diffs] = _AliasedFace(
                state, self._level, aliases, sees_diffs, self._vary
            )
        return face


def _by_credentials(headers: Mapping[str, str]) -> str:
    for name in _CREDENTIALS:
        if credentials := headers.get(name):
            return hashlib.sha256(f"{name}: {credentials}".encode(errors="surrogateescape")).hexdigest()
    return _ANONYMOUS


def _nobody(client: str) -> bool:
    return False


class Aliases:
    """What tables, rows and rules are called for one client. An alias never changes, and does not tell the
    name."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        self._key = key

    def table(self, name: str) -> str:
        """The alias of a table."""
        return self._alias("t", name)

    def key(self, table: str, key: str) -> str:
        """The alias of a row's key in its table."""
        return self._alias("k", table, key)

    def row(self, node: str) -> str:
        """`table:key` in aliases, or a bare table."""
        table, key = split_node_id(node)
        return self.table(table) if key is None else node_id(self.table(table), self.key(table, key))

    def rule_id(self, rule: str) -> str:
        """`table:relation` in aliases."""
        table, _, relation = rule.partition(":")
        return node_id(self.table(table), self._alias("r", table, relation))

    def rule(self, rule: Rule) -> Rule:
        """A rule in aliases."""
        return Rule(
            from_table=self.table(rule.from_table),
            to_table=self.table(rule.to_table),
            relation=self._alias("r", rule.from_table, rule.relation),
            via=None if rule.via is None else self._alias("c", rule.from_table, rule.via),
        )

    def version(self, table: str, version: str) -> str:
        """A table's version. Where it ends in a digest, it gets another one: from the real digest the rows
        could be guessed."""
        minted = MINTED_VERSION.match(version)
        return version if minted is None else f"{minted[1]}-{self._digest('v', table, version).hex()[:8]}"

    def fingerprint(self, rules_version: str) -> str:
        """Another fingerprint of the rules: from the real one the names could be guessed."""
        return self._digest("f", rules_version).hex()[: len(rules_version)]

    def lineage(self, lineage: str) -> str:
        """Another name for a lineage, because no other client is shown the same statements."""
        return self._digest("l", lineage).hex()[: len(lineage)]

    def _alias(self, kind: str, *names: str) -> str:
        return kind + self._digest(kind, *names).hex()[:_DIGITS]

    def _digest(self, kind: str, *names: str) -> bytes:
        return hmac.digest(self._key, _encode((kind, *names)), "sha256")


class _AliasedFace(Face):
    """A state in the words of one client."""

    __slots__ = ("_alias_by_table", "_aliases", "_sees_diffs", "_table_by_alias", "_worded_versions")

    def __init__(self, state: State, level: Level, aliases: Aliases, sees_diffs: bool, vary: str) -> None:
        self._aliases = aliases
        self._sees_diffs = sees_diffs
        by_alias = {aliases.table(name): table for name, table in state.tables.items()}
        self._table_by_alias = {alias: by_alias[alias] for alias in sorted(by_alias)}
        """In the order of the aliases: that of the tables would tell how they were declared."""
        self._alias_by_table = {table.name: alias for alias, table in self._table_by_alias.items()}
        self._worded_versions: dict[tuple[str, str], str] = {}
        super().__init__(state, level, vary)

    def suggestion(self, suggestion: Suggestion) -> Suggestion:
        aliases, named = self._aliases, self._alias_by_table
        return msgspec.structs.replace(
            suggestion,
            table=named[suggestion.table] if suggestion.table else UNSET,
            tables=tuple(
                TableVersion(table=named[one.table], version=self._worded_version(one.table, one.version))
                for one in suggestion.tables
            )
            if suggestion.tables
            else suggestion.tables,
            rows=tuple(map(aliases.row, suggestion.rows)) if suggestion.rows else suggestion.rows,
            rules=tuple(map(aliases.rule_id, suggestion.rules)) if suggestion.rules else suggestion.rules,
        )

    def statement(self, statement: Statement, before: Statement | None) -> Statement:
        return msgspec.structs.replace(
            self._without_history(statement),
            lineage=self._aliases.lineage(statement.lineage),
            previous=None if before is None else self._without_history(before).versions.digest,
            moved=None if statement.moved is None else self._worded_moves(statement.moved),
        )

    def _without_history(self, statement: Statement) -> Statement:
        """The state that a statement is about, in the client's words. It may have had tables that are gone
        now."""
        rules_version, aliases = statement.rules_version, self._aliases
        return msgspec.structs.replace(
            statement,
            table_versions={
                aliases.table(name): aliases.version(name, version)
                for name, version in statement.table_versions.items()
            },
            rules_version=None if rules_version is None else aliases.fingerprint(rules_version),
        )

    def _worded_moves(self, moved: Moved) -> Moved:
        tables = {
            self._aliases.table(name): self._worded_move(name, one) for name, one in moved.tables.items()
        }
        rules = moved.rules
        if rules is None:
            return Moved(tables=tables)
        added, removed = self._aliased(rules.added), self._aliased(rules.removed)
        version = self._aliases.fingerprint(rules.version)
        if self._sees_diffs or not (added or removed):
            return Moved(
                tables=tables,
                rules=MovedRules(version=version, known=rules.known, added=added, removed=removed),
            )
        counts = Counts(added=len(added), removed=len(removed))
        return Moved(tables=tables, rules=MovedRules(version=version, known=False, counts=counts))

    def _worded_move(self, name: str, moved: MovedTable) -> MovedTable:
        aliases = self._aliases
        version = None if moved.version is None else aliases.version(name, moved.version)
        counts = Counts(added=len(moved.added), removed=len(moved.removed), changed=len(moved.changed))
        if not self._sees_diffs and (counts.added or counts.removed or counts.changed):
            return MovedTable(version=version, known=False, counts=counts)

        def aliased(keys: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(aliases.key(name, key) for key in keys))

        return MovedTable(
            version=version,
            known=moved.known,
            added=aliased(moved.added),
            removed=aliased(moved.removed),
            changed=aliased(moved.changed),
            affected_downstream=tuple(sorted(map(aliases.row, moved.affected_downstream))),
        )

    def _worded(self, versions: StateVersions) -> StateVersions:
        worded = {
            alias: self._worded_version(name, versions.tables[name])
            for name, alias in self._alias_by_table.items()
            if name in versions.tables
        }
        return StateVersions(worded, self._aliases.fingerprint(versions.rules))

    def _worded_version(self, table: str, version: str) -> str:
        """A version in the client's words. They are kept, because consecutive states share most of their
        versions."""
        worded = self._worded_versions.get((table, version))
        if worded is None:
            worded = self._worded_versions[table, version] = self._aliases.version(table, version)
        return worded

    def _table_changes(self, name: str, since: str) -> TableChanges:
        found = None if self._sees_diffs else self._plain_diff_since(name, since)
        if found is None or not found[0]:
            return super()._table_changes(name, since)
        diff, _ = found
        counts = Counts(added=len(diff.added), removed=len(diff.removed), changed=len(diff.changed))
        return TableChanges(since=since, version=self._versions.tables[name], known=False, counts=counts)

    def _rules_changes(self, since: str) -> RulesChanges:
        told = super()._rules_changes(since)
        if self._sees_diffs or not (told.added or told.removed):
            return told
        counts = Counts(added=len(told.added or ()), removed=len(told.removed or ()))
        return RulesChanges(since=since, version=told.version, known=False, counts=counts)

    def _diff_since(self, name: str, since: str) -> tuple[Diff, tuple[str, ...]] | None:
        found = self._plain_diff_since(name, since)
        if found is None:
            return None
        diff, affected = found
        table = self._table_by_alias[name].name

        def aliased(keys: Iterable[str]) -> tuple[str, ...]:
            return tuple(sorted(self._aliases.key(table, key) for key in keys))

        shown = Diff(added=aliased(diff.added), removed=aliased(diff.removed), changed=aliased(diff.changed))
        return shown, tuple(sorted(map(self._aliases.row, affected)))

    def _plain_diff_since(self, name: str, since: str) -> tuple[Diff, tuple[str, ...]] | None:
        """What changed, in the server's words, since a version that is in the client's."""
        table = self._table_by_alias.get(name)
        if table is None:
            return None
        for version in _newest_first(table):
            if self._worded_version(table.name, version) == since:
                return super()._diff_since(table.name, version)
        return None

    def _rules_since(self, since: str) -> tuple[tuple[Rule, ...], tuple[Rule, ...]] | None:
        for older in (self._rules, *reversed(self._older_rules)):
            if self._aliases.fingerprint(older.version) == since:
                found = super()._rules_since(older.version)
                return None if found is None else (self._aliased(found[0]), self._aliased(found[1]))
        return None

    def _aliased(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        return tuple(sorted(map(self._aliases.rule, rules), key=lambda rule: rule.canonical))


def _newest_first(table: Table) -> Iterable[str]:
    yield table.version
    for step in reversed(table.history):
        yield step.old_version
