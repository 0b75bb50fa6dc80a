"""What the OpenAPI document of an app says is sent is what is sent, to every kind of client."""

import jsonschema
import pytest

from shelflife.server import WireFormat
from tests.calling import calling
from tests.integrations.checked import WANTED, fastapi_with, provider_for
from tests.integrations.positions import known_position

ROTATED = {"growth": {"code": "B"}}


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
    compact = {"$ref": "#/components/schemas/CompactRejection"}
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
    assert "cells" in schemas["Suggestion"]["properties"]
    for path, operation in (("/x", "post"), ("/contract/fixes", "post")):
        parameters = document["paths"][path][operation]["parameters"]
        assert [one["name"] for one in parameters] == ["Contract-At"]
    asked = {one["name"] for one in document["paths"]["/contract/changes"]["get"]["parameters"]}
    assert asked == {"since", "rules", "from", "nonce"}
