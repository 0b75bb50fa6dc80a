"""Operations: a method and the template of a route, below the contract's root, as in `POST /orders/{id}`.

The operation of a request decides which policies count. So one that cannot be told is None, and never passed over.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

from shelflife.contract.names import shown
from shelflife.server.errors import UsageError

__all__ = [
    "DisclosedFixes",
    "Operation",
    "Operations",
    "is_operation",
    "operation_name",
    "operation_names",
]

_NAME = re.compile(r"[A-Z]+ /\S*")
_PARAMETER = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_SPARE_SLASHES = re.compile(r"/{2,}|(?<=.)[/\s]+\Z")


def operation_name(text: object) -> str:
    """The name of an operation in its one spelling, with `{id}` for a parameter of any type; else
    `UsageError`."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise UsageError(
            f"{shown(text)} is no operation; write a method and the path of a route, as in 'POST /orders/{{id}}'"
        )
    return _spelled(text)


def is_operation(text: str) -> bool:
    """Whether a text can name an operation."""
    return _NAME.fullmatch(text) is not None


def operation_names(texts: Collection[str]) -> frozenset[str]:
    """The names of several; else `UsageError`."""
    if isinstance(texts, str):
        raise UsageError(f"{shown(texts)} is one text; give a list of operations")
    return frozenset(map(operation_name, texts))


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

    endpoint: Any = None
    """What the app calls for it, where that is known."""

    @classmethod
    def from_name(cls, text: str) -> "Operation":
        """The operation that is written like this; else `UsageError`."""
        return cls(operation_name(text), _pattern(text.partition(" ")[2]))

    @classmethod
    def of_route(
        cls, method: str, template: str, path: re.Pattern[str] | None = None, **known: Any
    ) -> "Operation":
        """The operation of a route, however odd; `path` is the framework's own pattern, where it has one."""
        return cls(_spelled(f"{method.upper()} {template}"), path or _pattern(template), **known)

    def merged_with(self, other: "Operation") -> "Operation":
        """One operation for two routes of one name, as of two hosts. What one of them demands counts for
        both."""
        return self._replace(guards=(*other.guards, *self.guards), is_shown=self.is_shown and other.is_shown)

    @property
    def is_guarded(self) -> bool:
        """Whether it may ask for more than the contract's endpoints do."""
        return bool(self.guards)

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods of requests for it. A HEAD is a GET whose answer has no body."""
        method = self.name.partition(" ")[0]
        return ("GET", "HEAD") if method == "GET" else (method,)

    def fits(self, method: str, path: str) -> bool:
        """Whether a request may be for it."""
        return method in self.methods and self.path.match(path) is not None


class Operations:
    """Operations that can be found by the requests for them."""

    def __init__(self, operations: Iterable[Operation] = (), opaque: Iterable[str] = ()) -> None:
        """`opaque` are the paths of parts of an app whose own routes cannot be seen."""
        self._by_name: dict[str, Operation] = {}
        for operation in operations:
            before = self._by_name.get(operation.name)
            self._by_name[operation.name] = operation.merged_with(before) if before else operation
        self._opaque = tuple(opaque)

    @classmethod
    def named(cls, names: Collection[str]) -> "Operations":
        """Those that are written like this; else `UsageError`."""
        operation_names(names)
        return cls(map(Operation.from_name, names))

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
        fitting = self._by_name.get(f"{_read(method)} {path}") or self._fitting(method, path)
        return fitting or self._fitting(method, _SPARE_SLASHES.sub(_one_slash, path) or "/")

    def has_like(self, path: str) -> bool:
        """Whether there is one whose path is the same but for its spelling."""
        written = _SPARE_SLASHES.sub(_one_slash, path).casefold()
        return any(name.partition(" ")[2].casefold() == written for name in self._by_name)

    def guess(self, method: str, path: str) -> Operation | None:
        """The operation that a request is probably for, where nobody knows how the app reads its path; None
        when it may be another."""
        for reading in (path, _SPARE_SLASHES.sub(_one_slash, path) or "/"):
            exact = self._by_name.get(f"{_read(method)} {reading}")
            if exact is not None:
                return exact
        return None if self.has_like(path) else self.find(method, path)

    def find_named(self, text: str) -> Operation | None:
        """The operation that a client means, by its name or by the method and path of a request. A query does
        not count."""
        method, _, path = text.partition("?")[0].partition(" ")
        return self.find(method, path)

    def _fitting(self, method: str, path: str) -> Operation | None:
        return next((one for one in self._by_name.values() if one.fits(method, path)), None)


class DisclosedFixes:
    """The operations whose fixes are told to whoever may ask the contract.

    These are the ones that are named, or else the ones that nothing of their own guards. Policies for every operation
    are as open as the most open operation. So where any is guarded, an operation must be known to check its requests.
    """

    def __init__(
        self,
        list_operations: Callable[[], Operations],
        is_checked: Callable[[str], bool],
        named: Collection[str] | None = None,
    ) -> None:
        self._list_operations = list_operations
        self._is_checked = is_checked
        self._named = None if named is None else operation_names(named)

    def __call__(self, asked: str) -> str | None:
        """The operation that a client means, when its fixes may be told; else None."""
        operations = self._list_operations()
        operation = operations.find_named(asked)
        if operation is None:
            return None
        if self._named is not None:
            return operation.name if operation.name in self._named else None
        if operation.is_guarded or not operation.is_shown:
            return None
        is_told = operations.are_all_open or self._is_checked(operation.name)
        return operation.name if is_told else None


def _spelled(text: str) -> str:
    return _PARAMETER.sub(r"{\1}", text)


def _read(method: str) -> str:
    return "GET" if method == "HEAD" else method


def _one_slash(spare: re.Match[str]) -> str:
    return "/" if spare.end() < len(spare.string) else ""


def _pattern(template: str) -> re.Pattern[str]:
    parts: list[str] = []
    end = 0
    for parameter in _PARAMETER.finditer(template):
        parts += (
            re.escape(template[end : parameter.start()]),
            ".*" if parameter[2] == "path" else "[^/]+",
        )
        end = parameter.end()
    return re.compile("".join((*parts, re.escape(template[end:]))) + r"\Z")
