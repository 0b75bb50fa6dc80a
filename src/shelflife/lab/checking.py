"""Whether an API has what a stream names: found out by asking it, over the wire, in every state that the stream has."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple

import httpx2

from shelflife.contract.merging import merged
from shelflife.lab.apis import APIS, Api
from shelflife.lab.runner import LabError, pushed
from shelflife.lab.scenarios import BEFORE_THE_FIRST, Family, Scenario
from shelflife.lab.toml_lines import TomlLines
from shelflife.testing import serving

__all__ = ["problems_of"]

_MOST_FIXES = 4
"""An episode has five attempts."""


class _Problem(NamedTuple):
    path: tuple[str | int, ...]
    """Where in the file."""

    says: str


class _Answer(NamedTuple):
    """What the server says to a request."""

    status: int
    is_accepted: bool
    has_contract: bool
    fixes: tuple[tuple[str, dict[str, Any]], ...]
    text: str

    @property
    def sets(self) -> dict[str, Any]:
        return {name: value for _, parameters in self.fixes for name, value in parameters.items()}


class _Bench(NamedTuple):
    """The server of a stream's API."""

    api: Api
    http: httpx2.Client

    def answer(self, request: dict[str, Any]) -> _Answer:
        method, path = self.api.operation.split(" ")
        response = self.http.request(method, path, json=request)
        feedback = {} if response.is_success else response.json().get("recovery_feedback")
        suggestions = (feedback or {}).get("suggestions", ())
        fixes = tuple((one["type"], one["parameters"]) for one in suggestions)
        return _Answer(
            response.status_code, response.is_success, feedback is not None, fixes, _said(response)
        )


def _said(response: httpx2.Response) -> str:
    """A refusal in words: a framework's own names the fields, and the lab is not about its JSON."""
    details = response.json().get("detail")
    if not isinstance(details, list):
        return response.text
    return "; ".join(f"{one['loc'][-1]!r}: {one['msg']}" for one in details)


def problems_of(scenario: Scenario, lines: TomlLines | None = None) -> list[str]:
    """What is wrong with a stream that only a server of its API can tell, each with its line where `lines` know it."""
    found = dict.fromkeys(_problems(scenario))
    numbers = [lines.of(*problem.path) if lines else None for problem in found]
    return [
        f"line {number}: {problem.says}" if number else problem.says
        for number, problem in zip(numbers, found, strict=True)
    ]


def _problems(scenario: Scenario) -> Iterator[_Problem]:
    api, token = APIS[scenario.api], secrets.token_urlsafe()
    with closing(api.provider(admin_token=token)) as provider:
        provider.be_ready()
        with (
            serving(api.app(provider)) as address,
            httpx2.Client(base_url=address, trust_env=False) as http,
        ):
            bench = _Bench(api, http)
            met: dict[str, bool] = {}
            moments = sorted({BEFORE_THE_FIRST, *(drift.after for drift in scenario.drift)})
            for moment, end in pairwise([*moments, len(scenario.order) - 1]):
                for index, drift in enumerate(scenario.drift):
                    if drift.after == moment:
                        before = provider.state.number
                        try:
                            pushed(drift, http, token)
                        except LabError as error:
                            yield _Problem(("drift", index), str(error))
                            continue
                        if provider.state.number == before:
                            says = (
                                f"the drift {_when(moment)} changes nothing: no row, no rule and no version"
                            )
                            yield _Problem(("drift", index), says)
                episodes = range(moment + 1, end + 1)
                for name in dict.fromkeys(scenario.order[index] for index in episodes):
                    yield from _problems_of_family(scenario, name, moment, episodes, bench, met)


def _problems_of_family(
    scenario: Scenario, name: str, moment: int, episodes: Sequence[int], bench: _Bench, met: dict[str, bool]
) -> Iterator[_Problem]:
    """What is wrong with a family in one state; `met` says of those in earlier states whether they met a constraint."""
    family = scenario.families[name]
    answer = bench.answer(family.input)
    path = ("families", name)
    if not answer.is_accepted and not answer.has_contract:
        yield _Problem(path, f"the input of the family {name!r} is refused without a fix: {answer.text}")
    elif answer.is_accepted and scenario.history:
        pass  # real drift takes constraints away, and nobody is to blame
    elif answer.is_accepted and met.get(name):
        these = ", ".join(str(index) for index in episodes if scenario.order[index] == name)
        drifts = [index for index, drift in enumerate(scenario.drift) if drift.after == moment]
        yield _Problem(
            ("drift", drifts[-1]),
            f"the drift {_when(moment)} takes away the constraint that {name!r} meets: whatever is remembered,"
            f" its episodes succeed at once ({these})",
        )
    elif answer.is_accepted is bool(family.hint):
        meets = "meets no constraint" if family.hint else "meets a constraint"
        yield _Problem(path, f"the input of the family {name!r} {meets}, and its hint says otherwise")
    elif not answer.is_accepted:
        if not scenario.history:  # what a fix sets is what a release has left to set
            yield from _problems_of_hint(name, family, answer)
        yield from _problems_of_fixes(name, family, answer, bench)
    if name not in met:
        yield from _problems_of_values(scenario, name, answer, bench)
    met[name] = met.get(name, False) or not answer.is_accepted


def _problems_of_hint(name: str, family: Family, answer: _Answer) -> Iterator[_Problem]:
    path = ("families", name)
    listed = ", ".join(answer.sets)
    if family.field is not None and family.field not in answer.sets:
        says = f"the fix for {name!r} sets {listed}, and its field says {family.field}"
        yield _Problem((*path, "field"), says)
        return
    fields = [family.field] if family.field else list(answer.sets)
    is_adding = any(field not in family.input for field in fields)
    if is_adding is not (family.hint == "add a field"):
        does = "adds a field to" if is_adding else "rewrites a value of"
        says = (
            f"the fix for {name!r} {does} its input ({', '.join(fields)}), and its hint says {family.hint!r}"
        )
        yield _Problem((*path, "hint"), says)


def _problems_of_fixes(name: str, family: Family, answer: _Answer, bench: _Bench) -> Iterator[_Problem]:
    request = family.input
    for _ in range(_MOST_FIXES):
        request = merged(request, answer.sets)
        answer = bench.answer(request)
        if answer.is_accepted:
            return
    yield _Problem(
        ("families", name), f"whoever follows the fixes for {name!r} does not succeed: {answer.text}"
    )


def _problems_of_values(scenario: Scenario, name: str, answer: _Answer, bench: _Bench) -> Iterator[_Problem]:
    """Values that should make no difference, and what a server that injects wants."""
    family = scenario.families[name]
    for field, values in scenario.varied.items():
        for value in values if field in family.input else ():
            other = bench.answer({**family.input, field: value})
            if (other.status, other.fixes) != (answer.status, answer.fixes):
                says = f"with {value!r} for {field!r}, {name!r} is answered otherwise: {other.text}"
                yield _Problem(("varied", field), says)
    if scenario.wants:
        injected = bench.answer({**family.input, **scenario.wants})
        if injected.status != answer.status:
            says = f"with what the server wants, {name!r} is answered otherwise: {injected.text}"
            yield _Problem(("wants",), says)


def _when(moment: int) -> str:
    return "before the first episode" if moment == BEFORE_THE_FIRST else f"after episode {moment}"
