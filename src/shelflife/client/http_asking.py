"""Questions of a memory over HTTP, by the standard library alone, for whoever has an API's address and no client of their own.

They go straight to the address, with no credentials, through no proxy, and follow no redirect.
"""

import asyncio
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Timer
from urllib.parse import urlsplit

from shelflife.client.asking import LARGEST_ANSWER, Question, Reply

__all__ = ["ask_http", "ask_http_async"]

_CONNECTIONS = {"http": HTTPConnection, "https": HTTPSConnection}


def ask_http(question: Question) -> Reply | None:
    """Put a question to the server that its URL names; None when it does not answer, in time and in full."""
    parts = urlsplit(question.url)
    until = time.monotonic() + question.within_s
    connection = _CONNECTIONS[parts.scheme](parts.hostname or "", parts.port, timeout=question.within_s)
    ends: Timer | None = None
    try:
        connection.connect()
        # a timeout of the socket begins anew with each byte, and a server may send them one by one
        ends = Timer(max(until - time.monotonic(), 0), _hang_up, [connection.sock])
        ends.daemon = True
        ends.start()
        target = parts._replace(scheme="", netloc="").geturl() or "/"
        of_body = {} if question.body is None else {"Content-Type": "application/json"}
        sent = {"Accept": "application/json", **of_body, **question.headers}
        connection.request(question.method, target, question.body, sent)
        reply = _reply(connection.getresponse())
        return reply if time.monotonic() < until else None  # what was cut off then may look whole
    except (OSError, HTTPException):
        return None
    finally:
        if ends is not None:
            ends.cancel()
        connection.close()


async def ask_http_async(question: Question) -> Reply | None:
    """The same in a thread, so that an event loop does not wait for it. Where there is none of asyncio's, that cannot be helped."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ask_http(question)
    return await asyncio.to_thread(ask_http, question)


def _reply(response: HTTPResponse) -> Reply | None:
    body = response.read(LARGEST_ANSWER + 1)
    is_plain = response.headers.get("Content-Encoding", "identity") == "identity"
    is_whole = len(body) <= LARGEST_ANSWER and not response.length  # of which something may be left
    return Reply(response.status, body) if is_plain and is_whole else None


def _hang_up(line: socket) -> None:
    with suppress(OSError):  # it is closed already
        socket.shutdown(line, SHUT_RDWR)  # beneath the TLS of a line that another thread is reading
