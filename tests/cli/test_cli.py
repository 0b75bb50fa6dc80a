"""The command line, as a person uses it: real processes, real ports."""

import re
import signal
import socket

import pytest

from shelflife.cli import main
from tests.cli.commands import COMMAND, Serving, environment, run, run_here
from tests.processes import wait_until

DEMO = f"""
from shelflife.cli import demo_ladder
from tests.lab.played_runs import executed
demo_ladder.execute = executed  # many tests of the lab look at the same runs
{COMMAND}
"""


def test_the_demo_tells_the_story_to_its_end_and_writes_a_report(tmp_path, nursery):
    with nursery.forked(DEMO, "demo", "--out", tmp_path / "out", env=environment(), is_heard=True) as demo:
        told = demo.stdout.read()
        assert (demo.wait(), demo.stderr.read()) == (0, "")
    for fact in (
        "USE_REQUIRED_PROMO",
        '{"promo_code": "SUMMERSALE25"}',
        "promo_eligibility:SUMMERSALE25",
        "active_csm_codes:plan_partner_growth",
        '{"promo_code": "WINTERLAUNCH26"}',
        "sub_000002",
        "A1   a memory that never forgets       14       14     33.3 %      33.3 %   66.7 %           66.7 %",
        "A2D  drops the rows that have changed  7        7      100.0 %     100.0 %  66.7 %           66.7 %",
        "Now whole streams: 36 or 48 tasks each",
        "with the fix applied by the client: 100 %, and 7 retries",
        "Of the paper's numbers that need no model 65 of 67 come out the same.",
        "Not the same: Post-drift funding A2 of compliant-last, 0.0 here and 22.2 there.",
        "Not the same: Retries per stream A0 of compliant-last, 27 here and 24 there.",
        "drifted  paper, gpt-5-mini                     7        -           -           15.1        -  ",
        "drifted  check, 2 agents                       6 + 0    0           0  ",
        "silent   as in the paper                       7        1           1  ",
        "silent   precondition                          6        1           0  ",
    ):
        assert fact in told
    assert "\x1b" not in told
    report = (tmp_path / "out" / "report.html").read_text()
    assert "65 of 67" in report
    assert "compliant needs 7, 8, 9 retries" in report


def test_a_demo_that_cannot_write_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    outcome = run_here("demo", "--out", str(tmp_path / "file"))
    assert (outcome.returncode, outcome.stdout) == (1, "")  # before anything is played
    assert outcome.stderr == f"shelflife: cannot write {tmp_path / 'file' / 'exhibits'}: Not a directory\n"


@pytest.mark.parametrize("api", ["acme", "meetings", "payouts", "recipes"])
def test_serve_serves_an_api_at_a_level(api):
    with Serving(api, "--level", "1") as served:
        assert "admin endpoints off" in served.greeting
        state = served.client.get("/contract/state").json()
        assert set(state) == {"table_versions"}
        assert served.client.get("/admin/graph").status_code == 404


def test_the_admin_token_comes_from_the_command_line_or_the_environment():
    for arguments, variables in ((["--admin-token", "t0ken"], {}), ([], {"SHELFLIFE_ADMIN_TOKEN": "t0ken"})):
        with Serving("acme", *arguments, **variables) as served:
            assert "admin endpoints on" in served.greeting
            assert (
                served.client.get("/admin/graph", headers={"Authorization": "Bearer t0ken"}).status_code
                == 200
            )


def version_at(served):
    return served.client.get("/contract/state").json()["table_versions"]["active_csm_codes"]


@pytest.mark.spec("7.11")
def test_a_reload_survives_the_end_of_the_process_and_reaches_another(tmp_path):
    arguments = ("acme", "--admin-token", "t", "--state", str(tmp_path / "acme.db"))
    body = {"table": "active_csm_codes", "rows": {}, "version": "2"}
    with Serving(*arguments) as served, Serving(*arguments) as other:
        assert version_at(other) == "1.0.0"
        served.client.post("/admin/reload-table", json=body, headers={"Authorization": "Bearer t"})
        wait_until(lambda: version_at(other) == "2")
    with Serving(*arguments) as served:
        assert version_at(served) == "2"


def test_an_interrupt_ends_it_without_a_traceback():
    with Serving("acme") as served:
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(60) in (0, 130, -signal.SIGINT)
        assert "Traceback" not in served.process.stderr.read()


def test_help_does_not_show_the_token():
    outcome = run_here("serve", "--help", SHELFLIFE_ADMIN_TOKEN="s3cret-token")
    assert outcome.returncode == 0
    assert "s3cret-token" not in outcome.stdout


@pytest.mark.parametrize("command", ["serve", "proxy"])
def test_help_says_each_default_once_and_none_where_there_is_none(command):
    told = " ".join(run_here(command, "--help").stdout.split())
    assert "(default: 127.0.0.1)" in told
    assert "(default: None)" not in told
    assert "(default: False)" not in told
    assert ") (default" not in told


def assert_one_sentence(outcome, sentence):
    assert outcome.returncode == 1
    assert outcome.stderr.startswith("shelflife: ")
    assert sentence in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_port_that_is_taken_is_told_in_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert_one_sentence(
            run_here("serve", "acme", "--port", port),
            f"cannot listen on 127.0.0.1 port {port}: Address already in use",
        )
    assert_one_sentence(run("serve", "acme", "--port", "99999"), "cannot listen on 127.0.0.1 port 99999")


def test_a_wrong_state_file_is_told_in_one_sentence(tmp_path):
    (tmp_path / "text").write_text("no database" * 1000)
    assert_one_sentence(
        run_here("serve", "acme", "--state", str(tmp_path / "text")), "file is not a database"
    )
    assert_one_sentence(
        run_here("serve", "acme", "--state", str(tmp_path / "no" / "x")), "unable to open database file"
    )


def test_a_bad_token_is_told_in_one_sentence():
    assert_one_sentence(
        run_here("serve", "acme", "--admin-token", "a b"),
        "an admin token is printable ASCII without spaces; leave it out to turn the admin endpoints off",
    )


def test_the_stripe_gateway_needs_a_key_and_an_address_that_is_one():
    stripe = ("serve", "acme", "--gateway", "stripe")
    assert_one_sentence(run_here(*stripe), "needs an API key in $STRIPE_API_KEY")
    assert_one_sentence(
        run_here(*stripe, "--stripe-address", "nowhere", STRIPE_API_KEY="k"),
        "starts with http:// or https://",
    )
    assert_one_sentence(run_here("serve", "recipes", "--gateway", "stripe"), "only acme has a gateway")


def test_the_stripe_gateway_that_cannot_be_reached_is_a_502():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    arguments = ("acme", "--gateway", "stripe", "--stripe-address", nobody)
    wanted = {
        "customer": "cus_1",
        "plan": "plan_basic_monthly",
        "amount": 100,
        "currency": "usd",
        "payment_method_token": "acme_pm_visa_credit",
    }
    with Serving(*arguments, STRIPE_API_KEY="sk_test_1") as served:
        answer = served.client.post("/subscriptions", json=wanted, timeout=60)
    assert (answer.status_code, answer.json()["error"]) == (502, "gateway_down")


@pytest.mark.parametrize(
    "arguments", [[], ["serve"], ["serve", "nothing"], ["serve", "acme", "--level", "2"], ["fly"]]
)
def test_a_wrong_command_line_is_refused_by_the_parser(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "usage: shelflife" in capsys.readouterr().err


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert re.fullmatch(r"shelflife \d+\.\d+\.\d+\n", capsys.readouterr().out)
