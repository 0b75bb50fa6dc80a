"""The public names of a module, with their signatures and docstrings, as Sphinx writes them."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from _book.definitions import Definition, all_of, definition, docstring_below, plain_default

__all__ = ["names_of", "settings_of"]

_MOST_FIELDS = 12
"""With more, nobody makes such a value by hand, and its fields are told one by one."""
_NAME = re.compile(r"(\w+)(?:\((.*?)\))?")
_LISTED = re.compile(r"^- `(\w+)`:? (.*(?:\n  .*)*)", re.MULTILINE)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Field(NamedTuple):
    name: str
    type: str
    default: str | None
    says: str


def names_of(said: str) -> str:
    """The names of a module: `shelflife.server`, or `shelflife.server Fix Provider(check policy)`, where of a class only some is shown."""
    module, _, chosen = said.partition(" ")
    wanted = {name: members.split() for name, members in _NAME.findall(chosen)}
    wanted = wanted or {name: [] for name in sorted(all_of(module), key=str.lower)}
    return "\n".join(_shown(module, name, members) for name, members in wanted.items())


def settings_of(said: str) -> str:
    """What can be set when a value is made, in a table, from the same docstrings."""
    module, _, names = said.partition(" ")
    lines = []
    for name in names.split():
        found = _found(module, name)
        lines += [
            f"\n### {name}\n",
            f"{_paragraph(found.says)}\n",
            "| setting | default | |",
            "| --- | --- | --- |",
        ]
        assert isinstance(found.node, ast.ClassDef)
        made_in = (_initialiser(found) or (found.module,))[0]
        for field in _fields(found) or _parameters(found):
            default = "" if field.default is None else f"`{field.default}`"
            if definition(made_in, field.default or "") is not None:
                default = "built in"  # a function, whose name tells nothing
            lines.append(f"| `{field.name}` | {default} | {_cell(field.says)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _paragraph(docstring: str) -> str:
    return docstring.partition("\n\n")[0]


def _found(module: str, name: str) -> Definition:
    found = definition(module, name)
    assert found is not None, f"{module}.{name} is not defined anywhere"
    return found


def _shown(module: str, name: str, members: list[str]) -> str:
    found = _found(module, name)
    node = found.node
    if isinstance(node, ast.ClassDef):
        return _class_shown(module, found, members)
    if isinstance(node, _Function):
        return _block("function", f"{name}{_signature(node, found.module)}", found.says, module, _flags(node))
    value = ast.unparse(getattr(node, "value", node))
    return _block("data", name, found.says, module, [f":value: {value}"])


def _block(
    kind: str, signature: str, says: str, module: str = "", options: list[str] | None = None, inner: str = ""
) -> str:
    fence = "::::" if inner or module else ":::"
    head = [
        f"{fence}{{py:{kind}}} {signature}",
        *([f":module: {module}"] if module else []),
        *(options or []),
    ]
    return "\n".join([*head, "", inspect.cleandoc(says), "", inner, fence, ""])


def _class_shown(module: str, found: Definition, members: list[str]) -> str:
    node = found.node
    assert isinstance(node, ast.ClassDef)
    made = _initialiser(found)
    fields = _fields(found)
    signature, says = "", found.says
    if made is not None:
        where, function = made
        signature = _signature(function, where, is_method=True)
        says = f"{says}\n\n{ast.get_docstring(function) or ''}"
    elif 0 < len(fields) <= _MOST_FIELDS:
        signature = _signature_of(fields, is_kw_only="kw_only=True" in ast.unparse(node).partition(":\n")[0])
    inner = [*(_field_shown(field) for field in fields), *_members_shown(found, members)]
    kind = "exception" if _is_error(found) else "class"
    return _block(kind, f"{node.name}{signature}", says, module, inner="\n".join(inner))


def _is_error(found: Definition) -> bool:
    node = found.node
    if not isinstance(node, ast.ClassDef):
        return False
    bases = [ast.unparse(base) for base in node.bases]
    if {"Exception", "ValueError", "RuntimeError"} & set(bases):
        return True
    return any(
        above is not None and _is_error(above) for above in (definition(found.module, base) for base in bases)
    )


def _initialiser(found: Definition) -> tuple[str, _Function] | None:
    """How it is made, where that is written in the class or above it, and in which module."""
    assert isinstance(found.node, ast.ClassDef)
    for node in found.node.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return found.module, node
    for base in found.node.bases:
        above = definition(found.module, ast.unparse(base).partition("[")[0])
        if above is not None and isinstance(above.node, ast.ClassDef) and (made := _initialiser(above)):
            return made
    return None


def _fields(found: Definition) -> list[_Field]:
    """What is declared in the body of a class, and not hidden; the members of an enumeration too."""
    node = found.node
    assert isinstance(node, ast.ClassDef)
    fields = []
    for index, one in enumerate(node.body):
        says = docstring_below(node.body, index)
        if (
            isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and not one.target.id.startswith("_")
        ):
            default = None if one.value is None else _default(one.value, found.module)
            fields.append(_Field(one.target.id, ast.unparse(one.annotation), default, says))
        elif isinstance(one, ast.Assign) and ast.unparse(one.targets[0]).isupper():
            fields.append(_Field(ast.unparse(one.targets[0]), "", ast.unparse(one.value), says))
    return fields


def _default(value: ast.expr, module: str) -> str | None:
    """The default of a field; None for one that has to be given."""
    if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
        given = {word.arg: word.value for word in value.keywords}
        if "default" in given:
            return ast.unparse(given["default"])
        return f"{ast.unparse(given['default_factory'])}()" if "default_factory" in given else None
    return ast.unparse(plain_default(value, module))


def _parameters(found: Definition) -> list[_Field]:
    """What a class is made with, and what its docstring says of each in a list."""
    made = _initialiser(found)
    assert made is not None
    module, function = made
    said = dict(_LISTED.findall(ast.get_docstring(function) or ""))
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args][1:]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
    pairs = [
        *zip(plain, defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return [
        _Field(
            one.arg,
            ast.unparse(one.annotation) if one.annotation else "",
            None if default is None else ast.unparse(plain_default(default, module)),
            said.get(one.arg, ""),
        )
        for one, default in pairs
    ]


def _field_shown(field: _Field) -> str:
    options = [f":type: {field.type}"] if field.type else []
    options += [f":value: {field.default}"] if field.default is not None else []
    return _block("attribute", field.name, field.says, options=options)


def _members_shown(found: Definition, chosen: list[str]) -> Iterator[str]:
    assert isinstance(found.node, ast.ClassDef)
    for one in found.node.body:
        if not isinstance(one, _Function) or one.name.startswith("_") or (chosen and one.name not in chosen):
            continue
        decorators = [ast.unparse(decorator) for decorator in one.decorator_list]
        if "overload" in decorators:
            continue
        says = ast.get_docstring(one) or ""
        if {"property", "cached_property"} & set(decorators):
            type = f":type: {ast.unparse(one.returns)}" if one.returns else ""
            yield _block("property", one.name, says, options=[type])
        else:
            yield _block(
                "method",
                f"{one.name}{_signature(one, found.module, is_method='staticmethod' not in decorators)}",
                says,
                options=_flags(one),
            )


def _flags(node: _Function) -> list[str]:
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    flags = [f":{name}:" for name in ("classmethod", "staticmethod") if name in decorators]
    return [*flags, *([":async:"] if isinstance(node, ast.AsyncFunctionDef) else [])]


def _signature(node: _Function, module: str, *, is_method: bool = False) -> str:
    """What it is called with and gives, with constants by their values."""
    shown = ast.parse(textwrap.dedent(ast.unparse(node))).body[0]
    assert isinstance(shown, _Function)
    arguments = shown.args
    if is_method:
        (arguments.posonlyargs or arguments.args).pop(0)
    arguments.defaults = [plain_default(one, module) for one in arguments.defaults]
    arguments.kw_defaults = [one and plain_default(one, module) for one in arguments.kw_defaults]
    gives = ast.unparse(shown.returns) if shown.returns and node.name != "__init__" else ""
    if any(ast.unparse(one).endswith("contextmanager") for one in node.decorator_list):
        gives = re.sub(r"^\w*(?:Iterator|Generator)\[(.*?)(?:, None, None)?\]$", r"ContextManager[\1]", gives)
    return f"({ast.unparse(arguments)})" + (f" -> {gives}" if gives else "")


def _signature_of(fields: list[_Field], *, is_kw_only: bool) -> str:
    shown = [
        f"{one.name}"
        + (f": {one.type}" if one.type else "")
        + ("" if one.default is None else f" = {one.default}")
        for one in fields
        if one.type
    ]
    return f"({', '.join((['*'] if is_kw_only and shown else []) + shown)})" if shown else ""
