"""The pages of results: what is on each, and how it was measured."""

from typing import NamedTuple

__all__ = ["PAGES", "Page", "page_of"]


class Page(NamedTuple):
    """Subjects that are told together."""

    name: str
    """The files are called after it."""

    subjects: tuple[str, ...]
    """Each is the module that measures it."""

    about: str
    packages: tuple[str, ...]
    """Those whose versions matter here; one that is not installed is left out."""

    made_by: str = "make bench"


PAGES = (
    Page(
        name="server",
        subjects=("throughput", "reload", "walk", "workers"),
        about=(
            "Handlers are `async def`; servers are uvicorn (httptools, asyncio) on loopback, each in a process of its own."
        ),
        packages=("fastapi", "pydantic", "starlette", "uvicorn", "httptools", "msgspec", "rpds-py"),
    ),
    Page(
        name="memory",
        subjects=("remembering", "marks", "rivals", "footprint"),
        about=(
            "A fix has about 370 bytes and rests on two of fifty tables and on one row. Stores of all sizes, and whatever is compared,"
            " are used in turns in one process, so that what else the machine does meets all of them; ratios say more than times."
        ),
        packages=(
            "msgspec",
            "requests-cache",
            "hishel",
            "cashews",
            "diskcache",
            "langgraph-checkpoint",
            "langgraph-checkpoint-sqlite",
        ),
    ),
    Page(
        name="wire",
        subjects=("wire_bytes", "feed_fan_out", "signing"),
        about="Real servers on loopback. Shares and bytes are exact and the same on any machine; times are not.",
        packages=("fastapi", "starlette", "uvicorn", "httpx2", "msgspec"),
    ),
    Page(
        name="fleet",
        subjects=("shared_memory", "shared_log", "shared_log_throughput"),
        about=(
            "PostgreSQL (over a socket of this machine) and Valkey (over loopback) are set as they come: what PostgreSQL has committed survives a"
            " power cut, and Valkey writes its log to the disk every second. Whatever is compared is used in turns, so that what else the machine"
            " does meets all of it; ratios say more than times."
        ),
        packages=(
            "fastapi",
            "uvicorn",
            "msgspec",
            "psycopg",
            "redis",
            "cashews",
            "langgraph-checkpoint",
            "langgraph-checkpoint-postgres",
        ),
        made_by="make bench-fleet",
    ),
)


def page_of(subject: str) -> Page:
    """The page that a subject is on."""
    return next(page for page in PAGES if subject in page.subjects)
