"""What a provider does, in the text format of Prometheus: counts of all workers, and how things are now."""

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Literal, NamedTuple, get_args

from shelflife.server.counting import Key, Result
from shelflife.server.errors import LogError
from shelflife.server.log import Header
from shelflife.server.provider import Provider
from shelflife.server.verdicts import Verdict

__all__ = ["METRICS", "TEXT_FORMAT", "Metric", "exposition"]

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Values = Mapping[Key, float]
"""The samples of a metric, by the values of its labels."""


class Metric(NamedTuple):
    """One metric: its name without `shelflife_`, what it says, and its labels."""

    name: str
    kind: Literal["counter", "gauge"]
    says: str
    labels: tuple[str, ...] = ()
    at_first: tuple[Key, ...] = ()
    """The values of the labels that are told from the beginning: a rate needs a first value to begin with."""

    @property
    def full_name(self) -> str:
        """What it is called."""
        return f"shelflife_{self.name}{'_total' if self.kind == 'counter' else ''}"

    def written(self, values: Values) -> Iterator[str]:
        """The lines that tell of it; none where there is nothing to tell."""
        if values:
            yield f"# HELP {self.full_name} {self.says}"
            yield f"# TYPE {self.full_name} {self.kind}"
        for key, value in sorted(values.items()):
            labels = ",".join(
                f'{name}="{one.translate(_ESCAPES)}"' for name, one in zip(self.labels, key, strict=True)
            )
            yield f"{self.full_name}{{{labels}}} {value:.17g}" if labels else f"{self.full_name} {value:.17g}"


def _each(*values: str) -> tuple[Key, ...]:
    return tuple((value,) for value in values)


METRICS = (
    Metric("checks", "counter", "Requests that were checked, by what has come of it.", ("result",), _each(*get_args(Result))),
    Metric("fixes", "counter", "Fixes that were given, by policy and type, and with what.", ("policy", "type", "given")),
    Metric("preconditions", "counter", "Preconditions of requests, by the verdict.", ("verdict",), _each("met", "failed", "unjudged")),
    Metric("stamped_responses", "counter", "Responses that told a client of the state.", (), ((),)),
    Metric("withheld_answers", "counter", "Answers that told nothing of the state, by what could not be vouched for.", ("why",), _each("log", "policies")),
    Metric("endpoint_calls", "counter", "Calls of the contract's own endpoints, by the class of the status.", ("endpoint", "status")),
    Metric("changes", "counter", "Changes in the log, by what has changed.", ("what",), _each("tables", "rules", "policies")),
    Metric("changed_rows", "counter", "Rows that were added, removed or changed.", ("table", "change")),
    Metric("feed_events", "counter", "Events that were sent to listeners of the change feed.", (), ((),)),
    Metric("info", "gauge", "Always 1; what runs here is in the labels.", ("version", "level")),
    Metric("feed_listeners", "gauge", "Listeners of the change feed.", (), ((),)),
    Metric("workers", "gauge", "Workers that follow the log, by whether they have come to its end.", ("state",)),
    Metric("log_position", "gauge", "How many changes there are in the log, as far as this worker knows.", (), ((),)),
    Metric("log_unreached_seconds", "gauge", "Seconds since this worker has last seen the end of its log.", (), ((),)),
    Metric("log_reachable", "gauge", "1 while this worker can read its log, else 0.", (), ((),)),
    Metric("table_rows", "gauge", "Rows of a table.", ("table",)),
    Metric("table_changed_timestamp_seconds", "gauge", "When a table has changed last, in seconds since 1970.", ("table",)),
    Metric("clients", "gauge", "Clients that were seen of late, by what their memory comes to.", ("verdict",)),
    Metric("client_tasks", "gauge", "Tasks of these clients of late, one for each fix that they needed, by whether it was there at once.", ("outcome",)),
)  # fmt: skip
"""All of them, in the order in which they are told."""


def exposition(provider: Provider) -> str:
    """What is told to whoever scrapes.

    What needs the log is left out while that cannot be reached. A count of this worker alone would look like one that began anew.
    """
    told = _now(provider)
    try:
        told |= _counted(provider) | _of_all(provider)
    except LogError:
        told["log_reachable"] = {(): 0}
    lines = [line for metric in METRICS for line in metric.written(told.get(metric.name, {}))]
    return "\n".join([*lines, ""])


def _counted(provider: Provider) -> dict[str, Values]:
    counts = provider.counts.totals()
    told: dict[str, dict[Key, float]] = {}
    lengths = {metric.name: len(metric.labels) for metric in METRICS}
    for metric in METRICS:
        if metric.kind == "counter":
            told[metric.name] = dict.fromkeys(metric.at_first, 0)
    changes = (("added",), ("removed",), ("changed",))
    told["changed_rows"] = {(table, *how): 0 for table in provider.registry.state.tables for how in changes}
    for (name, *labels), count in counts.items():
        if name in told and len(labels) == lengths[name]:  # else another release has counted it
            told[name][tuple(labels)] = count
    return dict(told)


def _of_all(provider: Provider) -> dict[str, Values]:
    """How things are now with all workers."""
    told: dict[str, Values] = {"feed_listeners": {(): provider.feed.all_listeners()}}
    workers = provider.registry.workers()
    told["workers"] = {("current",): workers.live - workers.behind, ("behind",): workers.behind}
    if provider.clients is not None:
        scores = provider.clients.scores(provider.clients.others(provider.registry))
        verdicts = [score.verdict for score in scores]
        told["clients"] = {(verdict,): verdicts.count(verdict) for verdict in get_args(Verdict)}
        tasks, right = sum(one.tasks for one in scores), sum(one.right_at_once for one in scores)
        told["client_tasks"] = {("right at once",): right, ("other",): tasks - right}
    return told


def _now(provider: Provider) -> dict[str, Values]:
    """How things are now with this worker."""
    registry = provider.registry
    state = registry.state
    return {
        "info": {(version("shelflife"), f"{provider.level:d}"): 1},
        "log_position": {(): state.number},
        "log_unreached_seconds": {(): registry.unreached_s},
        "log_reachable": {(): int(not registry.is_cut_off)},
        "table_rows": {(name,): len(table.rows) for name, table in state.tables.items()},
        "table_changed_timestamp_seconds": _changed_at(state.made, state.tables),
    }


def _changed_at(changes: Iterable[Header], tables: Iterable[str]) -> Values:
    at = {(name,): made.at for made in changes if made.at for name in made.tables}
    known = {(name,) for name in tables}
    return {key: one for key, one in at.items() if key in known}
