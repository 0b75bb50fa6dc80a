"""Asking a server for its signed state, and what follows for a response."""

from collections.abc import Generator

from msgspec import UNSET

from shelflife.client.decisions import Told, has_moved
from shelflife.client.entries import Knowledge
from shelflife.client.questions import Fetched
from shelflife.client.trust import Distrust, Trust, attestation
from shelflife.contract import ContractState
from shelflife.contract.compact import Versions
from shelflife.contract.reading import Contract
from shelflife.contract.signed import digest_of_state

__all__ = ["asking_keys", "is_attested", "is_of_the_attested_state", "is_of_the_known_state"]

_OK = 200


def is_attested(knowledge: Knowledge, trust: Trust, origin: str, now: float) -> bool:
    """Whether a key that still counts still vouches for the state that is known."""
    attested = knowledge.attested
    return attested is not None and now < attested.expires_at and trust.counts(origin, attested)


def is_of_the_attested_state(
    knowledge: Knowledge, contract: Contract, trust: Trust, origin: str, now: float
) -> bool:
    """Whether a response is of the very state that such a key vouches for."""
    return (
        knowledge.attested is not None
        and is_attested(knowledge, trust, origin, now)
        and contract.table_versions is not None
        and knowledge.attested.digest == digest_of_state(contract.table_versions, contract.rules_version)
    )


def is_of_the_known_state(told: Told) -> bool:
    """Whether a response names its state, and where a key was asked about it, the one that the key vouches for."""
    said = told.contract.table_versions
    if said is None:
        return False
    return told.attested is None or told.attested.digest == digest_of_state(said, told.contract.rules_version)


def asking_keys(
    origin: str, knowledge: Knowledge, contract: Contract, trust: Trust, now: float
) -> Generator[str, Fetched | None, Told]:
    """What the server has said, with its signed state in the place of whatever else it says of it; `Distrust` when it has none to be believed."""
    held = knowledge.attested
    since = "" if held is None else f"?since={held.sequence}"
    fetched = yield f"{origin}/contract/signed{since}"
    if fetched is None or fetched.status != _OK:
        raise Distrust("the server was asked for its signed state and gave none")
    before = Versions(knowledge.table_versions, knowledge.rules_version)
    found = attestation(fetched.body, held, before, trust, origin, now)
    state = ContractState(
        table_versions=dict(found.versions.tables), rules_version=found.versions.rules or UNSET
    )
    changes = found.changes
    return Told(
        contract,
        has_moved(knowledge, state),
        state,
        tables=changes.tables if changes else {},
        rules=(changes.rules or None) if changes else None,
        attested=found.attested,
    )
