"""The wordings of the lab's base prompt. They are data: what is said, and where the values go."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from shelflife.client.prompts import MemoryWords
from shelflife.lab.spec import PLAIN_WORDING

__all__ = ["Wording", "wording_of_system", "wordings"]


class Wording(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to say the base prompt."""

    system: str
    """Before any task, with `{operation}`, `{fields}` and, word for word, `{merge}`.

    Its last line has suggestions merged verbatim: that is the protocol's Level 2, and is left out below it.
    """

    task: str
    """Introduces a task, with `{task}`."""

    input: str
    """Introduces its input where nothing is amended."""

    answered: str
    """Introduces what the server said, with `{status}`."""

    no_request: str
    """Said in its place where a reply had no request in it."""

    again: str
    """Asks for the next request."""

    memory: MemoryWords = MemoryWords()
    """Introduces what is remembered."""


@cache
def wordings() -> Mapping[str, Wording]:
    """All that there are, by their names."""
    text = files("shelflife.lab").joinpath("wordings.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Wording])


def wording_of_system(system: str) -> Wording:
    """The wording in which a planner was spoken to, by how the system prompt begins; the plain one if it is none of these."""
    for wording in wordings().values():
        if system.startswith(wording.system.partition("{")[0]):
            return wording
    return wordings()[PLAIN_WORDING]
