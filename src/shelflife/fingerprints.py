"""A fingerprint names the code of a function and what that refers to: a deploy that changes what the function may
say changes it.

Processes that run the same source with the same Python agree on it. So nothing counts that may differ between them:
no hash seed, address, file name, line number or `repr`. Attributes are read where they are kept.

What can be reached is written down as a graph, the nearest first. Each thing is a list of members, and a member is a
plain value or the number of another thing. So cycles need no care, and nothing is too deep. Functions and classes of
the user are looked into. Those of the standard library and of installed packages count by their names. The order of a
dict counts, because a function may walk it; that of a set does not.

Ask for it when all modules are loaded: a global that is not there yet counts as absent. Of a module of the user from
which something is taken, only that counts; one that is handed around counts whole. What a function imports when it
runs is imported, and no other code of the user runs.
"""

import builtins
import dis
import functools
import gc
import importlib
import re
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from enum import EnumMeta
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

__all__ = ["MOST_VALUES", "Reach", "digest_of", "fingerprint", "reach_of"]

MOST_VALUES = 100_000
"""How many values in collections and objects are looked at. A collection beyond that counts by type and length."""

_HEX_DIGITS = 12
_MOST_AROUND = 20
_ABSENT = object()
_KINDS_OF_FUNCTION = 0x3AC
"""The flags of code that tell `*args`, `**fields`, generators and coroutines."""
_GLOBAL_READS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_TAKING = frozenset({"LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM"})
_SET_BY_IMPORT = frozenset({"__cached__", "__doc__", "__file__", "__name__", "__path__"})
_STRUCT_PARTS = ("__struct_fields__", "__struct_encode_fields__", "__struct_defaults__")
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\]")

_PLAIN: dict[type, Callable[[Any], bytes]] = {
    str: lambda text: text.encode("utf-8", "surrogatepass"),
    bytes: bytes,
    int: lambda number: b"%x" % number,
    float: lambda number: number.hex().encode(),  # tells 0.0 from -0.0
    complex: lambda number: f"{number.real.hex()} {number.imag.hex()}".encode(),
    **{type(one): lambda one: str(one).encode() for one in (True, None, ..., NotImplemented)},
}
"""Values without members, by their exact type."""

_CONTENT: dict[type, Callable[[Any], Any]] = {
    **{kind: kind.__iter__ for kind in (tuple, list, deque, set, frozenset)},
    dict: lambda mapping: [part for item in list(dict.items(mapping)) for part in item],
    str: lambda text: [str.__str__(text)],
    bytes: lambda text: [bytes.__bytes__(text)],
    bytearray: lambda text: [bytes(memoryview(text))],
    int: lambda number: [int.__index__(number)],
    float: lambda number: [float.__float__(number)],
    types.MappingProxyType: gc.get_referents,  # the mapping behind it
    types.CellType: lambda cell: [cell.cell_contents],
}
"""What is in a collection, or in an instance of a subclass of a plain type. The subclass is not asked."""

_OPEN: frozenset[type] = frozenset(
    {classmethod, property, range, slice, staticmethod, re.Pattern, defaultdict, functools.cached_property}
    | {functools.partial, functools.partialmethod, functools.singledispatchmethod, type(functools.cache(len))}
    | {types.MethodType, types.SimpleNamespace}
)
"""Types of the standard library whose attributes count, as those of the user's own types do."""

_PICKLED = {
    "array",
    "collections",
    "datetime",
    "decimal",
    "fractions",
    "ipaddress",
    "operator",
    "pathlib",
    "string",
    "uuid",
    "zoneinfo",
}
"""Modules of the standard library whose values count as what they would be pickled as."""

_ONE_OF_A_KIND: frozenset[type] = frozenset(
    {deque, dict, list, set, types.CellType, types.FunctionType, types.ModuleType}
)
"""Types whose every object is made by the program, so that it is known again."""

_METHODS: frozenset[type] = frozenset({classmethod, property, staticmethod, types.FunctionType})
_WHAT_COUNTS = frozenset({"__func__", "__pydantic_fields__", "__self__", "__wrapped__"})
_OPEN_MODULES = frozenset({"msgspec._core", "pydantic.fields"})


class Reach(NamedTuple):
    """What a function may do, and with what."""

    fingerprint: str
    functions: tuple[types.FunctionType, ...]
    """The user's own functions that it refers to, itself among them."""
    named: tuple[tuple[Mapping[str, object], str], ...]
    """The globals that these name, each with where it is found."""
    things: tuple[object, ...]
    """All that was found, the nearest first."""


def reach_of(function: Callable[..., Any]) -> Reach:
    """What can be reached from a function, and the fingerprint of that."""
    walk = _Walk(function, _home_of(function), MOST_VALUES)
    return Reach(walk.digest.hex()[:_HEX_DIGITS], tuple(walk.functions), tuple(walk.named), tuple(walk.found))


def fingerprint(function: Callable[..., Any]) -> str:
    """Twelve hex digits for what a function may do: its code, and all that this refers to."""
    return reach_of(function).fingerprint


def digest_of(value: object, function: Callable[..., Any], most_values: int) -> bytes:
    """Tells what a value of a function is from what it was. A collection beyond the bound counts by type and length."""
    return _Walk(value, _home_of(function), most_values).digest


def _home_of(function: Callable[..., Any]) -> str:
    home = None
    with suppress(Exception):
        home = function.__module__
    return str(home)


class _Walk:
    """A walk over all that can be reached from one thing."""

    def __init__(self, root: object, home: str, left: int, around: tuple[int, ...] = ()) -> None:
        self._home = home
        """The module of the function that is asked for."""
        self._around = around
        """The sets that this walk is inside of."""
        self.left = left
        """How many more values may be looked at."""
        self._numbers: dict[int, int] = {}
        self.found: list[object] = []
        """All that was found, by number. It is kept, so that no address comes to stand for two things."""
        self.functions: list[types.FunctionType] = []
        """Those of the user, whose code counts."""
        self.named: list[tuple[Mapping[str, object], str]] = []
        digest = sha256(self._written(root))
        for thing in self.found:  # it grows as we go
            try:
                members = list(self._members(thing))
            except Exception:  # noqa: BLE001 - whatever it is, it cannot be looked into
                members = ["opaque", *_name(type(thing))]
            digest.update(b"(%s)" % b"".join(map(self._written, members)))
        self.digest = digest.digest()

    def _written(self, value: Any) -> bytes:
        """A plain value itself; of anything else its number."""
        kind = type(value)
        if _is_in(_PLAIN, kind):
            plain = _PLAIN[kind](value)
            return b"%s %d:%s" % (kind.__name__.encode(), len(plain), plain)
        number = self._numbers.get(id(value), len(self.found))
        if number == len(self.found):
            self.found.append(value)
            # Whether equal constants or patterns are one object is up to a compiler or a cache, so they count as two.
            if _is_in(_ONE_OF_A_KIND, kind) or issubclass(kind, type) or self._is_own(_name(kind)[0]):
                self._numbers[id(value)] = number
        return b"#%d;" % number

    def _members(self, thing: Any) -> Iterator[object]:
        kind = type(thing)
        if kind is types.FunctionType:
            return self._of_function(thing)
        if kind is types.CodeType:
            return self._of_code(thing, {})
        if kind is types.ModuleType:
            name = vars(thing).get("__name__")
            return iter(("module", name, *(_listed(vars(thing)) if self._is_own(name) else ())))
        return self._of_class(thing) if issubclass(kind, type) else self._of_object(thing, kind)

    def _of_function(self, function: types.FunctionType) -> Iterator[object]:
        code, namespace = function.__code__, function.__globals__
        yield from ("function", function.__defaults__, function.__kwdefaults__, function.__closure__)
        if self._is_own(namespace.get("__name__")):
            self.functions.append(function)
            yield from _listed({**vars(function), "__wrapped__": None})  # if that runs, it is closed over
            yield from self._of_code(code, namespace)
        else:
            yield from (namespace.get("__name__"), code.co_qualname)

    def _of_code(self, code: types.CodeType, namespace: Mapping[str, object]) -> Iterator[object]:
        """What it does, with the globals that it refers to, and the same of the code inside it.

        Constants stand where they are used, so a docstring is not among them. Locals have numbers, parameters also
        names.
        """
        yield from (code.co_argcount, code.co_posonlyargcount, code.co_flags & _KINDS_OF_FUNCTION)
        yield from (code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], code.co_exceptiontable)
        value: object = None
        steps = _steps_of(code)
        for at, step in enumerate(steps):
            owner, value = value, None
            yield step.opname
            if step.opcode in dis.hasname:
                yield step.argval
                if step.opname in _GLOBAL_READS and step.argval not in _SET_BY_IMPORT:
                    value = namespace.get(step.argval, vars(builtins).get(step.argval, _ABSENT))
                    self.named.append((namespace, step.argval))
                elif step.opname == "IMPORT_NAME":
                    value = _imported(step.argval, steps[at - 2].argval, namespace)
                elif type(owner) is types.ModuleType and self._is_own(vars(owner).get("__name__")):
                    value = vars(owner).get(step.argval, vars(owner).get("__getattr__", _ABSENT))
                    self.named.append((vars(owner), step.argval))
                # of a module from which something is taken at once, only that counts
                is_taken_from = type(value) is types.ModuleType and steps[at + 1].opname in _TAKING
                if value is not None and not is_taken_from:
                    yield value
            elif step.opcode not in dis.hasconst:
                yield step.arg
            elif type(step.argval) is types.CodeType:
                yield from self._of_code(step.argval, namespace)
            else:
                yield step.argval

    def _of_class(self, cls: type) -> Iterator[object]:
        module, name = _name(cls)
        if not self._is_own(module):
            yield from ("class", module, name)
            return
        yield from ("class", name, type(cls), _static(cls, "__bases__"))
        yield from _listed(_static(cls, "__dict__"))
        if issubclass(type(cls), type(msgspec.Struct)):
            yield from (type.__getattribute__(cls, part) for part in _STRUCT_PARTS)

    def _of_object(self, thing: object, kind: type) -> Iterator[object]:
        module = _name(kind)[0]
        is_open = _is_in(_OPEN, kind) or module in _OPEN_MODULES or self._is_own(module)
        content, attributes = _content(thing, kind), _listed(_attributes(thing, kind)) if is_open else []
        yield from (kind, len(content))
        if len(content) + len(attributes) > self.left:
            return
        self.left -= len(content) + len(attributes)
        yield from self._of_set(thing, content) if issubclass(kind, (set, frozenset)) else content
        yield from attributes
        if issubclass(type(kind), EnumMeta):
            yield vars(thing).get("_name_")
        elif not is_open and not content:
            # a function that is not written in Python, or what cannot be looked into
            for name in ("__module__", "__qualname__", "__name__", "__self__"):
                yield from _kept(thing, name)

    def _of_set(self, thing: object, members: list[object]) -> list[Any]:
        """The members by their digests. Each has a walk of its own, so it is the same in whatever order they come."""
        around = (*self._around, id(thing))
        if id(thing) in self._around or len(around) > _MOST_AROUND:
            return ["around", around.index(id(thing))]
        share = self.left // max(len(members), 1)
        walks = [_Walk(member, self._home, share, around) for member in members]
        self.left -= sum(share - walk.left for walk in walks)
        return sorted(walk.digest for walk in walks)

    def _is_own(self, module: object) -> bool:
        """Whether a module is the user's: that of the function, one of the same package, or one that is not installed."""
        if type(module) is not str:
            return True
        top = module.partition(".")[0]
        if top in sys.stdlib_module_names or top == "shelflife":  # the library's own apis are users of it
            return top == "shelflife" and module == self._home
        files = map(str, _kept(sys.modules.get(module), "__file__"))
        return top == self._home.partition(".")[0] or not any(map(_INSTALLED.search, files))


@functools.lru_cache(maxsize=256)
def _steps_of(code: types.CodeType) -> tuple[dis.Instruction, ...]:
    """The instructions of a function. Many policies are made of one code, and look at the same others."""
    return tuple(dis.get_instructions(code))


def _imported(name: str, level: object, namespace: Mapping[str, Any]) -> object:
    """The module that a function imports when it runs. It is imported now, so that all processes have it."""
    package = namespace.get("__package__")
    with suppress(Exception):
        named = "." * level + name if type(level) is int else name
        return importlib.import_module(named, package if type(package) is str else None)
    return _ABSENT


def _is_in(kinds: Container[type], kind: type) -> bool:
    """Whether it is one of these. A class with a metaclass is none of them, and may not be hashable."""
    return type(kind) is type and kind in kinds


def _static(cls: type, name: str) -> Any:
    """What a class keeps under one of the names that all classes have, without asking its metaclass."""
    return vars(type)[name].__get__(cls)


def _name(cls: type) -> tuple[str, str]:
    """The module and the name of a class."""
    module = None
    with suppress(AttributeError):
        module = _static(cls, "__module__")
    return module if type(module) is str else "", _static(cls, "__qualname__")


def _kept(thing: object, name: str) -> list[object]:
    """The attribute if there is one, without asking the object's `__getattr__`."""
    with suppress(Exception):
        return [object.__getattribute__(thing, name)]
    return []


def _content(thing: object, kind: type) -> list[Any]:
    """What is in a collection, and what a value is made of."""
    for base in _static(kind, "__mro__"):
        if _is_in(_CONTENT, base):
            return list(_CONTENT[base](thing))
        if _name(base)[0].partition(".")[0] in _PICKLED:
            return [base.__reduce_ex__(thing, 2)]
    return []


def _attributes(thing: object, kind: type) -> dict[str, object]:
    """What an object keeps in its slots and in its dictionary."""
    kept: dict[str, object] = {}
    for cls in reversed(_static(kind, "__mro__")):
        for name, slot in _static(cls, "__dict__").items():
            if type(slot) is types.MemberDescriptorType:
                with suppress(AttributeError):
                    kept[name] = slot.__get__(thing)
    for dictionary in _kept(thing, "__dict__"):
        kept |= dictionary if type(dictionary) is dict else {}
    return kept


def _listed(namespace: Mapping[str, object]) -> list[object]:
    """Each name with its value, in sorted order. Of those with underscores around them, only what runs."""
    return [
        part
        for name in sorted(name for name in namespace if type(name) is str)
        if not (name.startswith("__") and name.endswith("__"))
        or name in _WHAT_COUNTS
        or _is_in(_METHODS, type(namespace[name]))
        for part in (name, namespace[name])
    ]
