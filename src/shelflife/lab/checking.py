"""Whether an API has what a stream names: found out by asking it, over the wire."""

import secrets

import httpx2

from shelflife.lab.apis import APIS
from shelflife.lab.runner import LabError, pushed
from shelflife.lab.scenarios import Scenario
from shelflife.testing import serving

__all__ = ["problems_of"]


def problems_of(scenario: Scenario) -> list[str]:
    """What a server of the stream's API refuses of it: a task's input that is malformed, a drift that cannot be."""
    api = APIS[scenario.api]
    token = secrets.token_urlsafe()
    problems: list[str] = []
    method, path = api.operation.split(" ")
    app = api.app(api.provider(admin_token=token))
    with serving(app) as address, httpx2.Client(base_url=address, trust_env=False) as http:
        for name, family in scenario.families.items():
            answer = http.request(method, path, json=family.input)
            if not answer.is_success and "recovery_feedback" not in answer.json():
                problems.append(f"the input of the family {name!r} is refused without a fix: {answer.text}")
            elif answer.is_success is bool(family.hint):
                meets = "meets no constraint" if family.hint else "meets a constraint"
                problems.append(f"the input of the family {name!r} {meets}, and its hint says otherwise")
            if scenario.wants:
                injected = http.request(method, path, json={**family.input, **scenario.wants})
                if injected.status_code != answer.status_code:
                    problems.append(
                        f"with what the server wants, {name!r} is answered otherwise: {injected.text}"
                    )
        for drift in sorted(scenario.drift, key=lambda drift: drift.after):
            try:
                pushed(drift, http, token)
            except LabError as error:
                problems.append(str(error))
    return problems
