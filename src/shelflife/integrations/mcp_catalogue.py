"""The tools of an MCP server as operations: which there are, which of them are checked, and which whoever asks could call."""

from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple, Protocol

from shelflife.contract.names import shown
from shelflife.integrations.mcp_functions import Arguments, Listed, with_check
from shelflife.server.errors import UsageError
from shelflife.server.operations import Operation, Operations
from shelflife.server.provider import Provider

__all__ = ["METHOD", "Catalogue", "Check", "HasTools", "Known"]

METHOD = "CALL"
"""That of tools: any is the operation `CALL /` and its name, unless it is one of an API."""

_UNSEEN = Operations(opaque=[""])
"""Of a server whose tools nobody has listed yet."""

_NOTHING = Operations()

_MOST_NAMED = 10
_Key = tuple[str, str]
"""The name and the version of a tool."""

Check = Callable[[Operation, Arguments, Mapping[str, Any]], None]
"""Is called right before a tool runs, with the values that it is given."""


class HasTools(Protocol):
    """A server of some framework."""

    async def all_tools(self, named: Collection[str]) -> list[Listed]:
        """All that it has, whoever may call them; also those of these names that it does not list."""

    async def tool_for(self, context: Any, name: str, version: str) -> Listed | None:
        """The one that whoever makes a request could call now, by the context of that; None when there is none."""


class Known(NamedTuple):
    """A tool as it was seen last."""

    tool: Listed
    operation: Operation
    function: Callable[..., Any] | None
    """What it runs under the contract, if it is checked."""


class Catalogue:
    """The tools of one server. They come and go while it runs."""

    def __init__(
        self,
        provider: Provider,
        server: HasTools,
        check: Check,
        checked: Collection[str],
        operations: Mapping[str, str] | None,
        fixes: Collection[str] | None,
    ) -> None:
        """`checked` and `fixes` are names of tools, and `operations` says of some which operation they are: see `install`."""
        for names in (checked, fixes or ()):
            if isinstance(names, str):
                raise UsageError(f"{shown(names)} is one text; give a list of tools")
        if not isinstance(operations, Mapping | None):
            raise UsageError(
                "operations says which operation a tool is, as in {'create_order': 'POST /orders'}"
            )
        self._provider, self._server, self._check = provider, server, check
        self._checked = frozenset(checked)
        self._named = {tool: Operation.from_name(name).name for tool, name in (operations or {}).items()}
        self._known: dict[_Key, Known] = {}
        """All tools that were ever seen."""
        self._present: frozenset[_Key] = frozenset()
        """Those that were there at the last look."""
        self._has_looked = False
        self._askable: ContextVar[Operations] = ContextVar(f"shelflife_askable_{id(self)}")
        """What whoever asks for fixes could call now."""
        provider.apps.attach(self._operations)
        told = None if fixes is None else [self._name_of(tool) for tool in fixes]
        self._disclosed = provider.apps.disclosed_fixes(lambda: self._askable.get(_NOTHING), told)

    async def be_ready(self, tool: str | None = None) -> None:
        """Before anything is answered: know which tools there are, and this one too if it has been added since."""
        if not self._has_looked or not (tool is None or any(tool == name for name, _ in self._known)):
            await self._look()

    def know(self, tool: Listed) -> Known:
        """What is known of a tool. It may have been replaced since it was seen last."""
        key = tool.name, tool.version
        before = self._known.get(key)
        if before is None or not before.tool.is_as(tool):
            arguments = Arguments(tool) if tool.name in self._checked else None
            method, _, template = self._name_of(tool.name).partition(" ")
            operation = Operation.of_route(
                method,
                template,
                guards=tool.guards,
                is_stamped=not tool.guards,
                endpoint=tool.name,
                body=arguments.reader if arguments else tool.reader_of_its_own_check(),
            )
            check = arguments and partial(self._check, operation, arguments)
            function = with_check(tool.function, check) if tool.function and check else None
            self._known[key] = Known(tool, operation, function)
            self._provider.apps.be_unheld()
        return self._known[key]

    def be_able_to_check(self, tool: Listed) -> None:
        """`UsageError` when a tool is to be checked, and cannot be."""
        if tool.name in self._checked and tool.obstacle:
            raise UsageError(
                f"install is to check the tool {shown(tool.name)} before it runs, and a check comes after every login:"
                f" {tool.obstacle}; call provider.check in it instead"
            )

    def disclosed(self, asked: str) -> Operation | None:
        """The operation of a tool that a client names, if its fixes may be told without a call. `be_asked` comes first."""
        return self._disclosed(self._meant(asked))

    async def be_asked(self, asked: str, context: Any) -> None:
        """Before fixes are told without a call: look which tools there are now, and which whoever asks would find.

        All others count too: a policy for every tool is told only where nobody is kept from any of them.
        """
        await self._look()
        operations = {key: self._operation(key) for key in self._known}
        asked_for = Operations(operations.values()).find_named(self._meant(asked))
        are_open, is_there = not any(one.is_guarded for one in operations.values()), False
        for key in self._present:
            is_meant = asked_for is not None and operations[key].name == asked_for.name
            if is_meant or are_open:
                tool = await self._server.tool_for(context, *key)
                operations[key] = self.know(tool).operation if tool else _closed(operations[key])
                is_there = is_there or (is_meant and tool is not None)
        self._askable.set(Operations(operations.values()) if is_there else _NOTHING)

    async def _look(self) -> None:
        named = {*self._checked, *self._named}
        tools = await self._server.all_tools(named)
        missing = named - {one.name for one in tools}
        if not self._has_looked:  # a tool that is taken away later is nobody's mistake
            if missing:
                there = ", ".join(sorted(shown(one.name) for one in tools)[:_MOST_NAMED]) or "none"
                raise UsageError(
                    f"install names the tool {shown(min(missing))}, and the server has no such tool; it has {there}"
                )
            for one in tools:
                self.be_able_to_check(one)
        for one in tools:
            self.know(one)
        self._present = frozenset((one.name, one.version) for one in tools)
        self._has_looked = True

    def _operations(self) -> Operations:
        return Operations(self._operation(key) for key in list(self._known)) if self._has_looked else _UNSEEN

    def _operation(self, key: _Key) -> Operation:
        """That of a tool. One that is gone is known as before, to whom policies name it, and is open to nobody."""
        operation = self._known[key].operation
        return operation if key in self._present else _closed(operation)

    def _meant(self, asked: str) -> str:
        method, _, tool = asked.partition(" /")
        return self._name_of(tool) if method == METHOD else asked

    def _name_of(self, tool: str) -> str:
        return self._named.get(tool, f"{METHOD} /{tool}")


def _closed(operation: Operation) -> Operation:
    return operation._replace(guards=("",))
