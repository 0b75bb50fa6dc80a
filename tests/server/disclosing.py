"""Registries whose states are shown in aliases, and what is asked of them."""

import msgspec

from shelflife.contract import Rule
from shelflife.contract.positions import Account
from shelflife.contract.preconditions import Precondition
from shelflife.server import Disclosure, Registry
from shelflife.server.wire import Level

SECRET = "a secret of the provider"
TIE = Rule(from_table="codes", to_table="promos", relation="needs", via="code")
LEVEL = Level.FINGERPRINT
PRINTS = {"code_fits": "1", "plan_is_open": "1"}
"""The fingerprints of policies."""


def registry(**versions):
    content = {"codes": {"growth": {"code": "SUMMER"}, "scale": {"code": "SCALE"}}, "promos": {"SUMMER": {}}}
    return Registry(content, [TIE], versions=versions)


def seen_by_all(secret=SECRET):
    return Disclosure(secret=secret, client=lambda headers: headers["client"], sees_diffs=lambda client: True)


def seen_by_nobody():
    return Disclosure(secret=SECRET, client=lambda headers: headers["client"])


def shown_by(reg, disclosure, client="ada", level=LEVEL):
    return disclosure.face(reg.state, level, {"client": client})


def versions_in(face):
    return face.versions.table_versions


def told_at(face, named):
    """What a response says of its position, where that is not just the one that was named."""
    at = msgspec.json.decode(b"{" + face.stamp_at(named, with_versions=False).members + b"}")["at"]
    return Account(to=at) if isinstance(at, str) else msgspec.convert(at, Account)


def meets(face, first, cells=None, rules=(), policies=()):
    """Whether a request is carried out whose values rest on these cells and rules since another face."""
    return face.meets(
        Precondition(at=str(first.position), cells=cells, rules=tuple(rules), policies=tuple(policies))
    )
