"""Functions as they stand in a source: their nodes, and the names that are their own."""

import ast
import inspect
import linecache
import types
import warnings
from collections.abc import Iterator
from functools import lru_cache

__all__ = [
    "aliases_in",
    "bound_by",
    "changes_in",
    "function_in",
    "inside",
    "lines_of",
    "locals_of",
    "outermost_in",
]

_MUTATORS = {
    *("add", "append", "appendleft", "clear", "discard", "extend", "insert"),
    *("pop", "popitem", "popleft", "remove", "setdefault", "update"),
}

_once = lru_cache(maxsize=256)
"""What stands in a source is found once: the policies of a module are looked at one after another."""


def lines_of(function: object) -> tuple[list[str], int]:
    """The lines of a function or method, and the number of the first.

    `inspect` would look through all modules for the one that it stands in, which the function knows.
    """
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        raise TypeError(f"there is no source of {type(function).__name__}")
    code = function.__code__
    linecache.lazycache(code.co_filename, function.__globals__)
    return _lines_of(code, code.co_filename)


@_once
def _lines_of(code: types.CodeType, file: str) -> tuple[list[str], int]:
    """Equal code may stand in several files."""
    linecache.checkcache(file)
    lines = linecache.getlines(file)[code.co_firstlineno - 1 :]
    if not lines:
        raise OSError(f"there is no source of {code.co_name}")
    return inspect.getblock(lines), code.co_firstlineno


def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were given when the file was compiled
        return ast.parse(source)


@_once
def outermost_in(source: str) -> tuple[ast.FunctionDef, ...]:
    """The functions of a module that stand in no other."""
    functions = [node for node in ast.walk(_parsed(source)) if isinstance(node, ast.FunctionDef)]
    inner = {node for function in functions for node in inside(function)}
    return tuple(function for function in functions if function not in inner)


@_once
def function_in(source: str) -> ast.FunctionDef:
    """The function, one line further down: a method is indented, and stands in something."""
    tree = _parsed(("if True:" if source[:1].isspace() else "") + "\n" + source)
    return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@_once
def inside(function: ast.FunctionDef) -> tuple[ast.AST, ...]:
    return tuple(node for statement in function.body for node in ast.walk(statement))


@_once
def locals_of(function: ast.FunctionDef) -> frozenset[str]:
    nodes = [*ast.walk(function.args), *inside(function)]
    bound = {
        name for node in nodes if not isinstance(node, ast.Global | ast.Nonlocal) for name in bound_by(node)
    }
    bound |= {alias.asname or alias.name.partition(".")[0] for node in nodes for alias in aliases_in(node)}
    return frozenset(bound.difference(*(node.names for node in nodes if isinstance(node, ast.Global))))


@_once
def changes_in(function: ast.FunctionDef) -> tuple[tuple[str, type[ast.AST]], ...]:
    """The names whose values a function may change, and by what: a statement, or a call of a method."""
    own, found = locals_of(function), list[tuple[str, type[ast.AST]]]()
    for node in inside(function):
        match node:
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                found += ((name, type(node)) for name in names)
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                found += ((name, ast.Assign) for name in _outside(node, own))
            case ast.Call(func=ast.Attribute(value=ast.Name() as changed, attr=attribute)) if (
                attribute in _MUTATORS
            ):
                found += ((name, ast.Call) for name in _outside(changed, own))
    return tuple(found)


def _outside(node: ast.expr, own: frozenset[str]) -> Iterator[str]:
    """The name with which an expression such as `a.b[c]` begins, unless it is a local one."""
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name) and node.id not in own:
        yield node.id


def aliases_in(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


def bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node gives a value to, or makes another function's."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
