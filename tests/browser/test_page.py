"""The operator's page in a real browser."""

import re

import httpx2
import pytest
from playwright.sync_api import expect

from shelflife.apis.acme import acme_app, acme_provider
from shelflife.apis.acme.app import EXAMPLE
from shelflife.server import Provider
from shelflife.testing import serving
from tests.browser.chromium import IS_MISSING, WHY, a_browser
from tests.integrations.small_contract import app_of
from tests.processes import wait_until

TOKEN = "operator-token"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
ROTATED = '{"plan_partner_growth": {"code": "SPRING27"}}'

pytestmark = pytest.mark.skipif(IS_MISSING, reason=WHY)


@pytest.fixture(scope="module")
def browser():
    expect.set_options(timeout=60_000)  # the machine may be busy
    with a_browser() as browser:
        yield browser


@pytest.fixture
def provider():
    return acme_provider(admin_token=TOKEN)


@pytest.fixture
def address(provider):
    with serving(acme_app(provider)) as address:
        yield address


@pytest.fixture
def tab(browser):
    """Opens tabs, each like one of another person. Whatever a page complains of fails the test."""
    contexts, complaints = [], []

    def open_tab(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if "Security" in said.text else None)
        return page

    yield open_tab
    for context in contexts:
        context.close()
    assert complaints == []


def sign_in(page, address, token=TOKEN, view=""):
    page.goto(f"{address}/admin/{view}")
    page.get_by_label("Admin token").fill(token)
    page.keyboard.press("Enter")


def go_to(page, view):
    page.get_by_role("navigation").get_by_role("link", name=view, exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(view)


def test_a_wrong_token_is_refused_in_a_sentence_and_shows_nothing_of_the_contract(address, tab):
    page = tab()
    sign_in(page, address, "wrong")
    expect(page.get_by_role("alert")).to_have_text("This is not the admin token.")
    expect(page.get_by_role("navigation")).to_be_hidden()
    assert "active_csm_codes" not in page.content()
    assert page.evaluate("sessionStorage.length") == 0
    page.get_by_label("Admin token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="active_csm_codes")).to_be_visible()


def test_the_token_stays_in_the_tab_and_out_of_addresses(address, tab):
    page = tab()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    sign_in(page, address)
    expect(page.get_by_role("heading", name="Tables")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Tables")).to_be_visible()
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    assert all(TOKEN not in url and url.startswith(address) for url in asked)
    other = page.context.new_page()
    other.goto(f"{address}/admin/")
    expect(other.get_by_label("Admin token")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Admin token")).to_be_focused()
    assert page.evaluate("sessionStorage.length") == 0
    assert "active_csm_codes" not in page.content()


def test_a_reload_is_previewed_made_and_seen_live_in_another_window(address, provider, tab):
    page, other = tab(), tab()
    sign_in(page, address)
    sign_in(other, address)
    go_to(other, "Log")
    expect(other.get_by_role("article")).to_have_count(1)
    go_to(page, "Reload")
    made = page.get_by_role("button", name="Reload now")
    expect(made).to_be_disabled()
    page.get_by_label("Table", exact=True).select_option("active_csm_codes")
    page.get_by_label("Rows to set").fill("{")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("The rows are not JSON")
    page.get_by_label("Rows to set").fill(ROTATED)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("cell", name="SPRING27")).to_be_visible()
    expect(page.get_by_text("Downstream: promo_eligibility:SUMMERSALE25.")).to_be_visible()
    assert provider.registry.rows("active_csm_codes")["plan_partner_growth"] == {"code": "SUMMERSALE25"}
    page.get_by_label("Your name").fill("Ada")
    made.click()
    expect(page.get_by_text("All 1 workers have it.")).to_be_visible()
    assert provider.registry.rows("active_csm_codes")["plan_partner_growth"] == {"code": "SPRING27"}
    expect(other.get_by_role("article", name="Change 2")).to_contain_text("by Ada")
    expect(other.get_by_role("article", name="Change 2").get_by_role("cell", name="SPRING27")).to_be_visible()


def test_a_reload_is_shown_anew_when_something_has_changed_since_its_preview(address, provider, tab):
    page = tab()
    sign_in(page, address)
    go_to(page, "Reload")
    page.get_by_label("Rows to set").fill(ROTATED)
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("cell", name="SUMMERSALE25")).to_be_visible()

    def overtake(route):
        if provider.state.number == before:
            provider.registry.reload_table(
                "active_csm_codes", set={"plan_partner_growth": {"code": "AUTUMN26"}}
            )
        route.continue_()

    # At the last moment, when nobody looks any more. With `times=1` the next request may be held up while Playwright ceases to look at them.
    before = provider.state.number
    page.route("**/admin/reload-table", overtake)
    page.get_by_role("button", name="Reload now").click()
    expect(page.get_by_role("alert")).to_contain_text("Something has changed since the preview")
    expect(page.get_by_role("cell", name="AUTUMN26")).to_be_visible()
    assert provider.registry.rows("active_csm_codes")["plan_partner_growth"] == {"code": "AUTUMN26"}
    page.get_by_role("button", name="Reload now").click()
    expect(page.get_by_text("Reloaded.")).to_be_visible()
    [*_, made] = provider.state.tail
    assert (made.by, made.change.tables["active_csm_codes"].delta.after["plan_partner_growth"]) == (
        "an operator",
        {"code": "SPRING27"},
    )


def test_a_reload_that_can_be_shown_no_more_says_why(address, provider, tab):
    page = tab()
    sign_in(page, address)
    go_to(page, "Reload")
    page.get_by_label("Rows to set").fill(ROTATED)
    page.get_by_label("Version").fill("7.0")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("cell", name="SUMMERSALE25")).to_be_visible()
    other = {"plan_partner_growth": {"code": "AUTUMN26"}}
    provider.registry.reload_table("active_csm_codes", set=other, version="7.0")
    page.get_by_role("button", name="Reload now").click()
    expect(page.get_by_role("alert")).to_contain_text("version 7.0 of table active_csm_codes was used before")


def previewed(page, **fields):
    """What a reload by form would change, or why it cannot be shown."""
    for label, text in fields.items():
        page.get_by_label(label.replace("_", " ")).fill(text)
    page.get_by_role("button", name="Preview").click()
    shown = (
        page.get_by_role("alert").filter(has_text=re.compile(".")).or_(page.locator("[aria-live=polite] h2"))
    )
    expect(shown.first).to_be_visible()
    return page.get_by_role("main")


def test_rows_are_shown_and_sent_as_they_are_written(tab):
    rows = {"g": {"code": "C", "id": 9007199254740993}, " space": {"x": 1}, "two\nlines": {"x": 1}}
    provider = Provider({"codes": rows}, admin_token=TOKEN)
    with serving(app_of(provider)) as address:
        page = tab()
        sign_in(page, address)
        page.get_by_role("button", name="codes").click()
        expect(page.get_by_text("9007199254740993")).to_be_visible()
        go_to(page, "Reload")
        shown = previewed(page, Rows_to_set='{"g": {"code": "C", "id": 9007199254740992}}')
        cells = shown.get_by_role("row").filter(has_text="changed").get_by_role("cell").all_inner_texts()
        assert cells == ["changed", "id", "9007199254740993", "9007199254740992"]
        shown = previewed(page, Rows_to_set='{"k": {"v": 1}, "k": {"v": 2}}')
        expect(shown.get_by_role("alert")).to_contain_text("two members of the same name")
        shown = previewed(page, Rows_to_set='{"k": {"v": 1e400}}')
        expect(shown.get_by_role("alert")).not_to_be_empty()
        shown = previewed(page, Rows_to_set='{"g": {"code": "C", "id": 9007199254740993, "__proto__": {}}}')
        cells = shown.get_by_role("row").filter(has_text="changed").get_by_role("cell").all_inner_texts()
        assert cells == ["changed", "__proto__", "", "{}"]
        shown = previewed(page, Rows_to_set="", Keys_to_remove=" space\nnone")
        expect(shown.get_by_role("row").filter(has_text="space")).to_contain_text("removed")
        expect(shown.get_by_text("To be removed, and not there: none.")).to_be_visible()
        previewed(page, Keys_to_remove='["two\\nlines", " space"]')
        page.get_by_role("button", name="Reload now").click()
        expect(page.get_by_text("Reloaded.")).to_be_visible()
        assert provider.registry.rows("codes") == {"g": rows["g"]}


def test_the_log_that_is_shown_is_that_of_the_server_which_is_there_now(tab):
    def changed(code):
        provider = acme_provider(admin_token=TOKEN)
        provider.registry.reload_table("active_csm_codes", set={"new": {"code": code}})
        return acme_app(provider)

    page = tab()
    with serving(changed("BEFORE")) as address:
        sign_in(page, address, view="#log")
        expect(page.get_by_role("cell", name="BEFORE")).to_be_visible()
    with serving(changed("SINCE"), port=int(address.rpartition(":")[2])):
        expect(page.get_by_role("cell", name="SINCE")).to_be_visible()
        expect(page.get_by_role("cell", name="BEFORE")).to_have_count(0)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"body": "<p>Log in</p>", "content_type": "text/html"}, "its answer is not JSON"),
        ({"json": {}}, "what answers there is not this server"),
    ],
)
def test_somebody_who_answers_in_the_place_of_the_server_is_told_from_it(address, tab, answer, says):
    page = tab()
    page.route("**/admin/overview", lambda route: route.fulfill(status=200, **answer))
    sign_in(page, address)
    expect(page.get_by_role("alert")).to_have_text(f"The server cannot be asked: {says}")
    page.unroute("**/admin/overview")
    page.get_by_label("Admin token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tables")


def test_a_server_that_does_not_answer_is_told_and_asked_again(address, tab):
    page, held = tab(), []
    page.clock.install()
    sign_in(page, address)
    expect(page.get_by_role("status").first).to_contain_text("live")
    page.route("**/admin/overview", lambda route: held.append(route))
    with page.expect_request("**/admin/overview"):
        page.clock.run_for(5_000)
    page.clock.run_for(20_000)
    expect(page.get_by_role("status").first).to_contain_text("does not answer")
    page.unroute("**/admin/overview")
    page.clock.run_for(25_000)
    expect(page.get_by_role("status").first).to_contain_text("live")
    go_to(page, "Reload")
    previewed(page, Rows_to_set='{"new": {"code": "N"}}')
    page.route("**/admin/reload-table", lambda route: held.append(route))
    with page.expect_request("**/admin/reload-table"):
        page.get_by_role("button", name="Reload now").click()
    page.clock.run_for(60_000)
    told = "it has not answered for 60 s. Whether it was made is in the log."
    expect(page.get_by_role("alert")).to_have_text(told)


def test_a_view_that_is_not_there_or_fails_locks_nobody_out(tab):
    with serving(acme_app(acme_provider(admin_token=TOKEN, scoring=None))) as address:
        page = tab()
        sign_in(page, address, view="#clients")
        expect(page.get_by_role("heading", level=1)).to_have_text("Tables")
        page.route("**/admin/policies", lambda route: route.fulfill(status=503, json={"error": "no log"}))
        page.get_by_role("link", name="Policies").click()
        expect(page.get_by_role("alert")).to_have_text("This cannot be shown: no log")
        page.unroute("**/admin/policies")
        go_to(page, "Tables")
        go_to(page, "Policies")
        expect(page.get_by_role("alert")).to_have_count(0)


def test_only_a_refused_token_is_forgotten(address, tab):
    page = tab()
    page.clock.install()
    sign_in(page, address)
    expect(page.get_by_role("heading", level=1)).to_have_text("Tables")
    page.route("**/admin/overview", lambda route: route.fulfill(status=502, body="bad gateway"))
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be asked: the server says 502")
    page.unroute("**/admin/overview")
    page.clock.run_for(5_000)
    expect(page.get_by_role("heading", level=1)).to_have_text("Tables")
    page.route("**/admin/overview", lambda route: route.fulfill(status=401, json={"error": "no"}))
    page.clock.run_for(5_000)
    expect(page.get_by_role("alert")).to_have_text("The admin token is not the right one any more.")
    assert page.evaluate("sessionStorage.length") == 0


def test_whoever_signs_out_before_the_first_view_is_there_asks_for_nothing_more(address, tab):
    page, held, asked = tab(), [], []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.route("**/admin/policies", lambda route: held.append(route))
    with page.expect_request("**/admin/policies"):
        sign_in(page, address, view="#policies")
    page.get_by_role("button", name="Sign out").click()
    with page.expect_response("**/admin/policies"):
        held[0].continue_()
    expect(page.get_by_label("Admin token")).to_be_visible()
    sign_in(page, address, view="#tables")
    expect(page.get_by_role("status").first).to_contain_text("live")
    assert asked.count("changes") == 1


def test_a_view_that_comes_late_does_not_take_the_place_of_a_newer_one(address, tab):
    page, held = tab(), []
    page.add_init_script(
        """window.drawn = []; // what was read, once whoever has read it is done with it
        const read = Response.prototype.text;
        Response.prototype.text = async function () {
          const told = await read.call(this);
          setTimeout(() => window.drawn.push(this.url));
          return told;
        };"""
    )
    sign_in(page, address)
    page.route("**/admin/log", lambda route: held.append(route))
    with page.expect_request("**/admin/log"):
        page.get_by_role("link", name="Log").click()
    go_to(page, "Policies")
    held[0].continue_()
    # The page's policy for its content keeps the browser's own way to wait from looking a second time.
    wait_until(lambda: page.evaluate("window.drawn.some((url) => url.endsWith('/admin/log'))"))
    assert page.get_by_role("heading", level=1).inner_text() == "Policies"


def test_what_has_not_changed_stays_as_it_is_for_eyes_and_ears(address, provider, tab):
    page = tab()
    page.clock.install()
    provider.registry.reload_table("active_csm_codes", set={"new": {"code": "N"}})
    sign_in(page, address)
    expect(page.get_by_role("status").first).to_contain_text("live")
    page.evaluate(
        """() => {
          window.seen = [];
          const watch = new MutationObserver((all) => all.forEach((one) => window.seen.push(one.target.id || one.target.tagName)));
          for (const id of ["view", "status"]) watch.observe(document.getElementById(id), { childList: true, subtree: true, characterData: true });
        }"""
    )
    for _ in range(3):
        with page.expect_response("**/admin/overview"):
            page.clock.run_for(5_000)
    assert page.evaluate("window.seen") == []
    for _ in range(9):
        with page.expect_response("**/admin/overview"):
            page.clock.run_for(5_000)
    expect(page.get_by_role("row").filter(has_text="active_csm_codes")).to_contain_text("1 minute ago")
    assert set(page.evaluate("window.seen")) == {"TIME"}


def test_where_there_is_no_feed_the_page_says_that_it_asks(address, tab, monkeypatch):
    monkeypatch.setattr("shelflife.server.feed._MOST_LISTENERS", 0)
    page = tab()
    sign_in(page, address)
    expect(page.get_by_role("status").first).to_contain_text("asks every 5 s")


def test_a_change_that_is_too_large_to_be_kept_is_shown_as_one(address, provider, tab, monkeypatch):
    monkeypatch.setattr("shelflife.server.log.MOST_ROWS", 5)
    provider.registry.reload_table(
        "active_csm_codes", set={f"k{n}": {"code": "N"} for n in range(6)}, by="Bob"
    )
    page = tab()
    sign_in(page, address)
    expect(page.get_by_role("row").filter(has_text="active_csm_codes")).to_contain_text("just now by Bob")
    go_to(page, "Log")
    expect(page.get_by_role("article", name="Change 2")).to_contain_text("active_csm_codes 6 rows")
    expect(page.get_by_role("article", name="Change 2")).to_contain_text("The log keeps no more of it")


def test_the_way_past_the_links_leads_into_the_view_that_is_shown(address, tab):
    page = tab()
    sign_in(page, address)
    go_to(page, "Policies")
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    assert page.url.endswith("#policies")


def test_a_server_that_goes_away_is_told_and_its_return_too(tab):
    page, provider = tab(), acme_provider(admin_token=TOKEN)
    with serving(acme_app(provider)) as address:
        sign_in(page, address)
        expect(page.get_by_role("status").first).to_contain_text("live")
    expect(page.get_by_role("status").first).to_contain_text("does not answer")
    expect(page.get_by_role("button", name="active_csm_codes")).to_be_visible()
    provider.registry.reload_table("active_csm_codes", set={"new": {"code": "N"}})
    with serving(acme_app(provider), port=int(address.rpartition(":")[2])):
        expect(page.get_by_role("status").first).to_contain_text("live")
        row = page.get_by_role("row").filter(has_text="active_csm_codes")
        expect(row.get_by_role("cell", name="4", exact=True)).to_be_visible()


def test_the_graph_shows_what_lies_downstream_by_keyboard_too(address, tab):
    page = tab()
    sign_in(page, address)
    go_to(page, "Graph")
    page.get_by_role("button", name="required_promo_policy").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Downstream of required_promo_policy: active_csm_codes")).to_be_visible()
    expect(page.get_by_role("button", name="promo_eligibility, 5 rows, downstream")).to_be_visible()
    expect(page.get_by_role("button", name="required_promo_policy")).to_be_focused()
    go_to(page, "Tables")
    page.get_by_role("button", name="active_csm_codes").click()
    page.get_by_role("button", name="plan_partner_growth").click()
    expect(page.get_by_role("heading", name="Around active_csm_codes:plan_partner_growth")).to_be_visible()
    expect(page.get_by_role("button", name="SUMMERSALE25, promo_eligibility, downstream")).to_be_visible()


def test_policies_and_clients_are_shown_with_what_came_of_them(address, tab):
    for code in (None, "SUMMERSALE25") * 2:
        body = {**EXAMPLE} | ({"promo_code": code} if code else {})
        httpx2.post(f"{address}/subscriptions", json=body, headers={"X-API-Key": "k"}, trust_env=False)
    page = tab()
    sign_in(page, address)
    go_to(page, "Policies")
    row = page.get_by_role("row").filter(has_text="promo_must_be_the_assigned_one")
    expect(row).to_contain_text("USE_REQUIRED_PROMO 2 times, sets promo_code")
    expect(row).to_contain_text("active_csm_codes: code")
    go_to(page, "Clients")
    expect(page.get_by_role("row").nth(1)).to_contain_text("not enough seen")
    expect(page.get_by_role("row").nth(1)).to_contain_text("2 of 2 (100 %)")
    expect(page.get_by_text("are its requests in all, each counted once")).to_be_visible()
    assert page.get_by_role("row").nth(1).locator(".number").all_inner_texts()[:2] == ["2", "2"]


def test_what_a_client_comes_to_is_all_in_the_picture_and_its_verdict_on_a_small_one_too(address, tab):
    client = {
        "client": "18b03d26d11d",
        "verdict": "does not comply with added fields",
        "in_all": {"passed": 1234567, "refused": 123456},
        "policies": {"promo_must_be_the_assigned_one": {"tasks": 99999, "right_at_once": 88888}},
        "longest_stale_s": 86399.5,
        **dict.fromkeys(("tasks", "refused", "stale", "repeated", "could_save"), 99999),
        **dict.fromkeys(("right_at_once", "followed", "stale_after_told"), 88888),
    }
    page = tab(viewport={"width": 1200, "height": 800})
    page.route("**/admin/clients", lambda route: route.fulfill(json={"clients": [client]}))
    sign_in(page, address)
    go_to(page, "Clients")
    expect(page.get_by_role("row").nth(1)).to_contain_text("1,234,567")
    assert page.eval_on_selector(".scroll", "one => one.scrollWidth <= one.clientWidth")
    page.set_viewport_size({"width": 400, "height": 800})
    box = page.get_by_text(client["verdict"]).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 400
    assert page.eval_on_selector(".scroll", "one => one.scrollWidth <= one.clientWidth")
    assert page.get_by_role("row").last.bounding_box()["height"] < 400  # no blank areas
    [named] = page.locator("[data-head='Right at once']").all()
    assert named.is_visible()


def test_numbers_stand_below_the_end_of_their_head(address, tab):
    page = tab(viewport={"width": 1200, "height": 800})
    with httpx2.Client(base_url=str(address)) as client:
        client.post("/subscriptions", json={**EXAMPLE, "plan": "plan_partner_growth"})
    sign_in(page, address)
    for view, head in (("Tables", "Rows"), ("Clients", "Could save"), ("Policies", "Refused")):
        go_to(page, view)
        expect(page.get_by_role("columnheader", name=head, exact=True)).to_have_css("text-align", "right")
    expect(page.get_by_role("columnheader", name="Operation")).to_have_css("text-align", "left")


def test_a_column_that_a_reload_would_lose_is_said_to_be_gone(address, tab):
    page = tab()
    sign_in(page, address)
    go_to(page, "Reload")
    page.get_by_label("Table", exact=True).select_option("active_csm_codes")
    page.get_by_label("Rows to set").fill('{"plan_partner_growth": {"other": 1}}')
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("cell", name="gone")).to_have_count(1)


def test_what_lies_downstream_of_a_row_is_counted_as_people_do(address, tab):
    page = tab()
    sign_in(page, address)
    page.get_by_role("button", name="active_csm_codes").click()
    page.get_by_role("button", name="plan_partner_growth").click()
    expect(page.get_by_text("Downstream of it: 1 row. ")).to_be_visible()


def test_the_name_of_a_rule_stands_over_all_arrows(address, tab):
    page = tab()
    sign_in(page, address)
    go_to(page, "Graph")
    order = page.eval_on_selector_all("svg > path, svg > .label", "all => all.map((one) => one.tagName)")
    assert order == sorted(order)
    assert {*order} == {"path", "text"}


def test_a_view_that_is_chosen_begins_at_its_top_and_the_links_stay_in_the_picture(address, provider, tab):
    for number in range(6):
        provider.registry.reload_table("active_csm_codes", set={"new": {"code": f"N{number}"}})
    page = tab(viewport={"width": 400, "height": 500})
    sign_in(page, address)
    for view in ("Graph", "Log", "Policies", "Clients", "Log"):
        go_to(page, view)
        expect(page.get_by_role("main")).to_be_focused()
        assert page.evaluate("scrollY") == 0, view
        box = page.locator("nav a[aria-current]").bounding_box()
        assert 0 <= box["x"] <= 400 - box["width"], view


def test_what_a_heading_says_is_not_said_again_below_it(address, tab):
    page = tab()
    sign_in(page, address)
    page.get_by_role("button", name="active_csm_codes").click()
    expect(page.get_by_role("heading", name="Rows of active_csm_codes")).to_be_visible()
    for view in ("Tables", "Graph", "Policies"):
        go_to(page, view)
        headings = page.get_by_role("heading").all_inner_texts()
        seen = page.locator("caption:not(.heard)").all_inner_texts()
        assert not {*headings} & {*seen}, view
        assert page.locator("table:not(:has(caption))").count() == 0


def test_what_a_server_says_is_never_read_as_markup(address, provider, tab):
    wild = "<img src=x onerror=alert(1)>"
    provider.registry.reload_table("active_csm_codes", set={wild: {"code": wild}}, by=wild)
    page = tab()
    sign_in(page, address)
    for view in ("Tables", "Log"):
        go_to(page, view)
        expect(page.get_by_text(wild).first).to_be_visible()
        assert page.locator("main img").count() == 0


CONTRAST = """() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => parts(color).slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if ((parts(color)[3] ?? 1) > 0) return color;
    }
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const isDrawn = element.namespaceURI.endsWith("svg");
    if (!hasText || !element.checkVisibility() || element.disabled || element.tagName === "TITLE") continue;
    const color = getComputedStyle(element)[isDrawn ? "fill" : "color"];
    const [a, b] = [light(color), light(behind(element))].sort((one, other) => other - one);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) low.push([element.textContent.slice(0, 40), ratio]);
  }
  return low;
}"""


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(390, "light"), (390, "dark"), (820, "light"), (820, "dark"), (1440, "light"), (1440, "dark")],
)
def test_every_view_can_be_read_and_reached_without_a_mouse_on_any_screen(
    address, provider, width, scheme, tab
):
    provider.registry.reload_table("active_csm_codes", set={"new": {"code": "N"}}, by="Ada")
    page = tab(viewport={"width": width, "height": 844}, color_scheme=scheme)
    sign_in(page, address)
    page.get_by_role("button", name="active_csm_codes").click()
    page.get_by_role("button", name="plan_partner_growth").click()
    expect(page.get_by_role("heading", name="Around active_csm_codes:plan_partner_growth")).to_be_visible()
    for view in ("Tables", "Graph", "Log", "Reload", "Policies", "Clients"):
        go_to(page, view)
        assert page.evaluate(CONTRAST) == [], view
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        nameless = page.locator("input:not([id]), textarea:not([id]), select:not([id])")
        assert nameless.count() == 0
        ids = page.eval_on_selector_all("input, textarea, select", "all => all.map((one) => one.id)")
        assert all(page.locator(f"label[for={id}]").count() == 1 for id in ids)
        assert [page.get_by_role(role).count() for role in ("banner", "main", "navigation")] == [1, 1, 1]
        assert all(text.strip() for text in page.locator("th").all_inner_texts())
        named = page.eval_on_selector_all("[id]", "all => all.map((one) => one.id)")
        assert len(named) == len(set(named))
        expect(page).to_have_title(re.compile(view))
