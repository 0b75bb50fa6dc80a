"""Hints: where a policy reads a field only to compare it, so that `request.equals` would do.

A fix that comes of `request.equals` holds for every other value of the field. One that comes of reading the field
holds only for the value that was sent. Hints are found in the source; a policy without source has none.
"""

import ast
import inspect
import linecache
import types
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = ["Hint", "comparisons_in"]

_Function = ast.FunctionDef | ast.Lambda


class Hint(NamedTuple):
    """A comparison that could be `request.equals`."""

    line: int
    sentence: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.sentence}"


def comparisons_in(function: Callable[..., Any]) -> list[Hint]:
    """The comparisons of a policy that need not read the field that they compare, by line.

    Of a field whose value is read elsewhere in the policy there are none: that value counts anyway.
    """
    try:
        policy = inspect.unwrap(function)
        is_bound = isinstance(function, types.MethodType) or isinstance(policy, types.MethodType)
        policy = getattr(policy, "__func__", policy)
        node = _node_of(policy) if isinstance(policy, types.FunctionType) else None
        if node is None:
            return []
        request = [*node.args.posonlyargs, *node.args.args][is_bound].arg
        return sorted(_Policy(node, request).hints())
    except (IndexError, RecursionError, SyntaxError, ValueError):  # advice is not worth a failure
        return []


def _node_of(function: types.FunctionType) -> _Function | None:
    """Where the function stands in its file.

    The whole file is parsed: the lines of a function alone need not be Python, as those of a lambda in a call.
    """
    code = function.__code__
    linecache.checkcache(code.co_filename)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were given when the file was compiled
        tree = ast.parse("".join(linecache.getlines(code.co_filename, function.__globals__)))
    places = [place for place in code.co_positions() if place[3]]  # the others stand for the function itself
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _Function)
        and _name_and_line(node) == (code.co_name, code.co_firstlineno)
        and all(_is_inside(node, *place) for place in places)
    ]
    if not places:  # Python was told to forget columns
        return found[0] if len(found) == 1 else None
    return max(found, key=lambda node: (node.lineno, node.col_offset), default=None)


def _name_and_line(node: _Function) -> tuple[str, int]:
    if isinstance(node, ast.Lambda):
        return "<lambda>", node.lineno
    return node.name, (node.decorator_list[0] if node.decorator_list else node).lineno


def _is_inside(
    node: _Function, line: int | None, end_line: int | None, column: int | None, end_column: int | None
) -> bool:
    starts, ends = (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return starts <= (line or 0, column or 0) and (end_line or 0, end_column or 0) <= ends


class _Policy:
    """The source of a policy."""

    def __init__(self, node: _Function, request: str) -> None:
        self._request = request
        body = node.body if isinstance(node.body, list) else [node.body]
        self._nodes = [inner for part in body for inner in ast.walk(part)]
        self._bound = Counter(name for inner in self._nodes for name in _bound_by(inner))
        self._used = Counter(
            inner.id
            for inner in self._nodes
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)
        )
        self._named: dict[str, ast.expr] = {}
        """Names that are given to what a field holds, each with that expression."""
        for inner in self._nodes:
            match inner:
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if self._field_of(value):
                    self._named[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if self._field_of(
                    value
                ):
                    self._named[name] = value

    def hints(self) -> Iterator[Hint]:
        if self._bound[self._request]:  # it may be something else by then
            return
        comparisons = [found for inner in self._nodes for found in self._comparisons(inner)]
        compared = {id(read) for _, read, _ in comparisons}
        read_anyway = {
            ast.dump(field)
            for inner in self._nodes
            if id(inner) not in compared and (field := self._looked_up_by(inner))
        }
        for comparison, read, other in comparisons:
            field = self._field_of(read)
            if field is not None and ast.dump(field) not in read_anyway:
                yield Hint(
                    comparison.lineno,
                    f"{ast.unparse(comparison)} reads the value; {self._request}.equals({ast.unparse(field)},"
                    f" {ast.unparse(other)}) would let the fix hold for every other value",
                )

    def _comparisons(self, node: ast.AST) -> Iterator[tuple[ast.Compare, ast.expr, ast.expr]]:
        """The comparison, what reads the field in it or for it, and what that is compared with."""
        match node:
            case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq()], comparators=[right]):
                for one, other in ((left, right), (right, left)):
                    read = self._read_for(one)
                    if read is not None and not self._is_field(other):
                        yield node, read, other

    def _read_for(self, node: ast.expr) -> ast.expr | None:
        """What reads a field only for this: the expression itself, or what a name stands for that is used here alone."""
        if isinstance(node, ast.Name):
            return self._named.get(node.id) if self._bound[node.id] == self._used[node.id] == 1 else None
        return node if self._field_of(node) else None

    def _is_field(self, node: ast.expr) -> bool:
        return self._field_of(node) is not None or (isinstance(node, ast.Name) and node.id in self._named)

    def _field_of(self, node: ast.AST) -> ast.expr | None:
        """The name of the field that the expression reads: that of `request.get(name)` or `request[name]`."""
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=self._request), attr="get"),
                args=[field] | [field, ast.Constant(value=None)],
                keywords=[],
            ):
                return field
            case ast.Subscript(value=ast.Name(id=self._request), slice=field):
                return field
        return None

    def _looked_up_by(self, node: ast.AST) -> ast.expr | None:
        """The name of the field that is looked up in any way, with a default or by `in`, too."""
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=self._request), attr="get"), args=[field, *_]):
                return field
            case ast.Compare(
                left=field, ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=self._request)]
            ):
                return field
        return self._field_of(node)


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node gives a value to, or makes another function's."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
