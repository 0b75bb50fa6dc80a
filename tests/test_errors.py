"""One root for all errors of the package, and a drawing that shows them all."""

import importlib
import pkgutil

import shelflife
from shelflife import errors
from shelflife.errors import ShelflifeError


def drawn():
    """Each name in the drawing with the one that it hangs from."""
    parents, tree = [], {}
    for line in errors.__doc__.splitlines():
        branch, _, rest = line.rpartition("── ")
        if line.startswith("ShelflifeError"):
            parents = ["ShelflifeError"]
        elif branch:
            name, depth = rest.split()[0], (len(branch) + 3) // 4
            tree[name] = parents[depth - 1]
            parents[depth:] = [name]
    return tree


def defined():
    """Each exception class that a module of the package defines."""
    for module in pkgutil.walk_packages(shelflife.__path__, "shelflife."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            is_error = isinstance(value, type) and issubclass(value, BaseException)
            if is_error and value.__module__ == module.name and value is not ShelflifeError:
                yield value


def test_every_error_derives_from_the_root():
    assert [error for error in defined() if not issubclass(error, ShelflifeError)] == []


def test_the_drawing_shows_every_error_where_it_hangs_and_no_other():
    assert drawn() == {error.__name__: error.__bases__[0].__name__ for error in defined()}


def test_no_two_errors_have_one_name():
    names = [error.__name__ for error in defined()]
    assert len(set(names)) == len(names)
