"""MCP servers under the contract, of the SDK and of FastMCP: what a call is told, and what can be asked."""

import asyncio
import json
import logging
import threading
from types import SimpleNamespace

import fastmcp
import pytest
from fastmcp.exceptions import ToolError as FastToolError
from fastmcp.server.middleware import Middleware
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError

from shelflife.contract.envelopes import META_KEY, Envelope, Trailed
from shelflife.contract.preconditions import PRECONDITION_HEADER, Precondition
from shelflife.integrations import fastmcp as of_fastmcp
from shelflife.integrations import mcp as of_sdk
from shelflife.server import Rejected, UsageError, WireFormat, fix
from tests.agents.mcp_shops import (
    FIXES,
    KINDS,
    MODES,
    WANTED,
    Shop,
    agent_of,
    answered,
    asked,
    called,
    shop_provider,
)

AT = {META_KEY: {"Contract-At": "*:me"}}
RIGHT = WANTED | {"promo": "SUMMER"}


def suggestion_in(result):
    [suggestion] = Envelope.from_meta(result.meta).body["recovery_feedback"]["suggestions"]
    return suggestion


@pytest.mark.spec("16.1", "16.2")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("checked", [[], ["subscribe"]])
@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_tells_a_model_what_to_change_and_a_memory_the_contract(kind, checked, mode):
    result = called(Shop(kind, checked=checked), meta=AT, mode=mode)
    trailed = Trailed.from_text(result.content[0].text)
    assert trailed.text.splitlines() == [
        "This call was not carried out. This plan needs the code that is assigned to it.",
        "Call subscribe again with the same arguments, except:",
        '- set promo to "SUMMER"',
    ]
    envelope = Envelope.from_meta(result.meta)
    assert trailed.envelope == envelope
    assert (result.is_error, result.structured_content, envelope.status) == (True, None, 422)
    suggestion = suggestion_in(result)
    assert (suggestion["parameters"], suggestion["on"]) == ({"promo": "SUMMER"}, {"codes": {"=plan": "code"}})


@pytest.mark.spec("16.3")
@pytest.mark.parametrize("kind", KINDS)
def test_a_success_carries_only_its_stamp_and_that_in_metadata(kind):
    shop = Shop(kind)
    named, plain = called(shop, RIGHT, AT), called(shop, RIGHT)
    assert Envelope.from_meta(named.meta).body.keys() == {"at"}
    assert Envelope.from_meta(plain.meta).body.keys() == {"table_versions", "rules_version"}
    assert [block.text for block in named.content] == ["made with SUMMER"]
    assert named.structured_content == {"result": "made with SUMMER"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_is_checked_does_not_run_when_it_is_refused(kind):
    shop = Shop(kind, checked=["subscribe"])
    assert called(shop).is_error
    assert shop.calls == []
    assert not called(shop, RIGHT).is_error
    assert shop.calls == ["SUMMER"]


def with_shipping(shop):
    @shop.server.tool()
    def ship(count: int = 3, fast: bool = False) -> str:
        """Ship."""
        return f"{count} {fast}"

    @shop.provider.policy(operation="CALL /ship")
    def at_most_two(request, tables):
        """So many are not shipped slowly."""
        if request["count"] > 2 and tables.other["x"]["y"] and not request["fast"]:
            return fix("FEWER", count=2)
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_policies_see_what_a_checked_tool_is_given_and_conditions_speak_of_what_was_sent(kind):
    shop = Shop(kind, checked=["ship"], extend=with_shipping)
    for arguments in ({}, {"count": "7"}, {"count": 7, "fast": "false"}):
        suggestion = suggestion_in(called(shop, arguments, tool="ship"))
        when = {"count": None, "fast": None} | arguments
        assert (suggestion["cache_hint"], suggestion["when"]) == ("cacheable", when)
    assert not called(shop, {"count": "9", "fast": "true"}, tool="ship").is_error
    refused = called(shop, {"count": "many"}, tool="ship")
    assert refused.is_error
    assert "count" in refused.content[0].text


@pytest.mark.spec("16.5")
@pytest.mark.parametrize("kind", KINDS)
def test_policies_of_an_api_are_those_of_the_tool_that_is_the_same_operation(kind):
    provider = shop_provider()

    @provider.policy(operation="POST /subscriptions")
    def no_basic(request, tables):
        """There is no basic plan any more."""
        return (
            fix("USE_GROWTH", plan=tables.codes.get("growth") and "growth")
            if request["plan"] == "free"
            else None
        )

    shop = Shop(kind, provider=provider, operations={"subscribe": "POST /subscriptions"})
    assert suggestion_in(called(shop, {"plan": "free"}))["type"] == "USE_GROWTH"
    for operation in ("CALL /subscribe", "POST /subscriptions"):
        question = FIXES._replace(
            body=json.dumps({"operation": operation, "request": {"plan": "free"}}).encode()
        )
        [suggestion] = answered(shop, question.text)["body"]["recovery_feedback"]["suggestions"]
        assert suggestion["type"] == "USE_GROWTH"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("option", [{"checked": ["subscrib"]}, {"operations": {"subscrib": "POST /x"}}])
def test_a_server_does_not_start_when_install_names_no_tool_of_its(kind, option):
    shop = Shop(kind, **option)
    for _ in range(2):  # it is not let through the second time
        with pytest.raises(UsageError, match=r"no such tool; it has .*'subscribe'") as raised:
            called(shop)
        assert str(raised.value).startswith("install names the tool 'subscrib', and the server has no such")


def test_names_of_tools_are_a_list():
    for option in ("checked", "fixes"):
        with pytest.raises(UsageError, match="'subscribe' is one text; give a list of tools"):
            Shop("sdk", **{option: "subscribe"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_does_not_start_with_a_policy_for_a_tool_that_is_not_there(kind):
    provider = shop_provider()
    provider.policy(operation="CALL /subscrib")(lambda request, tables: None)
    with pytest.raises(UsageError, match=r"is it CALL /subscribe\?"):
        called(Shop(kind, provider=provider))


@pytest.mark.parametrize("kind", KINDS)
def test_a_mistake_that_is_made_while_a_server_runs_is_one_of_the_server_which_no_client_is_told(
    kind, caplog
):
    shop = Shop(kind)

    async def play():
        async with shop.client() as client:
            shop.provider.policy(operation="CALL /subscrib")(lambda request, tables: None)
            try:
                return (await client.call_tool("subscribe", RIGHT)).content[0].text
            except MCPError as error:  # which is how FastMCP tells it
                return str(error)

    told = {"sdk": "Error executing tool subscribe", "fastmcp": "Internal server error"}
    assert asyncio.run(play()) == told[kind]
    assert shop.calls == []
    assert "is it CALL /subscribe?" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_has_one_provider(kind):
    shop = Shop(kind)
    install = of_sdk.install if kind == "sdk" else of_fastmcp.install
    for provider in (shop.provider, shop_provider()):
        with pytest.raises(UsageError, match="a contract is installed in this server already"):
            install(shop.server, provider)
    assert called(shop).is_error


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_is_told_once_of_a_tool_that_a_policy_is_for_and_that_is_carried_out_unchecked(
    kind, caplog
):
    shop = Shop(kind, extend=with_shipping)
    for _ in range(2):
        assert not called(shop, {"count": 7}, tool="ship").is_error
    assert [record.getMessage() for record in caplog.records if record.name == "shelflife"] == [
        "there is a policy for CALL /ship, and a call was carried out without a check;"
        " call provider.check in the tool, or give install its name in checked="
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_a_policy_is_for_is_not_warned_of_when_it_checks_or_fails(kind, caplog):
    provider = shop_provider()
    provider.policy(operation="CALL /subscribe")(lambda request, tables: None)
    shop = Shop(kind, provider=provider)
    for arguments in (WANTED, RIGHT, {}):
        called(shop, arguments)
    assert [record for record in caplog.records if record.name == "shelflife"] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_provider_lives_as_long_as_the_server_runs(kind, tmp_path):
    shop = Shop(kind, provider=shop_provider(log=tmp_path / "log.db"))

    others = set(threading.enumerate())  # a server that several tests share may have its own

    def followers():
        return [
            one.name
            for one in threading.enumerate()
            if one.name.startswith("shelflife") and one not in others
        ]

    async def play():
        async with shop.client() as first:
            async with shop.client() as second:
                await second.call_tool("subscribe", RIGHT)
            await first.call_tool("subscribe", RIGHT)
            return followers()

    for _ in range(2):
        assert asyncio.run(play()) != []
        assert followers() == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_stale_precondition_is_refused_before_anything_is_done(kind):
    shop = Shop(kind)
    position = Envelope.from_meta(called(shop, RIGHT, AT).meta).body["at"]
    sure = Precondition(at=position, was={"promo": None})
    said = {META_KEY: {PRECONDITION_HEADER: sure.header, "Contract-At": f"{position}:me"}}
    met = Envelope.from_meta(called(shop, RIGHT, said).meta)
    assert (met.status, met.headers) == (200, {PRECONDITION_HEADER: "met"})
    shop.rotate()
    result = called(shop, RIGHT, said)
    envelope = Envelope.from_meta(result.meta)
    assert (envelope.status, envelope.headers[PRECONDITION_HEADER]) == (412, "failed")
    assert Trailed.from_text(result.content[0].text).text.splitlines() == [
        "This call was not carried out: values in it that were remembered are out of date.",
        "Call subscribe again with the same arguments, except:",
        '- set promo to "WINTER"',
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_tool_raises_otherwise_is_its_own(kind):
    error = ToolError if kind == "sdk" else FastToolError

    def extend(shop):
        @shop.server.tool()
        def own(how: str) -> str:
            """Answer by itself."""
            try:
                shop.provider.check(WANTED, "CALL /own")
            except Rejected as refusal:
                if how == "from":
                    raise error("the shop is closed") from refusal
                if how == "crash":
                    raise ZeroDivisionError("of its own") from refusal
            return "never mind"

    shop = Shop(kind, extend=extend)
    for how, is_error in (("from", True), ("crash", True), ("return", False)):
        result = called(shop, {"how": how}, tool="own")
        assert result.is_error is is_error
        assert "shelflife" not in result.content[0].text
        assert "USE_REQUIRED" not in str(result.meta)
    assert called(shop, {}, tool="nothing").is_error


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_is_not_logged_as_a_crash(kind, caplog):
    with caplog.at_level(logging.WARNING):
        called(Shop(kind))
    assert caplog.records == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_fails_tells_the_client_nothing_but_that(kind, caplog):
    provider = shop_provider()

    @provider.policy
    def broken(request, tables):
        return tables.nowhere["secret"]

    result = called(Shop(kind, provider=provider))
    assert (result.is_error, result.content[0].text) == (True, "internal server error")
    assert "broken" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_is_called_by_a_tool_is_checked_for_itself(kind):
    def extend(shop):
        @shop.server.tool()
        async def twice(plan: str) -> str:
            """Subscribe through the other tool."""
            try:
                await shop.server.call_tool("subscribe", {"plan": plan})
            except (ToolError, FastToolError) as error:
                return f"refused by {type(error.__cause__).__name__}"
            return "made"

        @shop.provider.policy(operation="CALL /twice")
        def never(request, tables):
            """Not this tool."""
            return fix("NEVER", plan="x")

    stale = {META_KEY: {PRECONDITION_HEADER: Precondition(at="ABCDEF9").header}}
    result = called(Shop(kind, extend=extend), tool="twice", meta=stale)
    assert (result.is_error, result.content[0].text) == (False, "refused by Rejected")


@pytest.mark.spec("16.4")
@pytest.mark.parametrize("kind", KINDS)
def test_metadata_that_is_not_understood_is_refused_and_nothing_is_done(kind):
    shop = Shop(kind)
    for said in ("x", 3, ["x"], {"Contract-At": 1}, {PRECONDITION_HEADER: "nonsense"}):
        result = called(shop, RIGHT, {META_KEY: said})
        assert result.is_error, said
    assert shop.calls == []
    assert not called(shop, RIGHT, {META_KEY: {"Contract-At": "nonsense"}}).is_error


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_sees_one_state_from_start_to_end(kind):
    shop = Shop(kind)
    shop.before_check = shop.rotate
    assert not called(shop, RIGHT).is_error
    shop.before_check = lambda: None
    assert called(shop, RIGHT).is_error


@pytest.mark.parametrize("kind", KINDS)
def test_at_level_0_there_is_only_the_sentence(kind):
    shop = Shop(kind, provider=shop_provider(wire=WireFormat(level=0)))
    result = called(shop)
    assert (result.content[0].text, Envelope.from_meta(result.meta)) == (
        "This plan needs the code that is assigned to it.",
        None,
    )
    assert Envelope.from_meta(called(shop, RIGHT).meta) is None
    assert answered(shop, "shelflife://contract/state")["status"] == 404


@pytest.mark.spec("16.6")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_questions_of_a_memory_are_answered_through_the_session(kind, mode):
    shop = Shop(kind)
    state = answered(shop, "shelflife://contract/state", mode)
    assert (state["status"], state["body"].keys()) == (200, {"table_versions", "rules_version"})
    position = answered(shop, "shelflife://contract/changes?from=*", mode)["body"]["to"]
    shop.rotate()
    moved = answered(shop, f"shelflife://contract/changes?from={position}", mode)["body"]["moved"]
    assert moved["tables"]["codes"] == {"changed": ["growth"], "columns": {"growth": ["code"]}}
    called(shop, mode=mode)
    told = answered(shop, FIXES._replace(at=f"{position}:me").text, mode)
    assert told["body"]["recovery_feedback"]["suggestions"][0]["parameters"] == {"promo": "WINTER"}
    for wrong, status in (("state/x", 404), ("changes", 400), ("changes?to=1", 400), ("fixes", 405)):
        assert answered(shop, f"shelflife://contract/{wrong}", mode)["status"] == status


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_never_to_be_cached_and_other_resources_are_as_they_were(kind):
    def extend(shop):
        shop.server.resource("shop://plans", name="plans")(lambda: "growth, basic")

    shop = Shop(kind, extend=extend)
    assert asked(shop, "shelflife://contract/state").ttl_ms == 0
    assert asked(shop, "shop://plans").contents[0].text == "growth, basic"

    async def listed():
        async with shop.client() as client:
            return [str(one.uri) for one in (await client.list_resources()).resources]

    assert asyncio.run(listed()) == ["shop://plans"]


class Gate(Middleware):
    """What may keep somebody out."""


@pytest.mark.parametrize("kind", KINDS)
def test_fixes_are_told_without_a_call_only_of_tools_with_nothing_before_them(kind):
    async def gate(context, call_next):
        return await call_next(context)

    def extend(shop):
        shop.server.middleware.append(gate if kind == "sdk" else Gate())

    for options, status in (
        ({}, 200),
        ({"extend": extend}, 404),
        ({"extend": extend, "fixes": ["subscribe"]}, 200),
    ):
        shop = Shop(kind, **options)
        called(shop)
        assert answered(shop, FIXES.text)["status"] == status, options


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_says_that_it_has_the_contract_as_an_extension(kind):
    async def play():
        async with Shop(kind).client() as client:
            return client.server_capabilities.extensions

    assert META_KEY in asyncio.run(play())


def test_fixes_of_a_tool_that_is_mounted_and_checks_by_itself_are_kept():
    provider, outer, mounted = shop_provider(), fastmcp.FastMCP("outer"), fastmcp.FastMCP("inner")

    @mounted.tool()
    def subscribe(plan: str, promo: str | None = None) -> str:
        """Make a subscription."""
        provider.check({"plan": plan, "promo": promo})
        return f"made with {promo}"

    outer.mount(mounted)
    of_fastmcp.install(outer, provider)

    async def calls():
        shop = SimpleNamespace(client=lambda kind, mode: fastmcp.Client(outer, mode=mode))
        async with agent_of(shop, "fastmcp") as agent:
            return [await agent.episode(**WANTED), await agent.episode(**WANTED)]

    assert asyncio.run(calls()) == [2, 1]
