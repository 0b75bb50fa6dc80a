"""Whom to believe about a server's state: keys that the user has pinned, and what follows from what they sign. Pure."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import msgspec

from shelflife.client.asking import Question, Steps
from shelflife.client.entries import Knowledge, Root, Vouched, origin_of
from shelflife.client.reading import Contract, changes_in, read_signed_states, read_statement
from shelflife.client.steps import (
    Distrust,
    Movement,
    Told,
    Unmoved,
    Untold,
    Word,
    body_of,
    by_part,
    parts_of,
    what_moved,
)
from shelflife.client.strategies import Change
from shelflife.contract import BadMessage
from shelflife.contract.signed import (
    KEY,
    Endorsement,
    SignedText,
    Statement,
    endorsement_input,
    statement_input,
)
from shelflife.contract.versions import Versions

__all__ = ["IsSignedBy", "KeysWord", "Trust", "attestation"]

_SKEW_S = 300
"""By so much may the clocks of both sides differ."""

IsSignedBy = Callable[[str, bytes, str], bool]
"""Whether a message has this signature, in Base64, by this key."""


class Trust:
    """The keys that speak for servers, by origin; `is_signed_by` is the arithmetic. See `shelflife.integrations.ed25519.trust`."""

    def __init__(self, pins: Mapping[str, Collection[str]], is_signed_by: IsSignedBy) -> None:
        self._pins: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
        for origin, keys in pins.items():
            if isinstance(keys, str) or not keys or not all(map(KEY.fullmatch, keys)):
                raise ValueError("a pin is a list of keys, each spelled ed25519: and 32 bytes in Base64")
            self._pins[origin_of(origin)] |= frozenset(keys)
        self.is_signed_by = is_signed_by

    def pins_of(self, origin: str) -> frozenset[str]:
        """The keys that are pinned for an origin; none where it need not sign."""
        with suppress(ValueError):  # of what is no address; it cannot be asked either
            return self._pins.get(origin) or self._pins.get(origin_of(origin), frozenset())
        return frozenset()

    def word_about(self, root: Root, clock: Callable[[], float]) -> "KeysWord | None":
        """Whose word counts about a server, where keys are pinned for it."""
        return KeysWord(self, root, clock) if self.pins_of(root) else None


class KeysWord(Word):
    """The word of the keys that are pinned for one server, in the place of whatever else it says of its state."""

    is_its_own = False

    def __init__(self, trust: Trust, root: Root, clock: Callable[[], float]) -> None:
        self.trust = trust
        self.root = root
        self.clock = clock

    def lacks(self, knowledge: Knowledge) -> str | None:
        vouched, lack = knowledge.vouched, "no key that is pinned vouches for the state of the server"
        if vouched is None or self.clock() >= vouched.expires_at:
            return lack
        return None if vouched.key in _keys(self.trust, self.root, vouched).valid else lack

    def moved(
        self, knowledge: Knowledge, contract: Contract, *, is_doubted: bool, is_latest: bool
    ) -> Movement:
        is_settled = not is_doubted and self.lacks(knowledge) is None
        return Unmoved() if is_settled and _is_of(knowledge.vouched, contract) else Untold({})

    def asking(
        self, knowledge: Knowledge, contract: Contract, movement: Movement, *, is_latest: bool
    ) -> Steps[Told]:
        held = knowledge.vouched
        since = "" if held is None else f"?since={held.sequence}"
        body = body_of((yield Question(f"{self.root}/contract/signed{since}")))
        if body is None:
            raise Distrust("the server was asked for its signed state and gave none")
        found = attestation(body, held, knowledge.versions, self.trust, self.root, self.clock())
        movement = what_moved(knowledge, Contract(versions=found.versions), is_latest=True)
        if not _is_of(found.vouched, contract):
            late = "the response is of another state than the signed one: it is late, or forged"
            faults = contract.faults if contract.versions is None else (*contract.faults, late)
            contract = Contract(faults=faults)
        return Told(contract, movement, found.versions, found.changes, vouched=found.vouched)


def _is_of(vouched: Vouched | None, contract: Contract) -> bool:
    """Whether a response names the very state that a key vouches for."""
    said = contract.versions
    return vouched is not None and said is not None and vouched.digest == said.digest


class Attestation(NamedTuple):
    """A state that a pinned key, or one that such a key has named, vouches for."""

    vouched: Vouched
    versions: Versions
    changes: Mapping[str, Change]
    """What has moved since the state that was attested before, by part, as far as the key vouches for that too."""


class _Keys(NamedTuple):
    """Who may sign, who has been named to take somebody's place, and whose place was taken."""

    valid: frozenset[str]
    named: dict[str, str]
    """Who has named each."""

    retired: tuple[str, ...]


def attestation(
    body: bytes, held: Vouched | None, before: Versions, trust: Trust, origin: str, now: float
) -> Attestation:
    """What the answer of `GET /contract/signed` attests; `Distrust` when it attests nothing.

    `held` is what was attested before, `before` the versions of that state.
    """
    try:
        answer = read_signed_states(body)
        keys = _keys(trust, origin, held, answer.endorsements)
        statements = [_verified(one, keys, trust.is_signed_by) for one in answer.statements]
    except BadMessage as error:
        raise Distrust(str(error)) from None
    newest = statements[-1]
    _check_time(newest, now)
    changes = {} if held is None else _since(held, statements, before)
    expires_at = newest.expires_at
    if held is not None and held.sequence == newest.sequence:
        expires_at = max(expires_at, held.expires_at)  # the same may have been said before, for longer
    vouched = Vouched(
        lineage=newest.lineage,
        sequence=newest.sequence,
        digest=newest.versions.digest,
        key=answer.statements[-1].key,
        expires_at=expires_at,
        keys=keys.named,
        retired_keys=keys.retired,
    )
    return Attestation(vouched, newest.versions, changes)


def _keys(trust: Trust, origin: str, held: Vouched | None, endorsements: Sequence[Endorsement] = ()) -> _Keys:
    """In whatever order they are named. A key that was named by one that is not pinned any more counts no longer."""
    pins = trust.pins_of(origin)
    seen, retired = (held.keys, dict.fromkeys(held.retired_keys)) if held else ({}, {})
    claims = list(seen.items())
    for one in endorsements:
        message = endorsement_input(one.key, one.by)
        if not {one.key, one.by} & retired.keys() and trust.is_signed_by(one.by, message, one.signature):
            claims.append((one.key, one.by))
    named: dict[str, str] = {}
    for _ in claims:
        counting = {*pins, *named}
        named |= {key: by for key, by in claims if by in counting}
    retired |= dict.fromkeys(by for key, by in named.items() if key not in seen)
    return _Keys(frozenset({*pins, *named}.difference(retired)), named, tuple(retired))


def _verified(signed: SignedText, keys: _Keys, is_signed_by: IsSignedBy) -> Statement:
    if signed.key in keys.retired:
        raise Distrust("the state is signed by a key that has been replaced")
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


def _since(held: Vouched, statements: Sequence[Statement], before: Versions) -> dict[str, Change]:
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
        if newest.versions.digest != held.digest:
            raise Distrust(f"the server has signed two different states as number {held.sequence}")
        return {}
    number, digest, is_gapless = held.sequence, held.digest, held.digest == before.digest
    steps = [one for one in statements if one.sequence > held.sequence]
    for step in steps:
        is_next = step.sequence == number + 1
        is_going_on = step.previous == digest if is_next else step.sequence > number
        if step.lineage != held.lineage or not is_going_on:
            raise Distrust(f"state {step.sequence} does not go on from the state that was signed before it")
        number, digest, is_gapless = step.sequence, step.versions.digest, is_gapless and is_next
    return _moves(steps, before) if is_gapless else {}


def _moves(steps: Sequence[Statement], before: Versions) -> dict[str, Change]:
    """What has moved in all these steps, by part. What was changed and changed back counts as changed."""
    told: defaultdict[str, list[Change]] = defaultdict(list)
    versions = before
    for step in steps:
        changes = changes_in(step, versions)
        if changes is None:
            return {}
        for part, change in by_part(changes).items():
            told[part].append(change)
        versions = step.versions
    ends = parts_of(before), parts_of(versions)
    return {
        part: _joined(run)
        for part, run in told.items()
        if (run[0].since, run[-1].version) == tuple(end.get(part) for end in ends)
    }


def _joined(run: Sequence[Change]) -> Change:
    """Changes one after another as one."""
    are_consecutive = all(one.version == other.since for one, other in pairwise(run))
    is_known = are_consecutive and all(one.known for one in run)
    lists = {
        name: tuple(dict.fromkeys(each for one in run for each in getattr(one, name) or ()))
        for name in ("added", "removed", "changed", "affected_downstream")
        if hasattr(run[-1], name)
    }
    return msgspec.structs.replace(run[-1], since=run[0].since, known=is_known, **lists)
