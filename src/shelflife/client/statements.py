"""What a server has signed, once it is checked, and before anything of it is verified."""

import re

from shelflife.client.reading import checked_account, decoded
from shelflife.contract.errors import BadMessage
from shelflife.contract.signed import KEY, MOST_ENDORSEMENTS, SignedStatement, Statement

__all__ = ["read_signed_statement", "read_statement"]

_SIGNATURE = re.compile(r"[A-Za-z0-9+/]{86}==")
_LOG = re.compile(r"[!-~]{1,128}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def read_signed_statement(body: bytes) -> SignedStatement:
    """The answer of `GET /contract/signed`, of which nothing has been verified yet; `BadMessage` when it is malformed."""
    answer = decoded(body, SignedStatement, "the signed statement")
    if len(answer.endorsements) > MOST_ENDORSEMENTS:
        raise BadMessage("the signed statement has too many endorsements")
    keys = (answer.key, *(key for one in answer.endorsements for key in (one.key, one.by)))
    signatures = (answer.signature, *(one.signature for one in answer.endorsements))
    if not all(map(KEY.fullmatch, keys)) or not all(map(_SIGNATURE.fullmatch, signatures)):
        raise BadMessage("the signed statement has a key or a signature that is none")
    return answer


def read_statement(text: str) -> Statement:
    """What a text says that was signed; `BadMessage` when it is no statement."""
    statement = decoded(text.encode(), Statement, "the statement")
    if not (_LOG.fullmatch(statement.log) and _DIGEST.fullmatch(statement.digest)):
        raise BadMessage("the statement names no log, or has no digest")
    return checked_account(statement, len(text))
