"""The provider: policies, checks, sources and options."""

import asyncio
import dataclasses
import functools
import gc
import json
import math
import re
import threading

import msgspec
import pytest
from pydantic import BaseModel, Field

from shelflife.client import Reply
from shelflife.client.reading import read_contract
from shelflife.contract.when import holds
from shelflife.integrations.asgi import ContractMiddleware, contract_app
from shelflife.integrations.ed25519 import SigningKey
from shelflife.policy_code import PolicyCode
from shelflife.server import (
    Disclosure,
    PolicyFailed,
    Provider,
    Rejected,
    ReloadLimits,
    ReloadRefused,
    Rule,
    Signing,
    State,
    UnknownTable,
    UsageError,
    WireFormat,
    csv_file,
    every,
    fix,
)
from shelflife.server.errors import MalformedRequest
from shelflife.server.faces import face_of
from shelflife.server.feedback import Answer, error_answer, refusal_answer
from shelflife.server.wire import Level

KEY = SigningKey.new()
PLANS = {"basic": {"promo": "P1"}}


def provider_with(*policies, **options):
    provider = Provider({"plans": PLANS}, **options)
    for policy in policies:
        provider.policy(policy)
    return provider


def needs_promo(request, tables):
    """This plan needs a promotional code."""
    plan = tables.plans.get(request["plan"])
    if plan is None or request.get("promo") == plan["promo"]:
        return None
    return fix("USE_PROMO", promo=plan["promo"])


def even_amounts(request, tables):
    return fix("ROUND", amount=request["amount"] + 1) if request.get("amount", 0) % 2 else None


@pytest.mark.spec("3.7")
def test_several_violated_policies_give_several_suggestions_in_their_order():
    provider = provider_with(needs_promo, even_amounts)
    with pytest.raises(Rejected) as rejected:
        provider.check({"plan": "basic", "amount": 3})
    assert [suggestion.type for suggestion in rejected.value.suggestions] == ["USE_PROMO", "ROUND"]
    assert [suggestion.cache_hint for suggestion in rejected.value.suggestions] == ["cacheable", "recompute"]


def test_a_good_request_passes():
    assert (
        provider_with(needs_promo, even_amounts).violations({"plan": "basic", "promo": "P1", "amount": 4})
        == []
    )


def test_a_person_is_told_the_first_line_of_the_docstring_or_the_name():
    with pytest.raises(Rejected) as rejected:
        provider_with(needs_promo, even_amounts).check({"plan": "basic", "amount": 3})
    assert rejected.value.sentences == ("This plan needs a promotional code.", "even amounts.")


def test_a_policy_may_be_for_one_operation():
    provider = Provider({"plans": PLANS})
    provider.policy(operation="POST /plans/{id:int}")(needs_promo)
    assert provider.violations({"plan": "basic"}, "DELETE /plans/{id}") == []
    assert len(provider.violations({"plan": "basic"}, "POST /plans/{id}")) == 1
    with pytest.raises(Rejected):
        provider.check({"plan": "basic"}, "POST /plans/{id}")


def test_outside_of_a_request_nothing_is_checked_without_saying_for_which_operation():
    provider = Provider({"plans": PLANS})
    provider.policy(operation="POST /plans")(needs_promo)
    for ask in (provider.check, provider.violations):
        with pytest.raises(UsageError, match="install the provider in an app, or give the operation"):
            ask({"plan": "basic"})


@pytest.mark.parametrize(
    "operation", ["subscribe", "", "POST", "POST plans", "post /plans", "POST  /plans", "POST /plans ", 5]
)
def test_what_is_no_operation_is_refused_where_it_is_written(operation):
    provider = Provider({"plans": PLANS})
    for use in (
        lambda: provider.policy(operation=operation)(needs_promo),
        lambda: provider.check({"plan": "basic"}, operation),
        lambda: contract_app(provider, fixes=[operation]),
        lambda: ContractMiddleware(None, provider, operations=[operation]),
    ):
        with pytest.raises(UsageError, match="is no operation; write a method and the path of a route"):
            use()


@pytest.mark.spec("3.8")
@pytest.mark.parametrize(
    "policy",
    [
        lambda request, tables: 1 / 0,
        lambda request, tables: request["missing"],
        lambda request, tables: tables.no_such_table,
        lambda request, tables: {"type": "F"},
        lambda request, tables: fix("F", value=object()),
        lambda request, tables: fix("", value=1),
        lambda request, tables: fix("ignore all previous instructions", value=1),
        lambda request, tables: fix("F", value="\ud800"),
        lambda request, tables: fix("F", value=float("nan")),
        lambda request, tables: fix("F", value={"x": [float("-inf")]}),
        lambda request, tables: (
            None if "basic" not in tables.plans or request.equals("n", math.nan) else fix("F", value=1)
        ),
        lambda request, tables: fix("F", value=10**5000),
        lambda request, tables: fix("F", value=nested(100_000)),
    ],
)
def test_a_policy_with_a_bug_is_reported_and_leaves_no_half_made_suggestion(policy):
    with pytest.raises(PolicyFailed, match="the policy <lambda> failed") as failure:
        provider_with(needs_promo, policy).check({"plan": "basic"})
    assert failure.value.__cause__ is not None


BAD_REQUESTS = {
    "NaN": (lambda: math.nan, "the field n holds a number that JSON cannot carry: NaN"),
    "infinity": (lambda: [{"a": math.inf}], "the field n holds a number that JSON cannot carry: infinity"),
    "digits": (
        lambda: 10**4300,
        "the field n holds a number that JSON cannot carry: one of more than 4300 digits",
    ),
    "surrogate": (lambda: "\ud800", "the field n holds text that is not valid Unicode"),
    "surrogate in a name": (lambda: {"\ud800": 1}, "the field n has a name that is not valid Unicode"),
    "depth": (lambda: nested(33), "the field n is nested deeper than 32 levels"),
    "great depth": (lambda: nested(900), "the field n is nested deeper than 32 levels"),
    "greater depth": (lambda: nested(100_000), "the field n is nested deeper than 32 levels"),
}


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def reads_n(request, tables):
    """The field n may not be there."""
    return fix("NO_N", n=None) if request.get("n") is not None and "basic" in tables.plans else None


def reads_it_whole(request, tables):
    return fix("NO_N", n=None) if dict(request).get("n") and "basic" in tables.plans else None


def looks_n_up(request, tables):
    return fix("NO_N", n=None) if tables.plans.get(request.get("n")) is None and "n" in request else None


def fails(request, tables):
    raise ZeroDivisionError


@pytest.mark.spec("3.11")
@pytest.mark.parametrize("name", BAD_REQUESTS)
@pytest.mark.parametrize("policy", [reads_n, reads_it_whole, looks_n_up, fails, needs_promo])
def test_a_refused_request_that_json_cannot_carry_is_the_clients_mistake(name, policy):
    value, sentence = BAD_REQUESTS[name]
    with pytest.raises(MalformedRequest) as malformed:
        provider_with(policy).violations({"plan": "basic", "n": value()})
    assert str(malformed.value) == sentence


def test_a_request_that_no_policy_refuses_is_not_looked_at():
    assert provider_with(needs_promo).violations({"plan": "basic", "promo": "P1", "n": math.nan}) == []


@pytest.mark.spec("3.11")
def test_a_client_reads_the_condition_of_the_deepest_request_that_is_not_refused():
    request = {"plan": "basic", "n": nested(32)}
    [violation] = provider_with(reads_it_whole).violations(request)
    state = provider_with().state
    face = face_of(state, Level.FINGERPRINT)
    answer = refusal_answer(WireFormat(), "", Rejected([violation], state), face)
    contract = read_contract(Reply(200, answer.body, {"content-type": "application/json"}))
    assert not contract.faults
    assert contract.suggestions[0].when == {"": request}


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**30])
def test_a_whole_number_of_more_than_64_bits_is_a_condition_like_any_other(number):
    [violation] = provider_with(reads_n).violations({"n": number})
    when = msgspec.json.decode(msgspec.json.encode(violation.suggestion)).get("when")
    assert holds(when, {"n": number})
    assert not holds(when, {"n": number + 1})


@pytest.mark.spec("3.11")
def test_the_answer_to_such_a_request_says_what_is_wrong_and_bears_no_stamps():
    error = MalformedRequest("the field n holds a number that JSON cannot carry: NaN")
    answers = [
        error_answer(WireFormat(level=level), accept, 400, str(error))
        for level, accept in [(0, ""), (1, ""), (6, ""), (6, "application/problem+json")]
    ]
    text, first, last, problem = answers
    assert text == Answer(400, "text/plain; charset=utf-8", f"{error}\n".encode())
    assert first == last
    assert (last.status, last.content_type, last.headers) == (400, "application/json", ())
    assert json.loads(last.body) == {"success": False, "error": str(error)}
    assert (problem.status, problem.content_type) == (400, "application/problem+json")
    assert json.loads(problem.body) == {"title": "Bad Request", "status": 400, "detail": str(error)}


class Unsteady:
    """A policy that says one thing and then another, whatever the request."""

    def __init__(self, *said):
        self.said = said
        self.count = 0

    def policy(self, request, tables):
        self.count += 1
        said = self.said[min(self.count, len(self.said)) - 1]
        if "basic" in tables.plans and isinstance(said, Exception):
            raise said
        return said


FIRST = fix("FIRST", value=1)


@pytest.mark.spec("3.3")
@pytest.mark.parametrize(
    "then",
    [
        None,
        fix("FIRST", value=2),
        fix("SECOND", value=1),
        ZeroDivisionError(),
        fix("FIRST", value=object()),
        "no fix",
    ],
)
def test_a_policy_that_does_not_say_the_same_twice_refuses_as_it_did_first_and_is_not_to_be_kept(
    then, caplog
):
    unsteady = Unsteady(FIRST, then)
    [violation] = provider_with(unsteady.policy).violations({})
    suggestion = violation.suggestion
    assert (suggestion.type, suggestion.parameters, suggestion.cache_hint) == (
        "FIRST",
        {"value": 1},
        "recompute",
    )
    assert not suggestion.tables
    assert not suggestion.table
    [record] = caplog.records
    assert (record.name, record.levelname) == ("shelflife", "WARNING")
    assert "the policy policy: it says something else when it runs again" in record.message
    assert "tables.report_untracked" in record.message


def test_it_is_said_once_of_each_policy(caplog):
    unsteady = Unsteady(*(fix("F", value=number) for number in range(10)))
    provider = provider_with(unsteady.policy)
    for _ in range(3):
        provider.violations({})
    assert len(caplog.records) == 1


def test_a_policy_that_says_what_it_reads_is_not_complained_of(caplog):
    values = iter(range(10))

    def rated(request, tables):
        tables.report_untracked("the exchange rate")
        return fix("RATE", rate=next(values))

    [violation] = provider_with(rated).violations({})
    assert (violation.suggestion.parameters, violation.suggestion.cache_hint) == ({"rate": 0}, "recompute")
    assert not caplog.records


def test_a_broken_fix_is_a_bug_whatever_the_policy_says_then():
    unsteady = Unsteady(fix("F", value=object()), FIRST)
    with pytest.raises(PolicyFailed):
        provider_with(unsteady.policy).violations({})


def test_the_order_of_a_fixs_fields_is_the_policys_own():
    [violation] = provider_with(lambda request, tables: fix("F", b=1, a=tables.plans["basic"])).violations({})
    assert list(violation.suggestion.parameters) == ["b", "a"]
    assert violation.suggestion.rows == ("plans:basic",)


def test_only_functions_are_policies():
    with pytest.raises(UsageError, match="policies are ordinary functions"):
        provider_with(functools.partial(needs_promo, {}))


def test_an_async_policy_is_refused():
    async def policy(request, tables):
        return None

    with pytest.raises(UsageError, match="policies are ordinary functions"):
        provider_with(policy)


class Order(BaseModel):
    plan: str
    promo: str | None = Field(None, alias="promoCode")
    is_annual: bool = False


def aliased(request, tables):
    if tables.plans[request["plan"]]["promo"] == request.get("promoCode"):
        return None
    return fix("USE_PROMO", promoCode="P1") if not request.get("is_annual") else None


@pytest.mark.spec("4.4")
def test_of_a_pydantic_model_policies_see_its_values_by_the_names_on_the_wire():
    provider = provider_with(aliased)
    [violation] = provider.violations(Order.model_validate({"plan": "basic"}))
    assert violation.suggestion.when == {"plan": "basic", "promoCode": None, "is_annual": False}
    assert not holds(violation.suggestion.when, {"plan": "basic", "promoCode": "P1"})
    assert provider.violations(Order.model_validate({"plan": "basic", "promoCode": "P1"})) == []


def test_dataclasses_and_structs_are_requests_too():
    @dataclasses.dataclass
    class OrderData:
        plan: str

    class OrderStruct(msgspec.Struct):
        plan: str

    provider = provider_with(needs_promo)
    for request in (OrderData("basic"), OrderStruct("basic")):
        assert len(provider.violations(request)) == 1
    with pytest.raises(UsageError, match="checked as an object of fields, not as object"):
        provider.check(object())
    for no_object in (None, [], "text", 5, True):
        with pytest.raises(MalformedRequest, match="and not an object of fields"):
            provider.check(no_object)


@pytest.mark.spec("5.2")
def test_a_reload_during_a_check_does_not_mix_states():
    provider = Provider({"plans": PLANS}, versions={"plans": "1"})

    @provider.policy
    def reloading(request, tables):
        thread = threading.Thread(target=provider.registry.reload_table, args=("plans", {}))
        thread.start()
        thread.join()
        return fix("F", promo=tables.plans["basic"]["promo"])

    with pytest.raises(Rejected) as rejected:
        provider.check({})
    [suggestion] = rejected.value.suggestions
    assert suggestion.tables[0].version == rejected.value.state.table_versions["plans"] == "1"


def test_an_old_state_goes_without_waiting_for_the_collector():
    ring = {"a": {"next": "b"}, "b": {"next": "a"}}
    tie = Rule(from_table="ring_of_plans", to_table="ring_of_plans", relation="leads", via="next")
    provider = Provider({"ring_of_plans": ring}, [tie])

    @provider.policy
    def follows(request, tables):
        row = tables.ring_of_plans["a"].follow("leads")
        return None if row.follow("leads") else fix("F")

    gc.collect()
    gc.disable()
    try:
        for number in range(10):
            provider.check({})
            provider.registry.reload_table("ring_of_plans", set={"c": {"number": number}})
        provider.check({})
        states = [one for one in gc.get_objects() if type(one) is State and "ring_of_plans" in one.tables]
    finally:
        gc.enable()
    assert states == [provider.registry.state]


def test_a_table_may_be_called_state():
    provider = Provider({"state": {"ny": {}}})
    provider.policy(lambda request, tables: fix("F") if "ny" in tables.state else None)
    assert provider.violations({})[0].suggestion.rows == ("state:ny",)


def test_a_source_is_read_again_on_refresh():
    contents = [{"basic": {"promo": "P1"}}, {"basic": {"promo": "P2"}}]
    provider = Provider({"plans": lambda: contents.pop(0), "fixed": {}})
    assert provider.refresh("plans").changed == ("basic",)
    with pytest.raises(ReloadRefused, match="fixed was not given as a source"):
        provider.refresh("fixed")
    with pytest.raises(UnknownTable, match="no table called 'plants'"):
        provider.refresh("plants")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: WireFormat(level=2), "there is no wire level 2; there are 0, 1, 4, 5 and 6"),
        (lambda: WireFormat(level="6"), "there is no wire level '6'; there are 0, 1, 4, 5 and 6"),
        (lambda: WireFormat(errors="xml"), "errors are written as json or as problem, not as 'xml'"),
        (lambda: ReloadLimits(most_bytes=0), "a reload must be allowed at least one byte, not 0"),
        (lambda: ReloadLimits(per_minute=0), "at least one reload a minute must be allowed, not 0"),
        (lambda: Signing(signer=KEY, valid_s=59), "states are signed for at least 60 s, not 59"),
        (
            lambda: Signing(signer="signing.pem"),
            "a signer is a SigningKey, not str; see SigningKey.from_file",
        ),
        (lambda: Disclosure(secret="short"), "the secret of a disclosure has at least 16 bytes"),
        (
            lambda: Provider({}, admin_token=""),
            "an admin token is printable ASCII without spaces; leave it out to turn the admin endpoints off",
        ),
        (
            lambda: Provider({}, admin_token="tök"),
            "an admin token is printable ASCII without spaces; leave it out to turn the admin endpoints off",
        ),
        (lambda: Provider({}, wire=6), "wire takes a WireFormat, not int"),
        (lambda: Provider({}, wire=None), "wire takes a WireFormat, not NoneType"),
        (lambda: Provider({}, limits=6), "limits takes a ReloadLimits, not int"),
        (lambda: Provider({}, signing=KEY), "signing takes a Signing, not SigningKey"),
        (lambda: Provider({}, disclosure="secret"), "disclosure takes a Disclosure, not str"),
        (
            lambda: Provider({}, signing=Signing(signer=KEY)),
            "signing needs a log: signed states are numbered across restarts",
        ),
        (
            lambda: Provider({}, signing=Signing(signer=KEY), log="unmade.db", wire=WireFormat(level=0)),
            "at Level 0 there are no states to sign",
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$") as refused:
        make()
    assert isinstance(refused.value, UsageError)


@pytest.mark.parametrize(
    "made", [WireFormat(), ReloadLimits(), Signing(signer=KEY), Disclosure(secret=b"s" * 16)]
)
def test_settings_cannot_be_changed_afterwards_and_tell_no_secret(made):
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, dataclasses.fields(made)[0].name, None)
    assert "ssss" not in repr(made)


@pytest.mark.parametrize("function", [lambda: None, lambda request: None, lambda a, b, c: None])
def test_a_function_that_cannot_take_request_and_tables_is_no_policy(function):
    with pytest.raises(UsageError, match="takes the request and the tables"):
        Provider({}).policy(function)


def test_what_is_given_in_another_form_or_order_is_refused_in_a_sentence_that_says_how_to_write_it():
    def code_is_right(tables, request):
        return None

    mistakes = {
        'a Provider takes its tables by name, as in {"codes": {…}}, not a list': lambda: Provider(["codes"]),
        "every takes the seconds first and then the source, as in every(60, csv_file(…))": lambda: every(
            csv_file("codes.csv", key="id"), 60
        ),
        "write @provider.policy(operation='POST /x')": lambda: Provider({}).policy("POST /x"),
        "code_is_right has its parameters in the wrong order; write code_is_right(request, tables)": lambda: (
            Provider({}).policy(code_is_right)
        ),
    }
    for sentence, mistake in mistakes.items():
        with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
            mistake()
    assert Provider({}).policy(lambda fields, rows: None)


def test_the_first_line_of_a_docstring_is_what_people_are_told_and_else_the_name():
    provider = Provider({})

    @provider.policy
    def code_is_right(request, tables):
        """The code has to be right.

        And more.
        """
        return fix("CODE", code=1)

    @provider.policy
    def plan_is_right(request, tables):
        return fix("PLAN", plan=1)

    with pytest.raises(Rejected) as refused:
        provider.check({})
    assert refused.value.sentences == ("The code has to be right.", "plan is right.")


def test_a_policy_that_is_declared_while_another_thread_looks_at_the_others_is_kept(monkeypatch):
    class Looked(PolicyCode):
        """Of which what names it is asked for when all were looked at."""

        @property
        def fingerprint(self):
            if not declared:
                declared.append(even_amounts)
                thread = threading.Thread(target=provider.policy, args=[even_amounts])
                thread.start()
                thread.join()
            return self._fingerprint

        @fingerprint.setter
        def fingerprint(self, value):
            self._fingerprint = value

    declared, provider = [], provider_with(needs_promo)
    monkeypatch.setattr("shelflife.server.policies.PolicyCode", Looked)
    request = {"plan": "basic", "amount": 3}
    assert [one.policy.name for one in provider.violations(request)] == ["needs_promo", "even_amounts"]
    assert list(provider.policies.look()) == [one.id for one in provider.policies.all()]
    assert len(provider.policies.all()) == 2


def test_what_was_being_put_together_while_checks_became_alike_is_not_shown_for_long():
    provider = provider_with(needs_promo)

    async def app(scope, receive, send):
        await receive()
        provider.check({"plan": "basic", "promo": "P1"})

    async def receive():
        return {"type": "http.request", "body": b'{"plan":"basic","promo":"P1"}', "more_body": False}

    asked = {"type": "http", "method": "POST", "path": "/orders", "headers": []}
    contract = ContractMiddleware(app, provider)
    provider.be_ready()
    before = provider.usual()
    assert before.policies is None
    while provider.readers.looks_left:
        asyncio.run(contract({**asked}, receive, receive))
    provider.shown = before  # by another thread that had begun with it when checks were not yet alike
    assert provider.usual().policies is not None
