"""What a memory holds of a server: entries, and the versions at which they are good."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec

from shelflife.client.positions import Place
from shelflife.contract import Suggestion
from shelflife.contract.cells import Cells, rows_of_cells
from shelflife.contract.names import shown
from shelflife.contract.versions import Versions
from shelflife.contract.when import WHOLE_REQUEST, as_read, mismatch, read_at, value_at
from shelflife.histories import Histories

try:  # as `hashlib` has it, which brings OpenSSL along: a twentieth of the import of the client
    from _blake2 import blake2b
except ImportError:  # not every Python has it apart
    from hashlib import blake2b

__all__ = [
    "Condition",
    "Entry",
    "Grounds",
    "Knowledge",
    "Root",
    "Shape",
    "Vouched",
    "below_root",
    "blake2b",
    "digest_in_bytes",
    "digest_of",
    "is_below",
    "key_as_read",
    "origin_of",
    "place_at",
    "place_of",
    "root_at",
    "roots_in",
]

Root = str
"""Where a contract lives: an origin as `origin_of` spells it, and a path that is empty or begins with a slash and does not end in one."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_WITHOUT_PORT = ("mcp", "tool")
"""What begins so is a name that the user has given to tools, and no address: it is as it is called."""

Shape = tuple[str, ...]
"""The request fields on whose values an entry depends, sorted: what its `when` names."""

_encode = msgspec.json.Encoder(order="sorted").encode
_encode_as_read = msgspec.json.Encoder().encode


def origin_of(url: str) -> str:
    """`scheme://host:port` of a URL, in lower case and always with the port: `https://api.example:443`.

    What a user calls the tools of a server, as in `mcp://billing` or `tool://billing`, has no port.
    """
    with suppress(ValueError):  # of a port that is none
        parts = urlsplit(url)
        if parts.scheme in _DEFAULT_PORTS and parts.hostname:
            host = f"[{parts.hostname}]" if ":" in parts.hostname else _in_ascii(parts.hostname)
            return f"{parts.scheme}://{host}:{parts.port or _DEFAULT_PORTS[parts.scheme]}"
        if parts.scheme in _WITHOUT_PORT and parts.hostname == parts.netloc.lower() != "":
            return f"{parts.scheme}://{_in_ascii(parts.hostname)}"
    raise ValueError(
        f"{url!r} is not the URL of a server: write it as https://api.example,"
        " or as mcp://billing or tool://billing where it is a name of your own"
    )


def _in_ascii(host: str) -> str:
    """The name of a host as it is looked up. `ValueError` where that would be another host by older rules than by newer ones."""
    if host.isascii():
        return host
    import unicodedata  # a megabyte, for what few have

    looked_up = host.encode("idna")
    if looked_up.decode("idna") != unicodedata.normalize("NFKC", host):
        raise ValueError(host)
    return looked_up.decode()


@lru_cache(maxsize=1024)
def root_at(url: str) -> Root:
    """The root that a URL names, however it is spelled."""
    root = origin_of(url) + urlsplit(url).path.rstrip("/")
    if "?" in url or "#" in url:
        raise ValueError(
            f"{url!r} has a query or a fragment, which a root has not: put what tells it from others into its path"
        )
    return root


def roots_in(names: Iterable[str]) -> list[Root]:
    """Roots as a store has them, in order. `ValueError` where one is none."""
    roots = sorted(names)
    for root in roots:
        root_at(root)
    return roots


def is_below(path: str, root: str) -> bool:
    """Whether a request for a path is under a contract that lives at this path."""
    return path == root or path.startswith(f"{root}/")


def below_root(root: Root, operation: str) -> str:
    """An operation as the server knows it: by its path below the root of the contract."""
    method, _, path = operation.partition(" ")
    prefix = urlsplit(root).path
    return f"{method} {path.removeprefix(prefix)}" if prefix and is_below(path, prefix) else operation


def digest_of(*parts: Any) -> str:
    """Tells one thing from another: 32 hexadecimal digits over the JSON of its parts."""
    return digest_in_bytes(*parts).hex()


def digest_in_bytes(*parts: Any) -> bytes:
    """The same, in 16 bytes."""
    return blake2b(_encode(parts), digest_size=16).digest()


class _Once:
    """A text about an entry that is worked out when somebody first asks. `functools.cached_property` has a lock, with which a process can fork."""

    def __init__(self, work_out: Callable[[Any], str]) -> None:
        self._work_out = work_out
        self.__doc__ = work_out.__doc__

    def __get__(self, entry: Any, kind: object) -> str:
        if entry is None:
            raise AttributeError("it is an entry that has this, and not the class")
        text = vars(entry)[self._work_out.__name__] = self._work_out(entry)
        return text


class Grounds(msgspec.Struct, frozen=True, gc=False):
    """What a fix rests on."""

    tables: tuple[str, ...]
    cells: Cells | None = None
    """None where the server did not say: any cell of its tables may be one."""

    rules: tuple[str, ...] | None = None
    """As `table:relation`; None where the server said neither cells nor `when`: any rule may be one."""

    policy: str | None = None
    """The policy that gave it, in short; None where the server did not say: any may have."""

    @property
    def rows(self) -> tuple[str, ...] | None:
        """The rows that the cells are of, as `table:key`; None where the server did not say."""
        return None if self.cells is None else rows_of_cells(self.cells)

    @property
    def rests_on(self) -> Cells:
        """The cells, or the whole tables where any of theirs may be one."""
        return dict.fromkeys(self.tables) if self.cells is None else self.cells


class Condition(msgspec.Struct, frozen=True, gc=False):
    """The requests that a fix holds for."""

    when: dict[str, Any]
    """The request fields, with their values, under which it holds; the whole request where the server did not say."""

    unless: dict[str, tuple[Any, ...]] = {}
    """Values that fields must not have."""

    @property
    def shape(self) -> Shape:
        """The fields whose values must be as here."""
        return tuple(sorted(self.when))


class Entry(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One remembered suggestion: what it fixes, for which requests, and what it rests on.

    Its digests are worked out once, when somebody asks for them.
    """

    root: Root
    """The server that gave it. It is used for no other."""

    operation: str
    """The call that it fixes, e.g. `POST /subscriptions`."""

    type: str
    """What kind of fix it is, e.g. `USE_REQUIRED_PROMO`."""

    parameters: dict[str, Any]
    """What it sets in a request; None takes a field away."""

    condition: Condition
    """The requests that it holds for."""

    grounds: Grounds
    """What it rests on."""

    learned_at: float
    """When it was learned, in seconds since 1970."""

    strategy: str = "exact"
    """Under which it is kept; another one does not trust it."""

    is_suspect: bool = False
    """It may have gone stale: it must be revalidated before it is used. It is the same entry either way."""

    generation: int = 0
    """Of the server's log in which it was learned or confirmed: of an earlier one than is known now, it must be revalidated too."""

    @classmethod
    def from_suggestion(cls, suggestion: Suggestion, request: Mapping[str, Any], **members: Any) -> Self:
        """What is remembered of a cacheable suggestion that was the answer to this request."""
        tables, cells = suggestion.grounds
        if cells and suggestion.when is not msgspec.UNSET:
            condition = Condition(suggestion.when, suggestion.unless or {})
            grounds = Grounds(tables, cells, suggestion.rules or (), suggestion.by or None)
        else:
            condition = Condition({WHOLE_REQUEST: as_read(request)}, suggestion.unless or {})
            grounds = Grounds(tables)
        return cls(
            type=suggestion.type,
            parameters=suggestion.parameters,
            condition=condition,
            grounds=grounds,
            **members,
        )

    @_Once
    def place(self) -> str:
        """Where a request finds it: its operation and the values of its fields."""
        return place_of(self.root, self.operation, self.condition.when)

    @_Once
    def slot(self) -> str:
        """What it is the answer to: a second value for the same fields takes its place."""
        return digest_of(self.place, self.type, sorted(self.condition.unless), sorted(self.parameters))

    @_Once
    def id(self) -> str:
        """The entry itself, value and all."""
        return digest_of(self.slot, self.parameters)

    def renews(self, before: "Entry") -> bool:
        """Whether it may be used now, where the same entry had to be revalidated before."""
        return not self.is_suspect and (before.is_suspect or before.generation != self.generation)

    def applies_to(self, request: Mapping[str, Any]) -> bool:
        """Whether it holds for this request."""
        return mismatch(self.condition.when, partial(read_at, request), self.condition.unless) is None

    def mismatch(self, request: Mapping[str, Any]) -> str | None:
        """Why it does not hold for this request, in a sentence; None when it does."""
        path = mismatch(self.condition.when, partial(read_at, request), self.condition.unless)
        if path is None:
            return None
        if path == WHOLE_REQUEST:
            return "it is for one whole request, and this is another: the server did not say on which fields it depends"
        has = (
            "it is not there"
            if value_at(request, path) is None
            else f"it is {shown(value_at(request, path))}"
        )
        if path not in self.condition.when:
            return f"it does not hold for this value of {shown(path)}: {has}"
        return (
            f"it is for requests in which {shown(path)} is {shown(self.condition.when[path])}, and here {has}"
        )


class Vouched(msgspec.Struct, frozen=True, kw_only=True):
    """The newest state of a root for which a key vouches that the user has pinned."""

    log: str
    at: str
    """Where in that log it is."""

    digest: str
    key: str
    """The key that signed it."""

    rests_on: tuple[str, ...] = ()
    """The other keys that have led here, each by its word. Once one of all these is no longer pinned, none of it counts any longer."""

    expires_at: int
    """When the word of the key ends, in seconds of Unix time."""

    keys: dict[str, str] = {}
    """Keys that were named, by a pinned one or by one of these, to take its place; and by which."""

    retired_keys: tuple[str, ...] = ()
    """Those whose place was taken: whatever they sign from then on counts for nothing."""


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """The state at which everything that a memory holds of one root is good: a position in its log, or versions of a server without one."""

    place: Place = Place()
    generation: int = 0
    """How often another log, or another part of it, has taken the place of what was known."""

    left: tuple[tuple[str, float], ...] = ()
    """The last positions that were left in that way, each with the time."""

    split_at: float | None = None
    """When several logs were found to answer here: one of them has come back, or there were too many."""

    roots: tuple[str, ...] = ()
    """Of an origin: the paths below which contracts live."""

    versions: Versions = Versions({})
    state_tag: str | None = None
    """The state that these versions make up, where the server has named it."""

    superseded: dict[str, tuple[str, ...]] = {}
    """By part, and for the name of the state: the last versions that have passed, or of which nobody can say whether they have."""

    strategy: str = ""
    """Under which the entries were kept; another one may have kept what this one would have dropped."""

    vouched: Vouched | None = None
    """Where the user trusts a key: the signed state that these versions are of."""

    histories: Histories | None = None
    """Where changes are foreseen: when tables, and rows as `table:key`, were seen to change."""

    @property
    def lapsed(self) -> "Knowledge":
        """The same, of which a key's word counts no longer; what was seen stays, so that nobody gets behind it."""
        if self.vouched is None:
            return self
        return msgspec.structs.replace(self, vouched=msgspec.structs.replace(self.vouched, expires_at=0))


def place_of(root: Root, operation: str, when: Mapping[str, Any]) -> str:
    """The place of a condition. A request that has the same in these fields finds it by the same digest; a null says that one is absent."""
    shape = tuple(sorted(when))
    return place_at(root, operation, shape, key_as_read([when[path] for path in shape])).hex()


def key_as_read(values: Iterable[Any]) -> bytes:
    """What stands in the fields of a shape, as policies see it: the JSON of that, in order."""
    return _encode_as_read([*map(as_read, values)])


def place_at(root: Root, operation: str, shape: Shape, key: bytes) -> bytes:
    """Where entries are for which this stands in the fields of their shape: the digest of all that, in 16 bytes."""
    digest = _digest_of_shape(root, operation, shape).copy()
    digest.update(key)
    return digest.digest()


@lru_cache(maxsize=1024)
def _digest_of_shape(root: Root, operation: str, shape: Shape) -> blake2b:
    """What the digests of all places of a shape begin with. It is copied, which takes a third of what a new one does."""
    return blake2b(_encode((root, operation, shape)), digest_size=16)
