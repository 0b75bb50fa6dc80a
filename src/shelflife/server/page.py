"""The operator's page: one document with its style and scripts, as files. Nothing of the contract is in it before somebody signs in."""

from collections.abc import Iterator
from functools import partial
from importlib.resources import files

from shelflife.server.endpoints import READ, Endpoint, EndpointCall
from shelflife.server.feedback import Answer
from shelflife.server.provider import Provider

__all__ = ["page_of"]

_TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("Cache-Control", "no-cache"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)


def page_of(provider: Provider) -> dict[str, Endpoint]:
    """The files of the page, by where they are. Anybody may have them: they are the same everywhere."""
    root = provider.admin_page
    return {} if root is None else dict(_files(root))


def _files(root: str) -> Iterator[tuple[str, Endpoint]]:
    # By a relative address, because only the browser knows where the app is mounted.
    endpoints = "../" * (root.count("/") - 1) + "admin/"
    for file in files("shelflife.server").joinpath("page_files").iterdir():
        name, _, kind = file.name.rpartition(".")
        if kind in _TYPES:
            body = file.read_bytes().replace(b"{{endpoints}}", endpoints.encode())
            path = root if (name, kind) == ("index", "html") else root + file.name
            yield path, Endpoint(READ, partial(_file, Answer(200, _TYPES[kind], body, _HEADERS)))


def _file(answer: Answer, call: EndpointCall) -> Answer:
    return answer
