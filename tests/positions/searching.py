"""Histories drawn at random, and what is left of one that breaks something.

That is: as few moves as possible, told so that one can follow.
"""

from typing import NamedTuple

from tests.positions.histories import Broken, History
from tests.positions.moves import ORDINARY, Move


class Found(NamedTuple):
    """What came of a search."""

    history_count: int
    step_count: int
    recall_count: int
    broken_count: int
    shortest: list[Move] | None
    """The shortest history that was found to break something."""


def drawn_move(chance, verbs):
    """Any move; small numbers more often."""
    return Move(
        chance.choice(verbs),
        key=chance.choice((0, 0, 1)),
        worker=chance.choice((0, 1)),
        value=chance.choice((0, 1, 1, 2)),
        back=chance.choice((0, 0, 0, 1, 1, 2, 3, 4, 5, 6)),
        who=chance.choice((0, 1)),
    )


def drawn(chance, environment, count):
    """Histories of any kind."""
    verbs = ORDINARY + environment.verbs
    for _ in range(count):
        yield [drawn_move(chance, verbs) for _ in range(chance.randint(6, 26))]


def mutants(chance, environment, traces, count):
    """Hand-made histories, or two of them joined, with some moves more, fewer, or others."""
    verbs = ORDINARY + environment.verbs
    for _ in range(count):
        moves = list(chance.choice(traces))
        if chance.random() < 0.3:
            moves = moves[: chance.randint(0, len(moves))] + list(chance.choice(traces))
        for _ in range(chance.randint(0, 5)):
            at, how = chance.randint(0, len(moves)), chance.random()
            if how < 0.5 or at == len(moves):
                moves.insert(at, drawn_move(chance, verbs))
            elif how < 0.75:
                del moves[at]
            else:
                moves[at] = drawn_move(chance, verbs)
        yield moves


def broken(moves, environment, rules=None, kind=History):
    """What a history breaks; None if it breaks nothing."""
    try:
        kind(environment, rules).play(moves)
    except Broken as error:
        return str(error)
    return None


def searched(histories, environment, rules=None, kind=History, most_shrunk=3):
    """Play histories, and shrink the first of those that break something."""
    history_count = step_count = recall_count = broken_count = 0
    shortest = None
    for moves in histories:
        history = kind(environment, rules)
        history_count += 1
        step_count += len(moves)
        try:
            history.play(moves)
        except Broken:
            broken_count += 1
            if broken_count <= most_shrunk:
                shortest = min(
                    (
                        each
                        for each in (shortest, shrunk(moves, environment, rules, kind))
                        if each is not None
                    ),
                    key=len,
                )
        recall_count += history.recall_count
    return Found(history_count, step_count, recall_count, broken_count, shortest)


def shrunk(moves, environment, rules=None, kind=History):
    """As few moves as possible, with numbers as small as possible, that break the same property."""
    letter = broken(moves, environment, rules, kind)[0]

    def still_breaks(fewer):
        found = broken(fewer, environment, rules, kind)
        return found is not None and found[0] == letter

    before = None
    while moves != before:
        before = moves
        for size in (8, 4, 2, 1):
            moves = _with_fewer(moves, size, still_breaks)
        for at in range(len(moves)):
            moves = _with_smaller(moves, at, still_breaks)
    return moves


def _with_fewer(moves, size, still_breaks):
    at = 0
    while at < len(moves):
        fewer = moves[:at] + moves[at + size :]
        if still_breaks(fewer):
            moves = fewer
        else:
            at += 1
    return moves


def _with_smaller(moves, at, still_breaks):
    for field in Move._fields[1:]:
        for smaller in range(getattr(moves[at], field)):
            simpler = [*moves[:at], moves[at]._replace(**{field: smaller}), *moves[at + 1 :]]
            if still_breaks(simpler):
                moves = simpler
                break
    return moves


class Told(History):
    """A history that writes down what happens."""

    def __init__(self, environment, rules=None):
        super().__init__(environment, rules)
        self.lines = []

    def make(self, move):
        self.lines.append(f"{self.servers.time + 1:3d} {move}")
        super().make(move)

    def heal(self, is_answering):
        self.lines.append(f"    all is well, and questions are {'' if is_answering else 'never '}answered")
        super().heal(is_answering)

    def has_asked(self, memory, asked):
        parts = [f"{asked.kind} {asked.key or ''}".strip(), f"names {_spelled(asked.named, asked.mark)}"]
        if asked.nonce:
            parts.append(f"asks with {asked.nonce}")
        if asked.carried is not None:
            parts.append(f"carries {tuple(asked.carried)}")
        self.lines.append(f"      {', '.join(parts)}")

    def has_said(self, worker, said):
        fix = "" if said.fix is None else f", fix {tuple(said.fix)}"
        about = _spelled(*said.base)
        self.lines.append(f"      worker {worker} says {_spelled(said.to)}: {said.how}, about {about}{fix}")

    def has_decided(self, memory, before, delivery):
        held = memory.held
        entries = (
            f"{key}={tuple(entry.fix)}{'?' if entry.is_suspect else ''}"
            for key, entry in memory.entries.items()
        )
        self.lines.append(
            f"      what was said at {delivery.said.made_at} is {delivery.decision.verdict}: "
            f"at {_spelled(held.known, held.mark)}{', in doubt' if held.is_doubted else ''}; "
            f"remembers {', '.join(entries) or 'nothing'}"
        )


def told(moves, environment, rules=None):
    """The whole story of a history, and what it breaks."""
    history = Told(environment, rules)
    end = "nothing is broken"
    try:
        history.play(moves)
    except Broken as error:
        end = str(error)
    return "\n".join([*history.lines, f"=> {end}"])


def _spelled(position, mark=""):
    place = "nothing" if position is None else f"{position.number}/{position.check}"
    return f"{place}{mark and ':'}{mark}"
