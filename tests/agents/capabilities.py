"""What each adapter can do. The suite holds them to it, both ways, and the table in the documents says the same."""

from typing import NamedTuple


class Can(NamedTuple):
    """What is not the same in all of them. Each learns, applies and evicts, also by errors of which only the text is kept."""

    be_exact: bool
    """Keep what a change does not touch: the memory's questions are answered."""

    run_again: bool
    """Run a tool again, so that a stale precondition is mended without a turn of the model."""

    hide_the_trailer: bool
    """Take the contract out of the text of an error before a model is shown it."""


EVERYTHING = Can(be_exact=True, run_again=True, hide_the_trailer=True)

CAPABILITIES = {
    "a function": EVERYTHING,
    "LangChain": EVERYTHING,
    "LangChain, tools of its MCP adapters": Can(be_exact=True, run_again=False, hide_the_trailer=True),
    "OpenAI Agents SDK": EVERYTHING,
    "OpenAI Agents SDK, an MCP server": EVERYTHING,
    "Pydantic AI": EVERYTHING,
    "Pydantic AI, an MCP server": Can(be_exact=False, run_again=False, hide_the_trailer=True),
    "Claude Agent SDK": Can(be_exact=True, run_again=False, hide_the_trailer=False),
    "Claude Agent SDK, an MCP server": Can(be_exact=False, run_again=False, hide_the_trailer=False),
}

_HEAD = """\
| | learns, applies, evicts | by the text of an error | exact | runs the tool again | hides the contract |
| --- | --- | --- | --- | --- | --- |
"""


def table():
    """All of it, as it stands in the documents."""
    return _HEAD + "".join(
        f"| {name} | yes | yes | {' | '.join('yes' if one else 'no' for one in can)} |\n"
        for name, can in CAPABILITIES.items()
    )
