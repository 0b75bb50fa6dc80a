"""Entries of a memory, made up, and how they come into a store."""

from shelflife.client import Condition, Entry, Filed, Grounds, Write

ORIGIN = "https://a.example:443"
OTHER = "https://b.example"


def entry(plan="basic", value="P1", *, root=ORIGIN, type="USE_PROMO", at=0.0, when=None, **changes):
    """What is remembered for a plan."""
    members = {
        "root": root,
        "operation": "POST /x",
        "type": type,
        "parameters": {"promo": value},
        "condition": Condition({"plan": plan} if when is None else when),
        "grounds": Grounds(("codes",), {"codes": {plan: ("code",)}}, ()),
        "learned_at": at,
    }
    return Entry(**(members | changes))


def filed(one, tags=("t",), *, beside=False):
    """An entry as it is filed: in the slot of what it is the answer to, or beside whatever else is the answer."""
    return Filed(one, one.id if beside else one.slot, tuple(tags))


def put(store, *entries, tags=("t",), root=ORIGIN, beside=False, **options):
    """Write entries into a store, with all else as the store knows it."""
    known = store.known(root)
    write = Write(known.knowledge, put=[filed(one, tags, beside=beside) for one in entries], **options)
    return store.write(root, known.revision, write)
