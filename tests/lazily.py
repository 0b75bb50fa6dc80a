"""Frameworks that are imported when a test first needs them: every worker collects all tests, and runs only some of them."""

import importlib


class Lazily:
    """A module to be: it is imported when something of it is asked for."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("_"):  # pytest asks each name of a module whether it is a fixture
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)
