"""Entries of a memory, made up, and how they come into a store."""

from shelflife.client.entries import Entry

ORIGIN = "https://a.example"
OTHER = "https://b.example"


def entry(plan="basic", value="P1", *, origin=ORIGIN, type="USE_PROMO", at=0.0, **changes):
    """What is remembered for a plan."""
    members = {
        "origin": origin,
        "operation": "POST /x",
        "type": type,
        "parameters": {"promo": value},
        "when": {"plan": plan},
        "tables": ("codes",),
        "rows": (f"codes:{plan}",),
        "rules": (),
        "learned_at": at,
    }
    return Entry(**(members | changes))


def put(store, *entries, tags=("t",), origin=ORIGIN, **options):
    """Write entries into a store, with all else as the store knows it."""
    known = store.known(origin)
    return store.write(
        origin, known.revision, known.knowledge, put=[(one, tags) for one in entries], **options
    )
