"""Hints: where a policy reads a field only to compare it, so that `request.equals` would do.

A fix that comes of `request.equals` holds for every other value of the field. One that comes of reading the field
holds only for the value that was sent. Hints are found in the source; a policy without source, or a lambda, has none.
"""

import ast
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["comparisons_in"]


def comparisons_in(function: Callable[..., Any]) -> list[str]:
    """The comparisons of a policy that need not read the field that they compare, by line.

    Of a field whose value is read elsewhere in the policy there are none: that value counts anyway.
    """
    try:
        request = next(iter(inspect.signature(function).parameters))
        lines, first_line = inspect.getsourcelines(function)
        policy = _Policy(_body("".join(lines)), request)
        found = sorted((node.lineno, sentence) for node, sentence in policy.hints())
    except (OSError, RecursionError, StopIteration, SyntaxError, TypeError, ValueError):
        return []  # advice is not worth a failure
    return [f"line {first_line + line - 2}: {sentence}" for line, sentence in found]


def _body(source: str) -> list[ast.AST]:
    """All that is inside of a function, one line further down: a method is indented, and stands in something."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were given when the file was compiled
        tree = ast.parse(("if True:" if source[:1].isspace() else "") + "\n" + source)
    function = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [node for statement in function.body for node in ast.walk(statement)]


class _Policy:
    """The source of a policy."""

    def __init__(self, nodes: list[ast.AST], request: str) -> None:
        self._request = request
        self._nodes = nodes
        self._bound = Counter(name for node in nodes for name in _bound_by(node))
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


def _bound_by(node: ast.AST) -> Iterator[str]:
    """The names that a node gives a value to, or makes another function's."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            yield name
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            yield name
