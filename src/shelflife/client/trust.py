"""Whom to believe about a server's state: keys that the user has pinned, and what follows from what they sign. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from shelflife.client.entries import Attested
from shelflife.client.origins import origin_of
from shelflife.contract import BadMessage, Changes, RulesChanges, TableChanges
from shelflife.contract.compact import Versions
from shelflife.contract.reading import changes_in, read_signed_states, read_statement
from shelflife.contract.signed import (
    KEY,
    Endorsement,
    SignedText,
    Statement,
    digest_of_state,
    endorsement_input,
    statement_input,
)
from shelflife.errors import ShelflifeError

__all__ = ["Attestation", "Distrust", "IsSignedBy", "Trust", "attestation"]

_SKEW_S = 300
"""By so much may the clocks of both sides differ."""

IsSignedBy = Callable[[str, bytes, str], bool]
"""Whether a message has this signature, in Base64, by this key."""


class Distrust(ShelflifeError):
    """What a server says of its state is not to be believed: one sentence."""


class Trust:
    """The keys that speak for servers, by origin; `is_signed_by` is the arithmetic. See `shelflife.integrations.ed25519.trust`."""

    def __init__(self, pins: Mapping[str, Collection[str]], is_signed_by: IsSignedBy) -> None:
        self._pins: dict[str, frozenset[str]] = {}
        for origin, keys in pins.items():
            if isinstance(keys, str) or not keys or not all(map(KEY.fullmatch, keys)):
                raise ValueError("a pin is a list of keys, each spelled ed25519: and 32 bytes in Base64")
            spelled = _spelled(origin)
            self._pins[spelled] = self._pins.get(spelled, frozenset()).union(keys)
        self.is_signed_by = is_signed_by

    def pins_of(self, origin: str) -> frozenset[str]:
        """The keys that are pinned for an origin; none where it need not sign."""
        try:
            return self._pins.get(origin) or self._pins.get(origin_of(origin), frozenset())
        except ValueError:
            return frozenset()  # it cannot be asked either

    def counts(self, origin: str, attested: Attested) -> bool:
        """Whether the key that has vouched for a state may still do so."""
        return attested.key in _keys(self.pins_of(origin), attested, (), self.is_signed_by).valid


def _spelled(origin: str) -> str:
    try:
        parts = urlsplit(origin)
        if parts.scheme in ("http", "https") and parts.hostname:
            return origin_of(origin)
    except ValueError:  # a port that is none
        pass
    raise ValueError(
        f"{origin!r} is no origin: write it as https://api.example, with the port where it is another"
    )


class Attestation(NamedTuple):
    """A state that a pinned key, or one that such a key has named, vouches for."""

    attested: Attested
    versions: Versions
    changes: Changes | None
    """What has moved since the state that was attested before, as far as the key vouches for that too."""


class _Keys(NamedTuple):
    """Who may sign, who has been named to take somebody's place, and whose place was taken."""

    valid: frozenset[str]
    named: dict[str, str]
    """Who has named each."""

    retired: tuple[str, ...]


def attestation(
    body: bytes, held: Attested | None, before: Versions, trust: Trust, origin: str, now: float
) -> Attestation:
    """What the answer of `GET /contract/signed` attests; `Distrust` when it attests nothing.

    `held` is what was attested before, `before` the versions of that state.
    """
    try:
        answer = read_signed_states(body)
        keys = _keys(trust.pins_of(origin), held, answer.endorsements, trust.is_signed_by)
        statements = [_verified(one, keys, trust.is_signed_by) for one in answer.statements]
    except BadMessage as error:
        raise Distrust(str(error)) from None
    newest = statements[-1]
    _check_time(newest, now)
    changes = None if held is None else _since(held, statements, before)
    return Attestation(
        Attested(
            lineage=newest.lineage,
            sequence=newest.sequence,
            digest=newest.digest,
            key=answer.statements[-1].key,
            expires_at=_expiry(newest, held),
            keys=keys.named,
            retired_keys=keys.retired,
        ),
        Versions(newest.table_versions, newest.rules_version),
        changes,
    )


def _keys(
    pins: frozenset[str], held: Attested | None, endorsements: Sequence[Endorsement], is_signed_by: IsSignedBy
) -> _Keys:
    """In whatever order they are named. A key that was named by one that is not pinned any more counts no longer."""
    named: dict[str, str] = {}
    retired = dict.fromkeys(held.retired_keys if held else ())
    seen = held.keys if held else {}
    waiting = [
        one
        for one in endorsements
        if one.by not in retired
        and one.key not in retired
        and is_signed_by(one.by, endorsement_input(one.key, one.by), one.signature)
    ]
    for _ in range(len(seen) + len(waiting)):
        counting = {*pins, *named}
        named |= {key: by for key, by in seen.items() if by in counting}
        named |= {one.key: one.by for one in waiting if one.by in counting}
    retired |= dict.fromkeys(by for key, by in named.items() if key not in seen)
    return _Keys(frozenset({*pins, *named}.difference(retired)), named, tuple(retired))


def _verified(signed: SignedText, keys: _Keys, is_signed_by: IsSignedBy) -> Statement:
    if signed.key in keys.retired:
        raise Distrust("the state is signed by a key that another one has taken the place of")
    if signed.key not in keys.valid:
        raise Distrust("the state is signed by a key that is not pinned")
    if not is_signed_by(signed.key, statement_input(signed.statement), signed.signature):
        raise Distrust("the signature of the state is forged")
    return read_statement(signed.statement)


def _check_time(newest: Statement, now: float) -> None:
    if newest.expires_at <= now:
        raise Distrust(
            "the signed state has expired: somebody holds newer ones back, or one of the clocks is wrong"
        )
    if newest.made_at > now + _SKEW_S:
        raise Distrust("the signed state is of the future: one of the clocks is wrong")


def _expiry(newest: Statement, held: Attested | None) -> int:
    """Until when the state is vouched for: the same may have been said before, for longer."""
    is_the_same = held is not None and held.sequence == newest.sequence
    return max(newest.expires_at, held.expires_at) if held and is_the_same else newest.expires_at


def _since(held: Attested, statements: Sequence[Statement], before: Versions) -> Changes | None:
    """What has moved since what was attested before; `Distrust` when the newest does not go on from that."""
    newest = statements[-1]
    if newest.lineage != held.lineage:
        raise Distrust(
            "the server has begun another lineage of states; forget all of this origin to begin anew with it"
        )
    if newest.sequence < held.sequence:
        raise Distrust(
            f"state {newest.sequence} was signed before state {held.sequence}, which has been seen: it is replayed, or the server was rolled back"
        )
    if newest.sequence == held.sequence:
        if newest.digest != held.digest:
            raise Distrust(f"the server has signed two different states as number {held.sequence}")
        return None
    steps = [one for one in statements if one.sequence > held.sequence]
    digests = [held.digest, *(one.digest for one in steps)]
    sequences = [held.sequence, *(one.sequence for one in steps)]
    for step, number, digest in zip(steps, sequences, digests, strict=False):
        is_going_on = step.sequence > number + 1 or (step.sequence == number + 1 and step.previous == digest)
        if step.lineage != held.lineage or not is_going_on:
            raise Distrust(f"state {step.sequence} does not go on from the state that was signed before it")
    is_gapless = all(later == earlier + 1 for earlier, later in pairwise(sequences))
    return _moves(steps, before) if is_gapless and held.digest == digest_of_state(*before) else None


def _moves(steps: Sequence[Statement], before: Versions) -> Changes | None:
    told: list[Changes] = []
    first = before
    for step in steps:
        changes = changes_in(step, before)
        if changes is None:
            return None
        told.append(changes)
        before = Versions(step.table_versions, step.rules_version)
    joined = reduce(_joined, told)
    return msgspec.structs.replace(
        joined,
        tables={
            name: table
            for name, table in joined.tables.items()
            if (table.since, table.version) == (first.tables.get(name), before.tables.get(name))
        },
    )


def _joined(first: Changes, second: Changes) -> Changes:
    """One after another. What was changed and changed back counts as changed."""
    tables = {**first.tables, **second.tables}
    for name in first.tables.keys() & second.tables.keys():
        one, other = first.tables[name], second.tables[name]
        tables[name] = (
            TableChanges(
                since=one.since,
                version=other.version,
                known=True,
                added=_both(one.added, other.added),
                removed=_both(one.removed, other.removed),
                changed=_both(one.changed, other.changed),
                affected_downstream=_both(one.affected_downstream, other.affected_downstream),
            )
            if one.known and other.known and one.version == other.since
            else TableChanges(since=one.since, version=other.version, known=False)
        )
    rules = second.rules or first.rules
    if first.rules and second.rules:
        rules = RulesChanges(
            since=first.rules.since,
            version=second.rules.version,
            known=first.rules.known and second.rules.known,
            added=(*(first.rules.added or ()), *(second.rules.added or ())),
            removed=(*(first.rules.removed or ()), *(second.rules.removed or ())),
        )
    return msgspec.structs.replace(second, tables=tables, rules=rules)


def _both(
    one: tuple[str, ...] | msgspec.UnsetType, other: tuple[str, ...] | msgspec.UnsetType
) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*(one or ()), *(other or ()))))
