"""Meetings in time zones: what the API demands, and what it cannot check."""

import pytest

from shelflife.apis.meetings import meetings_app, meetings_provider
from tests.calling import ADMIN, TOKEN, calling

WANTED = {"zone": "America/New_York", "start": "09:30", "minutes": 45}
OF_NEW_YORK = {"utc_offset": "-05:00", "dst_rule": "M3.2.0,M11.1.0"}


@pytest.fixture
def client():
    with calling(meetings_app(meetings_provider(admin_token=TOKEN))) as client:
        yield client


def fixes(client, **changes):
    response = client.post("/meetings", json=WANTED | changes)
    assert response.status_code == 422
    return {one["type"]: one for one in response.json()["recovery_feedback"]["suggestions"]}


def parameters(client, **changes):
    return {name: one["parameters"] for name, one in fixes(client, **changes).items()}


def test_a_meeting_says_what_its_zone_comes_to(client):
    assert parameters(client) == {
        "USE_UTC_OFFSET": {"utc_offset": "-05:00"},
        "USE_DST_RULE": {"dst_rule": "M3.2.0,M11.1.0"},
    }
    assert parameters(client, **OF_NEW_YORK, zone="Asia/Tokyo") == {
        "USE_UTC_OFFSET": {"utc_offset": "+09:00"},
        "USE_DST_RULE": {"dst_rule": "none"},
    }
    assert client.post("/meetings", json=WANTED | OF_NEW_YORK).status_code == 201


def test_each_fix_rests_on_one_cell_of_a_row_that_has_more(client):
    cells = {name: one["cells"]["zones"]["America/New_York"] for name, one in fixes(client).items()}
    assert cells == {"USE_UTC_OFFSET": ["utc_offset"], "USE_DST_RULE": ["dst_rule"]}


def test_an_old_name_becomes_the_present_one_together_with_all_else(client):
    given = parameters(client, zone="Europe/Kiev")
    assert given["USE_PRESENT_NAME"] == {"zone": "Europe/Kyiv"}
    fixed = {name: value for one in given.values() for name, value in one.items()}
    assert client.post("/meetings", json=WANTED | fixed).status_code == 201


def test_a_meeting_in_a_zone_that_nobody_knows_is_tentative(client):
    assert parameters(client, zone="Mars/Olympus") == {"KEEP_TENTATIVE": {"tentative": True}}
    assert (
        client.post("/meetings", json=WANTED | {"zone": "Mars/Olympus", "tentative": True}).status_code == 201
    )


def test_what_no_release_tells_of_a_zone_cannot_be_checked(client):
    """As Morocco was in 2018.9: whatever is sent is carried out, also what was right before."""
    reload = {"table": "zones", "set": {"America/New_York": {"abbreviations": "EST EDT"}}}
    assert client.post("/admin/reload-table", json=reload, headers=ADMIN).is_success
    assert client.post("/meetings", json=WANTED | OF_NEW_YORK).status_code == 201
    assert client.post("/meetings", json=WANTED).status_code == 201
