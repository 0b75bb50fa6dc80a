"""How a client asks for a stream of events, and reads one; and what stands between it and its server."""

import asyncio
import json
import socket
import threading
from contextlib import contextmanager, suppress

LISTENING = {"Accept": "text/event-stream"}


def events(response):
    """The events of a stream, each as a dictionary; comments as None. Our server ends its lines in LF."""
    rest = ""
    for text in response.iter_text():
        *whole, rest = (rest + text).split("\n\n")
        for event in whole:
            if event.startswith(":"):
                yield None
            else:
                fields = dict(line.split(": ", 1) for line in event.split("\n"))
                yield {**fields, "data": json.loads(fields["data"])}


def heard(feed, count, headers=None, query=""):
    """The first messages that a feed sends to a listener, who then leaves; all of them, when it ends before."""

    async def story():
        sent, is_enough = [], asyncio.Event()

        async def receive():
            await is_enough.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)
            if len(sent) >= count:
                is_enough.set()

        await asyncio.wait_for(feed.stream(headers or {}, query, receive, send), 60)
        return sent

    return asyncio.run(story())


async def until_gone(receive):
    """Wait until a client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def answer(send, body=b"", status=200, **headers):
    """Send a whole response, or the head of one whose body is still to come when the body is None."""
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": named})
    if body is not None:
        await send({"type": "http.response.body", "body": body})


class Counting:
    """Hands every request on to an app, and notes it: feeds with all that they tell, and questions."""

    def __init__(self, app):
        self._app = app
        self._noted = threading.Condition()
        self.feeds = []
        """What each feed has told so far."""
        self.asked = []
        """The path and the query of each other request to the contract's endpoints."""

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        told = bytearray()
        with self._noted:
            if b"event-stream" in headers.get(b"accept", b""):
                self.feeds.append(told)
            elif scope["path"].startswith("/contract/"):
                self.asked.append(f"{scope['path']}?{scope['query_string'].decode()}")
            self._noted.notify_all()

        async def noted(message):
            await send(message)
            with self._noted:
                told.extend(message.get("body", b""))
                self._noted.notify_all()

        await self._app(scope, receive, noted)

    def wait_until(self, is_so, timeout_s=60):
        """Wait until what was noted is so."""
        with self._noted:
            return self._noted.wait_for(is_so, timeout_s)


class Path:
    """What lies between a client and a server. It can go dead: nothing comes over it any more, and nobody is told."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs = []
        self._dead = set()

    def go_dead(self):
        """Every connection that is there now; new ones work."""
        self._dead = set(self._pairs)

    @property
    def connection_count(self):
        """How many there were."""
        return len(self._pairs)

    def _accept(self):
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                pair = near, socket.create_connection(("127.0.0.1", self._port))
                self._pairs.append(pair)
                for ends in (pair, pair[::-1]):
                    threading.Thread(target=self._carry, args=[pair, *ends], daemon=True).start()

    def _carry(self, pair, source, sink):
        with suppress(OSError):
            while content := source.recv(65536):
                if pair not in self._dead:
                    sink.sendall(content)
            if pair not in self._dead:
                sink.shutdown(socket.SHUT_WR)

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception):
        for one in (self._listener, *(end for pair in self._pairs for end in pair)):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


@contextmanager
def running_loop():
    """An event loop in a thread of its own; gives what runs a coroutine on it to the end."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(300)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
