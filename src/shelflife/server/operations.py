"""Operations: a method and the template of a route, below the contract's root, as in `POST /orders/{id}`."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import NamedTuple

from shelflife.contract.names import shown
from shelflife.server.errors import UsageError

__all__ = ["FixesTold", "Operation", "Operations", "operation_name", "operation_names"]

_NAME = re.compile(r"([A-Z]+) (/\S*)")
_PARAMETER = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")


def operation_name(text: object) -> str:
    """The name of an operation in its one spelling: `{id}` for a parameter, whatever type it is given; else `UsageError`."""
    if not isinstance(text, str) or not _NAME.fullmatch(text):
        raise UsageError(
            f"{shown(text)} is no operation; write a method and the path of a route, as in 'POST /orders/{{id}}'"
        )
    return _PARAMETER.sub(r"{\1}", text)


def operation_names(texts: Collection[str]) -> frozenset[str]:
    """The names of several; else `UsageError`."""
    if isinstance(texts, str):
        raise UsageError(f"{shown(texts)} is one text; give a list of operations")
    return frozenset(map(operation_name, texts))


class Operation(NamedTuple):
    """One operation that an app has."""

    name: str
    """As `operation_name` spells it."""

    pattern: re.Pattern[str]
    """What `METHOD path` looks like in requests for it."""

    is_guarded: bool
    """Whether something of its own stands before it that does not stand before the contract's endpoints too."""

    @classmethod
    def from_name(cls, text: str, *, is_guarded: bool = True) -> "Operation":
        """The operation that is written like this; else `UsageError`."""
        return cls(operation_name(text), _pattern(text), is_guarded)


class Operations:
    """Operations that can be found by the requests for them."""

    def __init__(self, operations: Iterable[Operation] = (), opaque: Iterable[str] = ()) -> None:
        """`opaque` are the paths of parts of an app whose own routes cannot be seen."""
        self._by_name: dict[str, Operation] = {}
        for operation in operations:
            self._by_name.setdefault(operation.name, operation)
        self._opaque = tuple(opaque)

    @classmethod
    def named(cls, names: Collection[str]) -> "Operations":
        """Those that are written like this; else `UsageError`."""
        return cls(map(Operation.from_name, operation_names(names)))

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

    def __contains__(self, name: object) -> bool:
        """Whether there is an operation of this name, or may be."""
        if name in self._by_name:
            return True
        path = str(name).partition(" ")[2]
        return any(path == opaque or path.startswith(opaque + "/") for opaque in self._opaque)

    def closest_to(self, name: str) -> str | None:
        """The name of the one that somebody may have meant."""
        return next(iter(get_close_matches(name, self._by_name, 1)), None)

    def find(self, request_line: str) -> Operation | None:
        """The operation that a request for `METHOD path` is for. What follows a question mark does not count."""
        line = request_line.partition("?")[0]
        exact = self._by_name.get(line)
        if exact is not None:
            return exact
        return next((one for one in self._by_name.values() if one.pattern.fullmatch(line)), None)


class FixesTold:
    """Of which operations fixes are told to whoever may ask the contract: those that are named, else those that nothing of their own guards."""

    def __init__(
        self, list_operations: Callable[[], Operations], named: Collection[str] | None = None
    ) -> None:
        self._list_operations = list_operations
        self._named = None if named is None else operation_names(named)

    def __call__(self, asked: str) -> str | None:
        """The operation that a client means, when its fixes may be told; else None."""
        operation = self._list_operations().find(asked)
        if operation is None:
            return None
        is_told = not operation.is_guarded if self._named is None else operation.name in self._named
        return operation.name if is_told else None


def _pattern(text: str) -> re.Pattern[str]:
    parts: list[str] = []
    end = 0
    for parameter in _PARAMETER.finditer(text):
        parts += (
            re.escape(text[end : parameter.start()]),
            ".*" if parameter[2] == "path" else "[^/]+",
        )
        end = parameter.end()
    return re.compile("".join((*parts, re.escape(text[end:]))))
