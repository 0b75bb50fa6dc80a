"""Where histories take place: what can happen there beside the ordinary, and what is promised."""

from tests.positions.evidence import CONFIRMED, DOUBT, EXPIRED, GONE_BY, NEWER
from tests.positions.histories import Environment

ACCEPTED = (GONE_BY, CONFIRMED, DOUBT, NEWER)
"""All but what a request was just told: the most that can be had where a log's past may come again."""

WORKERS = ("lose_log", "compact", "deploy", "redeploy")
IN_PARTS = ("begin",) * 6 + ("go_on",) * 14
SET_BACK = ("back_up",) * 2 + ("set_back",) * 2
ALL = ("renew", "restart", "split", "back_up", "set_back", "forget", "begin", "go_on", "go_on", *WORKERS)

ENVIRONMENTS = {
    "a log that only grows": Environment(WORKERS),
    "restores": Environment(("renew",) * 3),
    "restarts, ids drawn at random": Environment(("restart",) * 3, has_random_ids=True),
    "all that servers do": Environment(("renew", "renew", "restart", *WORKERS), has_random_ids=True),
    "restarts, ids that follow from what is declared": Environment(("restart",) * 3, evidence=(GONE_BY,)),
    "several deliveries at a time": Environment((*IN_PARTS, "renew", "compact", "lose_log")),
    "several deliveries at a time, restarts": Environment(
        (*IN_PARTS, "restart", "compact"), has_random_ids=True
    ),
    "keys": Environment(
        ("renew", "restart", "expire", "expire", "forget", *WORKERS),
        evidence=(*Environment().evidence, EXPIRED),
        has_random_ids=True,
        has_keys=True,
    ),
    "keys, ids that follow from what is declared": Environment(
        ("restart", "restart", "expire", "compact"), evidence=(GONE_BY,), has_keys=True
    ),
    "forgetting": Environment(("forget", "forget", "renew", "restart"), evidence=(GONE_BY,)),
    "memories that are set back": Environment(
        (*SET_BACK, *IN_PARTS, "renew", "compact"), set_back_forgets=True
    ),
    "two disclosures": Environment(
        ("renew", "compact", "lose_log", *["replay"] * 4), is_disclosing_twice=True
    ),
    "no needless drops": Environment(
        (*WORKERS, "begin", "go_on", "go_on"),
        evidence=(),
        answers_at_once=True,
        promises_no_needless_drops=True,
    ),
    "some requests name nothing": Environment((*["plain"] * 6, *WORKERS)),
    "some requests name nothing, all that servers do": Environment(
        (*["plain"] * 6, "renew", "restart", *WORKERS), has_random_ids=True
    ),
    "healing, some requests name nothing": Environment((*["plain"] * 4, *ALL), evidence=(), heals=True),
    "healing, questions answered": Environment(ALL, evidence=(), heals=True),
    "healing, questions never answered": Environment(ALL, evidence=(), heals=False),
    "healing, two disclosures, questions never answered": Environment(
        ALL, evidence=(), is_disclosing_twice=True, heals=False
    ),
    "healing with keys, questions answered": Environment(
        (*ALL, "expire"), evidence=(), has_keys=True, heals=True
    ),
    "healing with keys, questions never answered": Environment(
        (*ALL, "expire"), evidence=(), has_keys=True, heals=False
    ),
}
