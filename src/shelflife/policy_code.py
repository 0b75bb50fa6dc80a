"""What the code of a policy shows before it runs: what it reads that no version vouches for, and where
`request.equals` would do.

A policy is to be a function of the request and the tables. Whatever else it reads can change without anybody being
told: the clock, chance, the environment, the network, a global that something changes. `PolicyCode` looks for that in
the policy and in the user's own functions that it calls. It is found in the source, by the names that stand there, so
a function without source shows nothing, and neither does what a library does inside.

A fix that comes of `request.equals` holds for every other value of the field. One that comes of reading the field
holds only for the value that was sent (`comparisons_in`).
"""

import ast
import builtins
import inspect
import sys
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import Any

from shelflife.fingerprints import Reach, digest_of, reach_of
from shelflife.function_sources import (
    aliases_in,
    bound_by,
    changes_in,
    function_in,
    inside,
    lines_of,
    locals_of,
    outermost_in,
)

__all__ = ["PolicyCode", "comparisons_in"]

_NO_SOURCE = (OSError, RecursionError, StopIteration, SyntaxError, TypeError, ValueError)

_UNTRACKED = {
    "the clock": (
        "time.time time.time_ns time.monotonic time.monotonic_ns time.perf_counter time.perf_counter_ns"
        " time.localtime time.gmtime time.strftime time.ctime time.asctime"
        " datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow datetime.date.today"
    ),
    "a random value": (
        "random numpy.random uuid.uuid1 uuid.uuid4 os.urandom posix.urandom nt.urandom secrets.choice"
        " secrets.randbelow secrets.randbits secrets.token_bytes secrets.token_hex secrets.token_urlsafe"
    ),
    "the environment": "os.environ os._Environ os.getenv os.getcwd os.getpid sys.argv platform",
    "the network": (
        "socket _socket http.client urllib.request urllib3 requests httpx httpx2 aiohttp websockets grpc boto3 redis"
    ),
    "a file": (
        "io.open _io.open pathlib.Path os.listdir os.scandir os.stat posix.listdir posix.scandir posix.stat nt.stat"
        " genericpath.exists genericpath.getmtime genericpath.getsize genericpath.isdir genericpath.isfile"
    ),
    "another program": "subprocess os.popen os.system posix.system",
    "what is another in each process": "builtins.hash builtins.id",
    "a database": "sqlite3 _sqlite3 psycopg psycopg2 pymysql pymongo asyncpg sqlalchemy.engine sqlalchemy.orm.session",
    "a context variable": "_contextvars.ContextVar contextvars.ContextVar _thread._local threading.local",
}
_KINDS = {name: kind for kind, names in _UNTRACKED.items() for name in names.split()}
"""What somebody reads who names this, or anything inside it."""

_MUTABLE = (dict, list, set, deque, bytearray)
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)
_MOST_VALUES = 256
"""How many values of what a policy refers to are compared each time. It has less than that, or never changes."""


class PolicyCode:
    """What a policy refers to, as it was when somebody looked."""

    def __init__(self, function: Callable[..., Any]) -> None:
        reach = reach_of(function)
        self._function = function
        self.fingerprint = reach.fingerprint
        """Another one when the policy may say something else."""
        self.untracked: list[str] = []
        """What it reads that no version vouches for, a sentence each."""
        with suppress(*_NO_SOURCE):  # advice is not worth a failure
            self.untracked += _untracked(_running(reach.functions), reach.things)
        self._kept = [(name, get, self._digest(get())) for name, get in self._values(reach)]

    def changed(self) -> str | None:
        """The name of a value that is not what it was: the policy keeps something, or others change it."""
        return next((name for name, get, digest in self._kept if self._digest(get()) != digest), None)

    def _digest(self, value: object) -> bytes:
        return digest_of(value, self._function, _MOST_VALUES)

    def _values(self, reach: Reach) -> Iterator[tuple[str, Callable[[], object]]]:
        """What is there from one run to the next: globals, what is closed over, defaults, the object of a method."""
        for holder, name in {(id(holder), name): (holder, name) for holder, name in reach.named}.values():
            if name in holder and not _is(holder[name], *_CODE):
                yield name, partial(holder.get, name)
        for function in reach.functions:
            for name, cell in _cells_of(function).items():
                if not _is(_content_of(cell), *_CODE):
                    yield name, partial(_content_of, cell)
            if function.__defaults__ or function.__kwdefaults__:
                yield f"a default of {function.__name__}", partial(_defaults_of, function)
        if isinstance(self._function, types.MethodType):
            yield f"the object of {self._function.__name__}", partial(getattr, self._function, "__self__")


def _is(value: object, *kinds: type) -> bool:
    """Whether it is of one of these types. The value itself is not asked."""
    return issubclass(type(value), kinds)


def _cells_of(function: types.FunctionType) -> dict[str, types.CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _content_of(cell: types.CellType) -> object:
    with suppress(ValueError):  # nothing is in it yet
        return cell.cell_contents
    return None


def _defaults_of(function: types.FunctionType) -> object:
    return function.__defaults__, function.__kwdefaults__


class _Source:
    """The source of one of the user's functions, and what the names in it stand for."""

    def __init__(self, function: types.FunctionType) -> None:
        lines, first_line = lines_of(function)
        self.function = function
        self.node = function_in("".join(lines))
        self.nodes = inside(self.node)
        self._lines_before = first_line - 2
        self._known = {
            **vars(builtins),
            **function.__globals__,
            **{name: _content_of(cell) for name, cell in _cells_of(function).items()},
            **dict.fromkeys(locals_of(self.node)),
            **{name: value for node in self.nodes for name, value in _imported_by(node, function)},
        }
        self.words = {word for node in self.nodes for word in _words_in(node)}
        """Everything that it calls by a name."""

    def place(self, node: ast.expr) -> str:
        return f"{PurePath(self.function.__code__.co_filename).name}:{self._lines_before + node.lineno}"

    def expressions(self) -> Iterator[tuple[ast.expr, Any, set[str]]]:
        """Whatever is read by name, with what is found there and what that is called."""
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                value, name = self._found(node)
                yield node, value, {name, _dotted(value)}

    def _found(self, node: ast.expr) -> tuple[Any, str]:
        match node:
            case ast.Name(id=name):
                return self._known.get(name), ""
            case ast.Attribute(value=inner, attr=name):
                owner, _ = self._found(inner)
                if _is(owner, types.ModuleType):
                    return vars(owner).get(name), f"{owner.__name__}.{name}"
                if _is(owner, type):
                    return None, f"{_dotted(owner)}.{name}"
        return None, ""

    def changed_by(self) -> dict[str, str]:
        """The names of values that outlive a run and that some function changes: this one, or one of its module."""
        changing = [self.node]
        with suppress(*_NO_SOURCE):
            changing[:0] = outermost_in(inspect.getsource(sys.modules[self.function.__module__]))
        own = locals_of(self.node).difference(self.function.__code__.co_freevars)
        return {name: node.name for node in changing for name in self._changed_in(node) if name not in own}

    def _changed_in(self, function: ast.FunctionDef) -> Iterator[str]:
        for name, how in changes_in(function):
            if how is ast.Nonlocal:
                is_changed = function is self.node and name in self.function.__code__.co_freevars
            else:
                is_changed = how is not ast.Call or _is(self._known.get(name), *_MUTABLE)
            if is_changed:
                yield name


def _imported_by(node: ast.AST, function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """What an import in a function gives names to. It is imported already: the fingerprint covers it."""
    for alias in aliases_in(node):
        if isinstance(node, ast.Import):
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            yield alias.asname or name, sys.modules.get(name)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield alias.asname or alias.name, vars(sys.modules.get(node.module or "", ast)).get(alias.name)


def _words_in(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word):
            yield word


def _dotted(value: Any) -> str:
    """What a value is called, or else its type: the module and the name in it."""
    with suppress(Exception):
        if _is(value, types.ModuleType):
            return str(value.__name__)
        if not _is(value, *_CODE, types.MethodType):
            value = type(value)
        if _is(value, types.BuiltinFunctionType) and value.__module__ is None:
            value = type(value.__self__)
        return f"{value.__module__}.{value.__qualname__}"
    return ""


def _kind_of(name: str) -> str | None:
    """What somebody reads who reads this."""
    parts = name.split(".")
    found = (_KINDS.get(".".join(parts[:count])) for count in range(1, len(parts) + 1))
    return next(filter(None, found), None)


def _running(functions: Iterable[types.FunctionType]) -> list[_Source]:
    """The sources of the functions that may run. A method of a class may when something that may run names it."""
    waiting: list[_Source] = []
    for function in functions:
        with suppress(*_NO_SOURCE):
            waiting.append(_Source(function))
    running = [one for one in waiting if not _is_method(one.function)]
    for source in running:  # it grows as we go
        running += [one for one in waiting if one not in running and one.function.__name__ in source.words]
    return running


def _is_method(function: types.FunctionType) -> bool:
    return function.__qualname__.rpartition(".")[0].rpartition(".")[2] not in ("", "<locals>")


def _untracked(sources: list[_Source], things: Iterable[object]) -> Iterator[str]:
    """A sentence for each kind of thing that is read, and for each value that changes."""
    if any("report_untracked" in source.words for source in sources):
        return  # it says so itself
    told: set[str] = set()
    for source in sources:
        changed_by = source.changed_by()
        for node, _, names in source.expressions():
            text = ast.unparse(node)
            kind = next(filter(None, map(_kind_of, sorted(names))), None)
            if kind is not None and kind not in told:
                told.add(kind)
                yield f"{source.place(node)} reads {kind} ({text})"
            if text in changed_by and text not in told:
                told.add(text)
                yield f"{source.place(node)} reads {text}, which {changed_by[text]} changes"
    for thing in things:
        kind = None if _is(thing, *_CODE) else _kind_of(_dotted(thing))
        if kind is None and _is(thing, Iterator):
            kind = "what changes as it is read"
        if kind is not None and kind not in told:
            told.add(kind)
            yield f"it reads {kind} (by a {_dotted(thing)})"


def comparisons_in(function: Callable[..., Any]) -> list[str]:
    """The comparisons of a policy that need not read the field that they compare, by line.

    Of a field whose value is read elsewhere in the policy there are none: that value counts anyway.
    """
    try:
        request = next(iter(inspect.signature(function).parameters))
        lines, first_line = lines_of(inspect.unwrap(function))
        policy = _Comparing(function_in("".join(lines)), request)
        found = sorted((node.lineno, sentence) for node, sentence in policy.hints())
    except _NO_SOURCE:
        return []  # advice is not worth a failure
    return [f"line {first_line + line - 2}: {sentence}" for line, sentence in found]


class _Comparing:
    """The source of a policy, and what it compares."""

    def __init__(self, function: ast.FunctionDef, request: str) -> None:
        self._request = request
        self._nodes = nodes = inside(function)
        self._bound = Counter(name for node in nodes for name in bound_by(node))
        self._used = Counter(
            node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )
        self._named: dict[str, ast.expr] = {}
        """Names that are given to what a field holds, each with that expression."""
        for node in nodes:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=ast.expr() as value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ) if self._field_of(value):
                    self._named[name] = value

    def hints(self) -> Iterator[tuple[ast.Compare, str]]:
        if self._bound[self._request]:  # it may be something else by then
            return
        comparisons = [found for node in self._nodes for found in self._comparisons(node)]
        compared = {id(read) for _, read, _ in comparisons}
        others = (self._looked_up_by(node) for node in self._nodes if id(node) not in compared)
        read_anyway = {ast.dump(field) for field in others if field}
        for comparison, read, other in comparisons:
            field = self._field_of(read)
            if field is not None and ast.dump(field) not in read_anyway:
                yield (
                    comparison,
                    f"{ast.unparse(comparison)} reads the value; {self._request}.equals({ast.unparse(field)},"
                    f" {ast.unparse(other)}) would let the fix hold for every other value",
                )

    def _comparisons(self, node: ast.AST) -> Iterator[tuple[ast.Compare, ast.expr, ast.expr]]:
        """The comparison, what reads the field in it or for it, and what that is compared with."""
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                for one, other in ((left, right), (right, left)):
                    read = self._read_for(one)
                    is_field = self._field_of(other) or getattr(other, "id", None) in self._named
                    if read is not None and not is_field:
                        yield node, read, other

    def _read_for(self, node: ast.expr) -> ast.expr | None:
        """What reads a field only for this: the expression itself, or what a name stands for that is used here alone."""
        if isinstance(node, ast.Name):
            return self._named.get(node.id) if self._bound[node.id] == self._used[node.id] == 1 else None
        return node if self._field_of(node) else None

    def _field_of(self, node: ast.AST) -> ast.expr | None:
        """The name of the field that the expression reads: that of `request.get(name)` or `request[name]`."""
        match node:
            case ast.Call(args=[_] | [_, ast.Constant(value=None)], keywords=[]) | ast.Subscript():
                return self._looked_up_by(node)
        return None

    def _looked_up_by(self, node: ast.AST) -> ast.expr | None:
        """The name of the field that is looked up in any way, with a default or by `in`, too."""
        match node:
            case (
                ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[field, *_])
                | ast.Subscript(value=ast.Name(id=name), slice=field)
                | ast.Compare(left=field, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name)])
            ) if name == self._request:
                return field
        return None
