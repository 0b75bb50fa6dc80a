"""Whom to believe about a server's state: keys that the user has pinned, and what follows from what they sign. Pure."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from shelflife.client.asking import Reply
from shelflife.client.entries import Knowledge, Root, Vouched, is_below, origin_of
from shelflife.client.positions import Adopted, Current, Doubted, Forward, Place, Verdict, judged
from shelflife.client.reading import Contract
from shelflife.client.statements import read_signed_statement, read_statement
from shelflife.client.steps import Answer, Distrust, Movement, Word, body_of
from shelflife.contract import BadMessage
from shelflife.contract.names import shown
from shelflife.contract.positions import Account, Named, Position
from shelflife.contract.signed import (
    KEY,
    Endorsement,
    SignedStatement,
    Statement,
    endorsement_input,
    statement_input,
)

__all__ = ["IsSignedBy", "KeysWord", "Trust", "attestation"]

_SKEW_S = 300
"""By so much may the clocks of both sides differ."""

IsSignedBy = Callable[[str, bytes, str], bool]
"""Whether a message has this signature, in Base64, by this key."""


class Trust:
    """The keys that speak for servers, each by its address; `is_signed_by` is the arithmetic.

    See `shelflife.integrations.ed25519.trust`.
    """

    def __init__(self, pins: Mapping[str, Collection[str]], is_signed_by: IsSignedBy) -> None:
        self._pins: dict[Root, frozenset[str]] = {}
        for address, keys in pins.items():
            if isinstance(keys, str) or not keys or not all(map(KEY.fullmatch, keys)):
                raise ValueError("a pin is a list of keys, each spelled ed25519: and 32 bytes in Base64")
            root = _spelled(address)
            self._pins[root] = self._pins.get(root, frozenset()) | frozenset(keys)
        self.is_signed_by = is_signed_by

    def pins_of(self, root: str) -> frozenset[str]:
        """The keys that are pinned for a root, or for what it is below; none where it need not sign."""
        with suppress(ValueError):  # of what is no address; it cannot be asked either
            return self._pins.get(self.root_of(origin_of(root), urlsplit(root).path), frozenset())
        return frozenset()

    def root_of(self, origin: Root, path: str) -> Root:
        """Where keys are pinned that hold for a path of an origin: as deep as possible, at least the origin itself."""
        pinned = (root.removeprefix(origin) for root in self._pins if root.startswith(origin))
        return origin + max((one for one in pinned if is_below(path, one)), key=len, default="")

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
        if vouched is None or vouched.at != knowledge.place.at or self.clock() >= vouched.expires_at:
            return lack
        keys = _keys(self.trust, self.root, vouched)
        return None if vouched.key in keys.valid and keys.led_to(vouched) else lack

    def judged(
        self, knowledge: Knowledge, sent: str | None, said: Account, answer: Answer | None
    ) -> tuple[Verdict, Place]:
        """Only a signed answer moves anything. A reply may be of the state that a key vouches for; else it is one to ask about."""
        if answer is not None:
            verdict, place = judged(knowledge.place, sent, said)
            # What was known may have come from a key that is no longer pinned: whoever had it could say that nothing has moved.
            # Or from somebody who has no keys, and so asks nobody for them.
            vouched = knowledge.vouched
            is_by_keys = (
                vouched is not None
                and vouched.at == knowledge.place.at
                and _keys(self.trust, self.root, vouched).led_to(vouched)
            )
            if isinstance(verdict, Current | Forward) and not is_by_keys:
                return Adopted(), place
            return verdict, place
        if self.lacks(knowledge) is None and said.to == knowledge.place.at:
            return Current(), knowledge.place
        return Doubted(), knowledge.place.doubted()

    def question(self, named: Named) -> str:
        return f"{self.root}/contract/signed?from={quote(named.base)}&nonce={named.nonce}"

    def answer(self, reply: Reply | None, named: Named, knowledge: Knowledge) -> Answer:
        body = body_of(reply)
        if body is None:
            raise Distrust("the server was asked for its signed state and gave none")
        return attestation(body, named, knowledge.vouched, self.trust, self.root, self.clock())

    def moved(
        self, knowledge: Knowledge, contract: Contract, *, is_doubted: bool, is_latest: bool
    ) -> Movement:
        raise Distrust("the server names no position in its log, and only that can be signed")


class _Keys(NamedTuple):
    """Who may sign, who has been named to take somebody's place, and whose place was taken."""

    pins: frozenset[str]
    named: dict[str, str]
    """Who has named each."""

    retired: tuple[str, ...]

    @property
    def valid(self) -> frozenset[str]:
        return frozenset({*self.pins, *self.named}.difference(self.retired))

    def led_to(self, vouched: Vouched) -> bool:
        """Whether none but these have ever vouched for what was known up to there. To have been replaced since takes nothing from that."""
        return {vouched.key, *vouched.rests_on} <= {*self.pins, *self.named}


def attestation(
    body: bytes, named: Named, held: Vouched | None, trust: Trust, root: Root, now: float
) -> Answer:
    """What the answer of `GET /contract/signed` attests; `Distrust` when it attests nothing.

    `named` is what was asked, `held` what was attested before.
    """
    try:
        signed = read_signed_statement(body)
        keys = _keys(trust, root, held, signed.endorsements)
        statement = _verified(signed, keys, trust.is_signed_by)
    except BadMessage as error:
        raise Distrust(str(error)) from None
    if statement.nonce != named.nonce or statement.since not in ("", named.base):
        raise Distrust("the signed state is the answer to another question: it is replayed")
    if not _is_of(statement.root, root):
        raise Distrust(
            f"the signed state is of a contract at {shown(statement.root or '/')}, not of this one"
        )
    _check_time(statement, now)
    rests_on: tuple[str, ...] = ()
    if held is not None and keys.led_to(held):
        _check_order(held, named, statement)
        rests_on = tuple(sorted({held.key, *held.rests_on} - {signed.key}))
    vouched = Vouched(
        log=statement.log,
        at=statement.to,
        digest=statement.digest,
        key=signed.key,
        rests_on=rests_on,
        expires_at=statement.expires_at,
        keys=keys.named,
        retired_keys=keys.retired,
    )
    return Answer(statement, vouched, held)


def _spelled(address: str) -> Root:
    """An address as roots are spelled."""
    return origin_of(address) + urlsplit(address).path.rstrip("/")


def _is_of(told: str, root: Root) -> bool:
    """Whether a statement that tells where its contract lives, a path or a whole address, is of this root."""
    with suppress(ValueError):  # of what is neither
        return _spelled(told if "://" in told else origin_of(root) + told) == _spelled(root)
    return False


def _keys(trust: Trust, root: Root, held: Vouched | None, endorsements: Sequence[Endorsement] = ()) -> _Keys:
    """In whatever order they are named. A key that was named by one that is not pinned any more counts no longer."""
    pins = trust.pins_of(root)
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
    return _Keys(pins, named, tuple(retired))


def _verified(signed: SignedStatement, keys: _Keys, is_signed_by: IsSignedBy) -> Statement:
    if signed.key in keys.retired:
        raise Distrust("the state is signed by a key that has been replaced")
    if signed.key not in keys.valid:
        raise Distrust("the state is signed by a key that is not pinned")
    if not is_signed_by(signed.key, statement_input(signed.statement), signed.signature):
        raise Distrust("the signature of the state is forged")
    return read_statement(signed.statement)


def _check_time(statement: Statement, now: float) -> None:
    if statement.expires_at <= now:
        raise Distrust("the signed state has expired: one of the clocks is wrong")
    if statement.made_at > now + _SKEW_S:
        raise Distrust("the signed state is of the future: one of the clocks is wrong")


def _check_order(held: Vouched, named: Named, statement: Statement) -> None:
    """`Distrust` unless a statement is of the same log as the one before, and no older."""
    before, now = Position.from_text(held.at), Position.from_text(statement.to)
    if statement.log != held.log:
        raise Distrust("the server has begun another log; forget all of this root to begin anew with it")
    if before is None or now is None or now.number < before.number:
        raise Distrust(
            f"the log of the server ends before {held.at}, which has been seen: it was rolled back"
        )
    if now.number == before.number and statement.digest != held.digest:
        raise Distrust(f"the server has signed two different states as number {now.number}")
    if named.position == before and statement.unknown in ("ahead", "foreign"):
        raise Distrust(f"the log of the server does not go on from {held.at}, for which it has vouched")
