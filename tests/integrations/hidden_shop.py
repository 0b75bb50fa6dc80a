"""An API whose tables, keys, relations, columns and policies have names that must not be told."""

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from hypothesis import strategies as st

from shelflife.contract import Rule
from shelflife.integrations.ed25519 import SigningKey
from shelflife.integrations.fastapi import install
from shelflife.server import Provider, Signing, fix
from shelflife.server.log import InProcessLog
from tests.calling import TOKEN

SECRET = "a secret of the provider"
KEY_OF = {"gold": "HiddenKeyOne", "iron": "HiddenKeyTwo", "tin": "HiddenKeyThree"}
GOVERNED = {"plan": "gold"}
TIE = Rule(from_table="HiddenCodes", to_table="HiddenPromos", relation="HiddenNeeds", via="HiddenColumn")
LOOSE = Rule(from_table="HiddenPromos", to_table="HiddenCodes", relation="HiddenBack")
SECRETS = ["hidden"]
"""What every name and key has in it, and nothing else."""

ANONYMOUS = ""
SIGNER = SigningKey.new()


def by_token(headers):
    return headers.get("authorization", ANONYMOUS)


def shop(disclosure, **options):
    """The API. Its names are like nothing else in a response, and its fixes hold values alone."""
    codes = {key: {"HiddenColumn": "HiddenTarget", "code": f"c{n}"} for n, key in enumerate(KEY_OF.values())}
    content = {"HiddenCodes": codes, "HiddenPromos": {"HiddenTarget": {}, "HiddenSpare": {}}}
    provider = Provider(content, [TIE], admin_token=TOKEN, disclosure=disclosure, **options)

    @provider.policy
    def hidden_code_is_assigned(request, tables):
        """The plan has a code of its own."""
        row = tables.HiddenCodes.get(KEY_OF.get(request.get("plan"), "HiddenNobody"))
        if row is None or request.equals("code", row["code"]):
            return None
        is_tied = row.follow("HiddenNeeds") is not None
        return fix("USE_CODE" if is_tied else "USE_LOOSE_CODE", code=row["code"])

    @provider.policy
    def hidden_nothing_breaks(request, tables):
        """A check with a bug."""
        if request.get("plan") == "broken":
            raise RuntimeError(str(dict(tables.HiddenCodes)))

    app = FastAPI()
    install(app, provider)

    @app.post("/orders")
    def order(wanted: dict):
        provider.check(wanted)
        return {"success": True}

    @app.get("/text", response_class=PlainTextResponse)
    def text():
        return "hello"

    @app.get("/checked")
    def checked(plan: str):
        provider.check({"plan": plan})
        return {"success": True}

    @app.get("/things")
    def things():
        return {"success": True}

    return provider, app


def signed_shop(disclosure, **options):
    """The same with a key that vouches for its states."""
    return shop(disclosure, log=InProcessLog(), signing=Signing(signer=SIGNER), **options)


drifts = st.lists(
    st.one_of(
        st.tuples(st.just("code"), st.sampled_from(sorted(KEY_OF)), st.integers(0, 9)),
        st.tuples(st.just("gone"), st.sampled_from(sorted(KEY_OF))),
        st.tuples(st.just("spare"), st.integers(0, 9)),
        st.tuples(st.just("bump"), st.sampled_from(["HiddenCodes", "HiddenPromos"])),
        st.tuples(st.just("rules"), st.sampled_from([[], [TIE], [LOOSE], [TIE, LOOSE]])),
    ),
    max_size=4,
)


def drift(provider, event):
    registry = provider.registry
    match event:
        case ("code", plan, number):
            row = {"HiddenColumn": "HiddenTarget", "code": f"c{number}"}
            registry.reload_table("HiddenCodes", set={KEY_OF[plan]: row})
        case ("gone", plan):
            registry.reload_table("HiddenCodes", remove=[KEY_OF[plan]])
        case ("spare", number):
            registry.reload_table("HiddenPromos", set={"HiddenSpare": {"HiddenColumn": number}})
        case ("bump", table):
            registry.reload_table(table, set={}, version=f"given-{registry.state.number}")
        case ("rules", rules):
            registry.reload_rules(rules)


def position_of(client, **headers):
    """The position that a client is shown."""
    return client.get("/contract/changes", params={"from": "*"}, headers=headers).json()["to"]
