"""Histories drawn at random, each with a setting of its own; and mutants of hand-made ones, which go where chance seldom does."""

from functools import partial

from tests.histories.history import Setting
from tests.histories.moves import verbs_of
from tests.positions.moves import Move
from tests.positions.searching import drawn_move

call, serve, deliver, lose, replay = (
    partial(Move, verb) for verb in "call serve deliver lose replay".split()
)
exchange, reload, restore, begin_anew, copy_log, deploy, catch_up, forget, refresh, revalidate = (
    partial(Move, verb)
    for verb in "exchange reload restore begin_anew copy_log deploy catch_up forget refresh revalidate".split()
)
break_store = partial(Move, "break_store")
_ALWAYS = {"reload", "exchange"}

TRACES = {
    "a worker that lags answers a question": [
        call(),
        exchange(),
        reload(value=1),
        serve(),
        deliver(),
        reload(value=2),
        serve(worker=1),
        deliver(),
    ],
    "what one agent has named is lost, and the other has gone on since": [
        copy_log(),
        exchange(),
        reload(value=1),
        exchange(),
        call(who=1),
        restore(),
        exchange(),
        serve(),
        deliver(),
    ],
    "a loss that matters is told with a lower number": [
        copy_log(),
        exchange(),
        call(),
        call(),
        reload(value=1),
        serve(back=1),
        restore(),
        serve(),
        deliver(back=1),
        deliver(),
    ],
    "an answer is older than the doubt": [
        call(value=1),
        call(value=2),
        exchange(),
        reload(value=1, back=6),
        serve(back=1),
        deliver(back=1),
        serve(back=1),
        reload(value=1),
        serve(),
        deliver(),
        deliver(back=1),
    ],
    "two requests in doubt, across two new logs, are answered in the other order": [
        exchange(),
        call(value=1),
        reload(value=1),
        exchange(),
        begin_anew(value=1),
        call(),
        call(who=1),
        serve(back=1),
        begin_anew(),
        serve(),
        deliver(),
        deliver(),
    ],
    "after a deploy a worker still runs the old code": [
        exchange(),
        deploy(worker=1, value=1),
        catch_up(),
        exchange(worker=1),
        exchange(),
    ],
    "an answer about a suspect is of a log that was left since": [
        exchange(),
        begin_anew(),
        exchange(value=1),
        revalidate(value=0),
        call(),
        serve(),
        begin_anew(value=2),
        exchange(value=1),
        deliver(),
    ],
    "what was under way when all was forgotten": [
        exchange(),
        reload(value=1),
        exchange(),
        call(),
        begin_anew(),
        serve(),
        forget(back=1),
        reload(value=1),
        exchange(),
        deliver(),
    ],
    "questions are lost, and asked again": [
        call(),
        exchange(),
        reload(value=1),
        serve(),
        deliver(),
        lose(),
        exchange(back=3),
        refresh(),
        exchange(),
    ],
    "an old reply comes when a newer one could not be written down": [
        call(key=1, value=2),
        serve(),
        exchange(),
        reload(value=1),
        break_store(),
        exchange(value=1),
        deliver(),
    ],
    "nobody answers whoever refreshes, and the doubt cannot be written down": [
        exchange(),
        reload(value=1),
        break_store(),
        exchange(value=1),
        refresh(back=3),
    ],
    "a reply that raises a doubt cannot be written down": [
        exchange(),
        reload(value=1),
        break_store(who=1),
        exchange(value=1, who=1),
    ],
    "who names no position is told a state that has passed, and that comes back": [
        exchange(),
        exchange(who=1),
        call(who=1),
        serve(),
        reload(value=1),
        exchange(),
        exchange(who=1),
        deliver(),
        reload(value=0),
        exchange(who=1),
        exchange(value=1),
        exchange(who=1, value=1),
    ],
    "who names no position is taught by old code, and then by new": [
        exchange(),
        exchange(who=1),
        deploy(worker=1, value=1),
        exchange(who=1, value=1),
        exchange(who=1, worker=1, value=2),
        catch_up(),
        exchange(who=1, value=2),
        exchange(),
        exchange(who=1),
    ],
    "replies come again after the log has gone on, and after it was lost": [
        exchange(),
        reload(value=1),
        exchange(),
        reload(value=2),
        exchange(),
        replay(),
        begin_anew(),
        replay(back=1),
    ],
}


def drawn_setting(chance):
    """What a history is played with; any combination that there can be."""
    setting = Setting(
        form=chance.choice((*["compact"] * 5, "full", "full", "mixed", "mixed")),
        conditional=chance.random() < 0.4,
        has_feed=chance.random() < 0.3,
        has_keys=chance.random() < 0.25,
        discloses=chance.choice(("", "", "", "counts", "diffs")),
        has_file=chance.random() < 0.3,
        keeps_file=chance.random() < 0.4,
        worker_count=chance.choice((1, 2, 2)),
        capacity=chance.choice((None, None, None, 3)),
        most_evictions=chance.choice((None, None, 0, 1, 32)),
        most_entries=chance.choice((1024, 1024, 3)),
        longest_account=chance.choice((4096, 4096, 90)),
        longest_answer=chance.choice((4096, 4096, 90)),
        loses_answers=chance.random() < 0.7,
        has_flaky_store=chance.random() < 0.15,
        splits=chance.random() < 0.1,
    )
    if setting.form == "full" and (setting.has_keys or setting.has_feed):
        setting = setting._replace(conditional=True)  # whoever follows a feed, or pins keys, names positions
    if setting.form == "mixed":
        setting = setting._replace(keeps_file=False)  # none that is set back to where no position was known
    if setting.is_by_versions:
        setting = setting._replace(worker_count=1, splits=False)  # nobody could tell who lags
    if setting.worker_count == 1:
        setting = setting._replace(splits=False)
    is_told_all = setting.longest_account >= 4096 and not setting.is_by_versions and not setting.has_keys
    return setting._replace(answers_in_the_end=not is_told_all or chance.random() < 0.7)


def drawn_moves(chance, setting):
    """Any moves, of some kinds more than of others; or a hand-made history with some more, fewer or others."""
    possible = verbs_of(setting)
    kinds = sorted(set(possible))
    left = _ALWAYS | {kind for kind in kinds if chance.random() < 0.7}
    verbs = [verb for verb in possible if verb in left]
    if chance.random() < 0.5:
        return [drawn_move(chance, verbs) for _ in range(chance.randint(8, 40))]
    moves = [move for move in chance.choice(list(TRACES.values())) if move.verb in possible]
    if chance.random() < 0.3:
        moves = moves[: chance.randint(0, len(moves))] + [
            move for move in chance.choice(list(TRACES.values())) if move.verb in possible
        ]
    for _ in range(chance.randint(0, 6)):
        at, how = chance.randint(0, len(moves)), chance.random()
        if how < 0.6 or at == len(moves):
            moves.insert(at, drawn_move(chance, verbs))
        elif how < 0.8:
            del moves[at]
        else:
            moves[at] = drawn_move(chance, verbs)
    return moves
