"""The API as users see it. Only a type checker runs this file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from fastapi import FastAPI

from shelflife.contract import Rule, Suggestion
from shelflife.integrations.asgi import ContractMiddleware
from shelflife.integrations.ed25519 import SigningKey
from shelflife.integrations.fastapi import install
from shelflife.lab import (
    Message,
    ModelPlanner,
    Planner,
    Probe,
    Proposal,
    Record,
    RecordFile,
    RunScore,
    RunSpec,
    Usage,
    play,
    score_of,
)
from shelflife.server import (
    Disclosure,
    Fix,
    Level,
    Provider,
    Rejected,
    ReloadLimits,
    ReloadReport,
    Request,
    Signing,
    Tables,
    WireFormat,
    csv_file,
    fix,
    sql_query,
)

provider = Provider(
    {
        "codes": {"growth": {"code": "SUMMER25"}},
        "plans": csv_file("plans.csv", key="id"),
        "promos": sql_query(lambda: None, "select id, percent from promos", key="id"),
    },
    [Rule(from_table="codes", to_table="promos", relation="needs", via="code")],
    admin_token="token",
    log="state.db",
    wire=WireFormat(level=Level.FINGERPRINT, errors="problem"),
    limits=ReloadLimits(most_bytes=1024, per_minute=6),
    signing=Signing(signer=SigningKey.new(), valid_s=3600),
    disclosure=Disclosure(
        secret="a secret of the provider",
        client=lambda headers: headers.get("x-account", ""),
        sees_diffs=lambda client: client == "ada",
    ),
)


@provider.policy
def for_every_request(request: Request, tables: Tables) -> Fix | None:
    assigned = tables.codes.get(request["plan"])
    if assigned is None or assigned.follow("needs") is None:
        return None
    return fix("USE_PROMO", promo_code=assigned["code"])


@provider.policy(operation="subscribe")
def for_one_operation(request: Request, tables: Tables) -> Fix | None:
    return None


app = FastAPI()
install(app, provider)
asgi = ContractMiddleware(app, provider)

report: ReloadReport = provider.registry.reload_table("codes", set={"growth": {"code": "WINTER26"}})
report = provider.refresh("plans")
changed: tuple[str, ...] = report.changed

try:
    provider.check({"plan": "growth"}, "subscribe")
except Rejected as rejected:
    suggestions: tuple[Suggestion, ...] = rejected.suggestions

with ModelPlanner("openai-api/local/model", base_url="http://127.0.0.1:8080/v1", seed=0) as model:
    planner: Planner = model
    probed: Probe = model.probe()
    proposal: Proposal = planner.propose(
        [Message("system", "Call the API."), Message("user", "Subscribe Ada.")]
    )


class Silent:
    name = "silent"
    kind: Literal["simulated", "model"] = "simulated"

    def propose(self, messages: Sequence[Message]) -> Proposal:
        return Proposal("{}", Usage(0, 0, "estimated"))


records: list[Record] = []
spec = RunSpec("drifted", "A2D", Silent.name, seed=1)
play(spec, Silent(), records.append)
with RecordFile(Path("silent.jsonl")) as record:
    play(spec, Silent(), record)
score: RunScore = score_of(records)
played: RunSpec = score.spec
