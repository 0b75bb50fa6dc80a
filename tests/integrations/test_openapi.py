"""What the OpenAPI document of an app says is sent is what is sent, to every kind of client."""

from pathlib import Path

import jsonschema
import pytest
from fastapi import Depends, FastAPI
from fastapi.security import HTTPBasic
from hatchling.builders.wheel import WheelBuilder
from pydantic import BaseModel

from shelflife.integrations.ed25519 import SigningKey
from shelflife.integrations.fastapi import install
from shelflife.integrations.fastapi_schema import endpoints_described
from shelflife.server import Signing, WireFormat
from shelflife.server.admin import FEED_PATH, AdminEndpoints
from shelflife.server.endpoints import ContractEndpoints
from shelflife.server.operating import views_of
from shelflife.server.page import page_of
from tests.calling import TOKEN, calling
from tests.integrations.checked import WANTED, fastapi_with, provider_for
from tests.integrations.positions import known_position

ROTATED = {"growth": {"code": "B"}}


def referred_to(document, reference):
    """What a document has there."""
    for name in reference.removeprefix("#/").split("/"):
        document = document[name]
    return document


def validator_of(document, response):
    """Holds bodies to the schema that a document has for a response."""
    operation = document["paths"][response.url.path][response.request.method.lower()]
    media_type = response.headers["content-type"].partition(";")[0]
    schema = operation["responses"][str(response.status_code)]["content"][media_type]["schema"]
    return jsonschema.Draft202012Validator({"components": document["components"], **schema})


@pytest.mark.parametrize("accept", ["application/json", "application/problem+json"])
@pytest.mark.parametrize(
    "wire", [WireFormat(), WireFormat(level=1), WireFormat(paper_only=True)], ids=["6", "1", "paper"]
)
def test_what_is_sent_to_every_kind_of_client_is_in_the_document(accept, wire):
    provider = provider_for(wire=wire)
    app = fastapi_with(provider, "/x")
    with calling(app, headers={"Accept": accept}) as client:
        document = client.get("/openapi.json").json()
        at = known_position(client)
        asked = {"operation": "POST /x", "request": WANTED}
        responses = [client.get("/contract/state")]
        for moves in (False, True):
            if moves:
                provider.registry.reload_table("codes", set=ROTATED)
            for named in (None, at, f"{at}:m1;n=e3", "*", "Zzzzzz9"):
                headers = {"Contract-At": named} if named else {}
                responses += [
                    client.post("/x", json=WANTED, headers=headers),
                    client.post("/x", json=WANTED | {"promo": "B" if moves else "A"}, headers=headers),
                    client.post("/contract/fixes", json=asked, headers=headers),
                ]
                if named:
                    responses.append(
                        client.get("/contract/changes", params={"from": named.partition(";")[0]})
                    )
        responses.append(client.get("/contract/changes", params={"since": "codes:1"}))
    for response in responses:
        validator_of(document, response).validate(response.json())
    assert {response.status_code for response in responses} == {200, 422}


def test_the_document_says_no_less_than_what_is_sent():
    provider = provider_for()
    with calling(fastapi_with(provider, "/x")) as client:
        document = client.get("/openapi.json").json()
        refused = client.post("/x", json=WANTED, headers={"Contract-At": known_position(client)})
    compact = {"$ref": "#/components/schemas/shelflife.CompactRejection"}
    answers = document["paths"]["/x"]["post"]["responses"]["422"]["content"]["application/json"]["schema"]
    assert compact in answers["anyOf"]
    validator = jsonschema.Draft202012Validator({"components": document["components"], **compact})
    assert validator.is_valid(refused.json())
    [suggestion] = refused.json()["recovery_feedback"]["suggestions"]
    for broken in (
        {"at": 1},
        {"success": True},
        {"recovery_feedback": {"suggestions": [suggestion | {"on": 1}]}},
    ):
        assert not validator.is_valid(refused.json() | broken)
    assert next(iter(document["paths"])) == "/x"  # the app's own come first
    schemas = document["components"]["schemas"]
    assert "cells" in schemas["shelflife.Suggestion"]["properties"]
    for path, operation in (("/x", "post"), ("/contract/fixes", "post")):
        [parameter] = document["paths"][path][operation]["parameters"]
        assert referred_to(document, parameter["$ref"])["name"] == "Contract-At"
    asked = {one["name"] for one in document["paths"]["/contract/changes"]["get"]["parameters"]}
    assert asked == {"since", "rules", "from", "nonce", "state"}


class Account(BaseModel):
    """An app's own, by a name that a message of the contract has too."""

    iban: str


def references_in(node):
    """Everything that a part of a document refers to."""
    if isinstance(node, dict):
        yield from [node["$ref"]] if isinstance(node.get("$ref"), str) else ()
    for member in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from references_in(member)


def test_an_app_may_have_models_and_schemes_by_the_names_that_the_contract_uses():
    provider, app = provider_for(admin_token=TOKEN), FastAPI()
    login = HTTPBasic(scheme_name="AdminToken")
    install(app, provider, dependencies=[])

    @app.post("/accounts", dependencies=[Depends(login)])
    def open_account(wanted: Account) -> Account:
        return wanted

    document = app.openapi()
    schemas, schemes = document["components"]["schemas"], document["components"]["securitySchemes"]
    assert list(schemas["Account"]["properties"]) == ["iban"]
    assert set(schemas["shelflife.Account"]["properties"]) >= {"to", "from", "moved"}
    assert schemes["AdminToken"]["scheme"] == "basic"
    [(scheme, _)] = document["paths"]["/admin/reload-table"]["post"]["security"][0].items()
    assert schemes[scheme]["scheme"] == "bearer"
    told = document["paths"]["/contract/changes"]["get"]["responses"]["200"]["content"]["application/json"]
    assert {"$ref": "#/components/schemas/shelflife.Account"} in told["schema"]["anyOf"]


def test_all_that_the_document_refers_to_is_in_it():
    document = fastapi_with(provider_for(admin_token=TOKEN), "/x").openapi()
    for reference in {*references_in(document)}:
        assert referred_to(document, reference)


def test_the_endpoints_that_are_described_are_those_there_are(tmp_path):
    signing = Signing(signer=SigningKey.new())
    provider = provider_for(admin_token=TOKEN, signing=signing, log=tmp_path / "log.db")
    own = ContractEndpoints(provider, str).by_path | AdminEndpoints(provider).by_path
    described = {path: [*methods] for path, methods in endpoints_described()["paths"].items()}
    for_the_page = {FEED_PATH, *views_of(provider), *page_of(provider)}
    protocol = {path: endpoint for path, endpoint in own.items() if path not in for_the_page}
    assert described == {path: [endpoint.methods[0].lower()] for path, endpoint in protocol.items()}
    provider.close()


def test_what_is_read_from_beside_the_code_is_in_the_wheel():
    root = Path(__file__).parents[2]
    packed = {file.distribution_path for file in WheelBuilder(str(root)).recurse_included_files()}
    folder = "shelflife/integrations"
    assert packed >= {f"{folder}/{name}" for name in ("fastapi.py", "openapi.json", "openapi_schemas.json")}
