"""The server of a run: it signs or shows aliases where that is its conduct, and is hostile where its stream says so."""

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from shelflife.client.guard import Guard
from shelflife.client.trust import Trust
from shelflife.integrations.ed25519 import SigningKey, trust
from shelflife.lab.apis import APIS, Api
from shelflife.lab.hostile import Reader, bumping, holding_back, injecting
from shelflife.lab.records import ClientScored, Disclosed, Drifted, Judged
from shelflife.lab.scenarios import Scenario
from shelflife.lab.spec import Conduct, RunSpec
from shelflife.lab.workers import served_by_workers
from shelflife.server import Disclosure, Provider, Signing, WireFormat
from shelflife.server.log import InProcessLog, Log
from shelflife.testing import serving

__all__ = ["EpisodeClock", "Server", "guard_of", "server_of"]

_SIGNED_FOR_S = 600
"""With an episode a minute, a signed state holds for ten of them."""

_BEGUN_AT = 1_800_000_000.0
_SECRET = "of the lab, so that a run has the same aliases each time"  # noqa: S105
_ANYBODY = ""
"""The one client that all agents of a run are."""


class EpisodeClock:
    """The clock by which signatures expire, and changes are foreseen: it goes on with the episodes."""

    def __init__(self) -> None:
        self.now = _BEGUN_AT

    def __call__(self) -> float:
        """What time it is."""
        return self.now

    def go_on(self, minutes: float) -> None:
        """An episode is over, and so much later comes the next."""
        self.now += minutes * 60


class Server(NamedTuple):
    """What a run needs to know of its server."""

    address: str
    admin_token: str
    clock: EpisodeClock
    provider: Provider
    """What it says, before anybody hostile has a hand in that. With workers it is one more that shares their log."""

    key: str | None = None
    """The public key that signs its states."""

    reader: Reader | None = None

    @property
    def trust(self) -> Trust | None:
        """What the memories of a run have pinned."""
        return None if self.key is None else trust({self.address: [self.key]})

    def disclosed(self) -> Disclosed | None:
        """What agents were told, where somebody listens."""
        return None if self.reader is None else self.reader.disclosed(self.provider)

    def scored(self, after: int) -> ClientScored | None:
        """What it makes of its agents, who are one client; None where it does not score any."""
        if self.provider.clients is None:
            return None
        scores = self.provider.clients.scores()
        return ClientScored(after=after, verdict=scores[0].verdict if scores else "not enough seen")

    def as_agents_know_it(self, drifted: Drifted) -> Drifted:
        """A drift in the words that agents are shown."""
        disclosure = self.provider.disclosure
        if disclosure is None:
            return drifted
        aliases = disclosure.aliases(_ANYBODY)
        return msgspec.structs.replace(
            drifted,
            rows=[aliases.row(row) for row in drifted.rows],
            rules=[aliases.rule_id(rule) for rule in drifted.rules],
            judged={
                id: Judged(
                    one.request,
                    [
                        msgspec.structs.replace(fix, tables=[*map(aliases.table, fix.tables)])
                        for fix in one.fixes
                    ],
                )
                for id, one in drifted.judged.items()
            },
        )


@contextmanager
def server_of(spec: RunSpec, scenario: Scenario, around: Callable[[Any], Any]) -> Iterator[Server]:
    """The server of a run, for as long as it lasts. An app in this process is put into what goes `around` it."""
    if spec.conduct.workers == 1:
        with _server_in_process(spec, scenario, around) as server:
            yield server
        return
    admin_token = secrets.token_urlsafe()
    with (
        served_by_workers(
            scenario.api, spec.level, admin_token, spec.conduct.workers, spec.conduct.log
        ) as workers,
        closing(APIS[scenario.api].provider(log=workers.log)) as provider,
    ):
        yield Server(workers.address, admin_token, EpisodeClock(), provider)


@contextmanager
def _server_in_process(spec: RunSpec, scenario: Scenario, around: Callable[[Any], Any]) -> Iterator[Server]:
    api, clock, conduct = APIS[scenario.api], EpisodeClock(), spec.conduct
    admin_token = secrets.token_urlsafe()
    signer = SigningKey.new() if conduct.trust else None
    disclosure = _disclosure(conduct)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="shelflife-lab-")) if signer else ""

        def provided(log: Path | Log | None, *, is_signing: bool = True) -> Provider:
            signing = (
                Signing(signer=signer, valid_s=_SIGNED_FOR_S, clock=clock) if signer and is_signing else None
            )
            provider = api.provider(
                wire=WireFormat(level=spec.level, paper_only=conduct.match != "request"),
                admin_token=admin_token,
                log=log,
                signing=signing,
                disclosure=disclosure,
            )
            return stack.enter_context(closing(provider))

        provider = provided(Path(folder) / "log.db" if signer else None)
        app, reader = _surrounded(scenario, api, provider, provided)
        if conduct.over == "mcp" and api.tools is not None:
            tools = api.tools(provider).streamable_http_app()
            tools.mount("/", app)  # where the operator reloads
            app = tools
        address = stack.enter_context(serving(around(app)))
        yield Server(address, admin_token, clock, provider, signer.key if signer else None, reader)


def _surrounded(
    scenario: Scenario,
    api: Api,
    provider: Provider,
    provided: Callable[..., Provider],
) -> tuple[Any, Reader | None]:
    app = api.app(provider)
    match scenario.hostile:
        case "injects":
            return injecting(app, scenario.wants or {}), None
        case "bumps":
            return bumping(app, provider), None
        case "pins" | "lies":
            provider.be_ready()
            # the same log as it was at first; who only holds back has no key
            frozen = provided(InProcessLog(provider.state), is_signing=scenario.hostile == "lies")
            return holding_back(app, provider, frozen, api.app(frozen)), None
        case "tells":
            reader = Reader(app)
            return reader, reader
        case _:
            return app, None


def _disclosure(conduct: Conduct) -> Disclosure | None:
    if conduct.disclose == "names":
        return None
    return Disclosure(
        secret=_SECRET,
        client=lambda headers: _ANYBODY,
        sees_diffs=lambda client: conduct.disclose == "aliases",
    )


def guard_of(scenario: Scenario, conduct: Conduct) -> Guard:
    """What remembered fixes may do to requests. Fields are allowed by name when the fixes that the tasks need set them."""
    match conduct.guard:
        case "open":
            return Guard(decides_for_caller=True)
        case "default":
            return Guard()
        case "fields":
            fields = frozenset(family.field for family in scenario.families.values() if family.field)
            return Guard(fields={APIS[scenario.api].operation: fields})
