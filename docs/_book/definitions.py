"""Where a public name is defined, found by reading: nothing is imported, so no extra has to be there."""

import ast
import functools
from pathlib import Path
from typing import NamedTuple

from _book.outside import ROOT

__all__ = ["Definition", "all_of", "definition", "docstring_below", "module_docstring", "plain_default"]

_SOURCES = ROOT / "src"
_LONGEST_DEFAULT = 40


class Definition(NamedTuple):
    """What stands for a name."""

    module: str
    node: ast.stmt
    says: str
    """Its docstring, or the text below an assignment."""


@functools.cache
def _tree(module: str) -> ast.Module:
    path = _SOURCES / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def module_docstring(module: str) -> str:
    """What a module says of itself."""
    return ast.get_docstring(_tree(module)) or ""


def all_of(module: str) -> list[str]:
    """The names that a module gives, as its `__all__` has them."""
    [names] = [node.value for node in _tree(module).body if _assigned(node) == "__all__"]  # type: ignore[attr-defined]
    return list(ast.literal_eval(names))


def _assigned(node: ast.stmt) -> str | None:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
    return target.id if isinstance(target, ast.Name) else None


def docstring_below(body: list[ast.stmt], index: int) -> str:
    """The text that stands right below an assignment."""
    below = body[index + 1] if index + 1 < len(body) else None
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
        return str(below.value.value)
    return ""


def definition(module: str, name: str) -> Definition | None:
    """Follow a name to where it is defined; None for one that is not of this package."""
    if not module.startswith("shelflife"):
        return None
    body = _tree(module).body
    for node in body:  # what only a type checker imports counts as well
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            body = [*body, *node.body]
    for index, node in enumerate(body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return Definition(module, node, ast.get_docstring(node) or "")
        if _assigned(node) == name:
            return Definition(module, node, docstring_below(body, index))
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return definition(node.module, alias.name)
    return None


class _Shown(ast.NodeTransformer):
    """Puts a constant in the place of its name, where that tells more."""

    def __init__(self, module: str) -> None:
        self._module = module

    def visit_Name(self, name: ast.Name) -> ast.expr:
        """A constant of the package by its value."""
        is_constant = name.id.strip("_").isupper()
        found = definition(self._module, name.id) if is_constant else None
        value = getattr(found.node, "value", None) if found else None
        is_short = isinstance(value, ast.expr) and len(ast.unparse(value)) <= _LONGEST_DEFAULT
        return value if is_short and isinstance(value, ast.expr) else name

    def visit_Attribute(self, member: ast.Attribute) -> ast.expr:
        """What a constant has in one of its fields: as it was made, or else as its class says."""
        found = definition(self._module, ast.unparse(member.value))
        made = getattr(found.node, "value", None) if found else None
        if found is None or not isinstance(made, ast.Call):
            return member
        given = {word.arg: word.value for word in made.keywords}
        of = definition(found.module, ast.unparse(made.func))
        fields = of.node.body if of and isinstance(of.node, ast.ClassDef) else []
        defaults = {_assigned(one): getattr(one, "value", None) for one in fields}
        value = given.get(member.attr) or defaults.get(member.attr)
        return value if isinstance(value, ast.expr) else member

    def visit_Call(self, call: ast.Call) -> ast.expr:
        """What nobody can write into, by what it has."""
        if ast.unparse(call.func) == "MappingProxyType":
            return call.args[0]
        return call


def plain_default(value: ast.expr, module: str) -> ast.expr:
    """A default as a reader can understand it, without the names of constants."""
    shown = _Shown(module).visit(ast.parse(ast.unparse(value), mode="eval").body)
    return shown if isinstance(shown, ast.expr) else value
