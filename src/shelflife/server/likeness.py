"""Of a request, what a fix is about: by what it is like others, and what it has in the places that the fix sets. Nothing but digests."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from shelflife.contract import Suggestion
from shelflife.contract.when import WHOLE_REQUEST, field_path, value_at

__all__ = ["Digests", "Shape", "covers", "leaves_of", "shape_of", "taken_for", "way_of"]

_MOST_MEMBERS = 16
_WHOLE_FLOATS = 2**53
_PLAIN = {str, int, bool, type(None)}
_MEMBERS, _MEMBER, _WAY = ":", ".", "/"
_ABSENT = (None,)
"""To be there is all that is asked of a place for which no other value is ruled out."""

_encode = msgspec.json.Encoder(order="sorted", enc_hook=str).encode


class Shape(NamedTuple):
    """What is the same for all fixes of a kind. Places in a request are pointers, as in `when`."""

    policy: str
    type: str
    reads: tuple[str, ...]
    """The places by which requests are like each other: those that were read, and which the fix does not touch."""

    sets: tuple[str, ...]


def shape_of(policy: str, fix: Suggestion) -> tuple[Shape, tuple[str, ...]]:
    """The shape of a fix, and what it goes by and touches as well: for every other value there it may be told otherwise."""
    never = (path for path, values in (fix.unless or {}).items() if values != _ABSENT)
    sets = (path for path, _ in leaves_of(fix.parameters))
    return _shape(policy, fix.type, tuple(fix.when or ()), tuple(never), tuple(sets))


@lru_cache(1024)
def _shape(
    policy: str, type: str, when: tuple[str, ...], never: tuple[str, ...], sets: tuple[str, ...]
) -> tuple[Shape, tuple[str, ...]]:
    touched = {path for path in (*when, *never) if path in sets or _is_touched(path, sets)}
    reads = {*when, *never} - touched
    return Shape(policy, type, tuple(sorted(reads)), tuple(sorted(sets))), tuple(sorted(touched & {*when}))


def leaves_of(patch: Mapping[str, Any], parent: str = WHOLE_REQUEST) -> Iterator[tuple[str, Any]]:
    """What a fix sets, each value by its place: as RFC 7396 has it, objects are gone into and lists are not."""
    for name, value in patch.items():
        path = field_path(parent, name)
        if type(value) is dict and value:  # as it came from JSON
            yield from leaves_of(value, path)
        else:
            yield path, value


def _is_touched(path: str, sets: Iterable[str]) -> bool:
    """Whether to set these places changes what is read at another."""
    if path == WHOLE_REQUEST:
        return True
    return any(one.startswith(path + "/") or path.startswith(one + "/") for one in sets)


class Digests:
    """Makes digests with a key. Workers that share a log have the same one."""

    def __init__(self, key: bytes) -> None:
        self._key = hashlib.sha256(key).digest()

    def name(self, credentials: str) -> str:
        raw = credentials.encode(errors="surrogateescape")
        return hashlib.blake2b(raw, key=self._key, digest_size=6).hexdigest()

    def begun(self, operation: str, shape: Shape) -> Any:
        """What the digest of all requests begins with for which there may be such a fix."""
        return hashlib.blake2b(_encode((operation, shape)), key=self._key, digest_size=8)

    def like(self, begun: Any, shape: Shape, fields: Mapping[str, Any]) -> str:
        """The same for requests that are like each other."""
        digest = begun.copy()
        digest.update(_encode([value_at(fields, path) for path in shape.reads]))
        return str(digest.hexdigest())

    def carried(
        self, fields: Mapping[str, Any], sets: Iterable[str], told: Callable[[], Iterable[str]] = tuple
    ) -> str:
        """What a request has in the places that a fix sets, or the fix itself. A null is as good as none.

        The members of lists are told apart: who adds what a fix names to members of its own has followed it. If a request covers one of
        those that were `told`, it is that one, and else what it has.
        """
        values = [_plain(value_at(fields, path)) for path in sets]
        if list not in map(type, values):
            return self.of(values)
        lists = {path: value for path, value in zip(sets, values, strict=True) if type(value) is list}
        if not any(lists.values()):
            return self.of(values)
        rest = self.of([value if type(value) is not list else None for value in values])
        members = {self.of((path, member)) for path, value in lists.items() for member in value}
        carried = rest + _MEMBERS + _MEMBER.join(sorted(members))
        found = next((one for one in told() if covers(carried, one)), None)
        if found is None:
            return carried if len(members) <= _MOST_MEMBERS else self.of(values)
        return found

    def way(self, fields: Mapping[str, Any], replaced: tuple[str, ...], shape: Shape, carried: str) -> str:
        """What a request has carried and, where that does not say it, which fix it was told for that."""
        if replaced == shape.sets and _MEMBERS not in carried:
            return carried
        return carried + _WAY + self.of([_plain(value_at(fields, path)) for path in replaced])

    def of(self, value: Any) -> str:
        return hashlib.blake2b(_encode(value), key=self._key, digest_size=8).hexdigest()


def covers(carried: str, told: str) -> bool:
    """Whether whatever a request has carried holds all that was told."""
    if carried == told:
        return True
    rest, _, members = told.partition(_MEMBERS)
    if not members or not carried.startswith(rest + _MEMBERS):
        return False
    return {*members.split(_MEMBER)} <= {*carried.partition(_MEMBERS)[2].split(_MEMBER)}


def taken_for(name: str) -> str:
    """What was carried, of the name of a way."""
    return name.partition(_WAY)[0]


def way_of(name: str) -> str:
    """The same for all that were told the same fix for the same reason, of the name of a way."""
    return name.partition(_WAY)[2] or name


def _plain(value: Any) -> Any:
    """A value as JSON compares it: 100 and 100.0 are the same number, and a null member is none."""
    if type(value) in _PLAIN:  # as most are
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < _WHOLE_FLOATS else value
    if isinstance(value, Mapping):
        return {name: _plain(member) for name, member in value.items() if member is not None}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(member) for member in value]
    return value
