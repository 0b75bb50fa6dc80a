"""Operations: a method and the template of a route, below the contract's root, as in `POST /orders/{id}`.

The operation of a request decides which policies count. So one that cannot be told is None, and never passed over.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

from shelflife.contract.names import shown
from shelflife.server.errors import UsageError
from shelflife.server.models import DICTIONARY, Reader

__all__ = ["Operation", "Operations", "operation_name"]

_NAME = re.compile(r"[A-Z]+ /\S*")
_PARAMETER = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")


def operation_name(text: object) -> str:
    """The name of an operation in its one spelling, with `{id}` for a parameter of any type; else
    `UsageError`."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise UsageError(
            f"{shown(text)} is no operation; write a method and the path of a route, as in 'POST /orders/{{id}}'"
        )
    return _spelled(text)


class Operation(NamedTuple):
    """One operation that an app has."""

    name: str
    """As `operation_name` spells it."""

    path: re.Pattern[str]
    """What the paths of requests for it look like."""

    guards: tuple[str, ...] = ("",)
    """What stands before it, or might, that does not stand before the contract's endpoints too, by name. What
    cannot be told, or keeps nobody out, has an empty name."""

    is_shown: bool = True
    """Whether the app shows it as its own, in its schema."""

    is_stamped: bool = False
    """Whether a success carries stamps though it was not checked."""

    notes_runs: bool = False
    """Whether the pin is told when its endpoint is called. A success before that is not its own."""

    endpoint: Any = None
    """What the app calls for it, where that is known."""

    body: Reader | None = DICTIONARY
    """How its body is read before it is checked, as far as that is known. None when that cannot be told."""

    @classmethod
    def of_route(
        cls, method: str, template: str, path: re.Pattern[str] | None = None, **known: Any
    ) -> "Operation":
        """The operation of a route, however odd; `path` is the framework's own pattern, where it has one."""
        return cls(_spelled(f"{method.upper()} {template}"), path or _pattern(template), **known)

    @classmethod
    def from_name(cls, text: str, **known: Any) -> "Operation":
        """The operation that is written like this; else `UsageError`."""
        return cls(operation_name(text), _pattern(text.partition(" ")[2]), **known)

    def merged_with(self, other: "Operation") -> "Operation":
        """One operation for two routes of one name, as of two hosts. What one of them demands counts for
        both."""
        is_same = self.body and other.body and self.body.model == other.body.model
        body = self.body if is_same else None
        is_shown = self.is_shown and other.is_shown
        return self._replace(guards=(*other.guards, *self.guards), is_shown=is_shown, body=body)

    @property
    def is_guarded(self) -> bool:
        """Whether it may ask for more than the contract's endpoints do."""
        return bool(self.guards)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of requests for it. A HEAD is a GET whose answer has no body."""
        method = self.name.partition(" ")[0]
        return ("GET", "HEAD") if method == "GET" else (method,)


class Operations:
    """Operations that can be found by the requests for them."""

    def __init__(self, operations: Iterable[Operation] = (), opaque: Iterable[str] = ()) -> None:
        """`opaque` are the paths of parts of an app whose own routes cannot be seen."""
        self._by_name: dict[str, Operation] = {}
        self.by_call: dict[tuple[int, str], list[Operation]] = {}
        """Those for which an app calls an endpoint, by its identity and the method. It may have several routes."""
        for one in operations:
            before = self._by_name.get(one.name)
            self._by_name[one.name] = one.merged_with(before) if before else one
            for method in one.methods:
                self.by_call.setdefault((id(one.endpoint), method), []).append(one)
        self._opaque = tuple(opaque)

    @classmethod
    def named(cls, names: Collection[str], **known: Any) -> "Operations":
        """Those that are written like this; else `UsageError`."""
        if isinstance(names, str):
            raise UsageError(f"{shown(names)} is one text; give a list of operations")
        return cls(Operation.from_name(name, **known) for name in names)

    @classmethod
    def union(cls, several: Iterable["Operations"]) -> "Operations":
        """All that are in any of them."""
        listed = list(several)
        return cls(
            (operation for operations in listed for operation in operations),
            (path for operations in listed for path in operations._opaque),
        )

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._by_name.values())

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    @property
    def are_all_open(self) -> bool:
        """Whether none is guarded, and none can be hidden."""
        return not self._opaque and not any(one.is_guarded for one in self)

    def may_have(self, name: str) -> bool:
        """Whether an operation of this name would be in a part that cannot be seen."""
        path = name.partition(" ")[2]
        return any(path == opaque or path.startswith(opaque + "/") for opaque in self._opaque)

    def closest_to(self, name: str) -> str | None:
        """The name of the one that somebody may have meant."""
        return next(iter(get_close_matches(name, self._by_name, 1)), None)

    def find(self, method: str, path: str) -> Operation | None:
        """The operation that a request is for. Extra slashes and white space do not count, as in some
        frameworks."""
        fitting = (
            one
            for reading in (path, _tidied(path))
            for one in self._by_name.values()
            if method in one.methods and one.path.match(reading)
        )
        return self._exactly(method, path) or next(fitting, None)

    def has_like(self, path: str) -> bool:
        """Whether there is one whose path is the same but for its spelling."""
        written = _tidied(path).casefold()
        return any(name.partition(" ")[2].casefold() == written for name in self._by_name)

    def guess(self, method: str, path: str) -> Operation | None:
        """The operation that a request is probably for, where nobody knows how the app reads its path; None
        when it may be another."""
        exact = self._exactly(method, path) or self._exactly(method, _tidied(path))
        return exact or (None if self.has_like(path) else self.find(method, path))

    def find_named(self, text: str) -> Operation | None:
        """The operation that a client means, by its name or by the method and path of a request. A query does
        not count."""
        method, _, path = text.partition("?")[0].partition(" ")
        return self.find(method, path)

    def _exactly(self, method: str, path: str) -> Operation | None:
        return self._by_name.get(f"{'GET' if method == 'HEAD' else method} {path}")


def _spelled(text: str) -> str:
    return _PARAMETER.sub(r"{\1}", text)


def _tidied(path: str) -> str:
    """The path without extra slashes, and without white space at its end."""
    return re.sub(r"[/\s]+\Z", "", re.sub("/{2,}", "/", path)) or "/"


def _pattern(template: str) -> re.Pattern[str]:
    pieces = _PARAMETER.split(template)  # after each text but the last, the name and the type of a parameter
    pattern = re.escape(pieces[0])
    for kind, text in zip(pieces[2::3], pieces[3::3], strict=True):
        pattern += (".*" if kind == "path" else "[^/]+") + re.escape(text)
    return re.compile(pattern + r"\Z")
