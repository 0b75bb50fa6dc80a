"""What each adapter can do. The suite holds them to it, both ways, and so does the table in the documents."""

from typing import NamedTuple


class Can(NamedTuple):
    """What is not the same in all of them. Each learns, applies and evicts."""

    run_again: bool
    """Run a tool again, so that a stale precondition is mended without a turn of the model."""

    hide_the_trailer: bool
    """Take the contract out of the text of an error before a model is shown it."""


CAPABILITIES = {
    "LangChain": Can(run_again=True, hide_the_trailer=True),
    "OpenAI Agents SDK": Can(run_again=True, hide_the_trailer=True),
    "Pydantic AI": Can(run_again=True, hide_the_trailer=True),
    "Claude Agent SDK": Can(run_again=False, hide_the_trailer=False),
}
