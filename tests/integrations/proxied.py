"""An API that knows nothing of the contract, for a proxy to stand before."""

import asyncio
import gzip
import json
import threading

__all__ = ["JSON", "Api"]

JSON = (b"content-type", b"application/json")


class Api:
    """An API with a login. It knows the right code by itself, answers in one way at each path, and notes what it gets."""

    def __init__(self):
        self.seen = []
        self.is_heard = threading.Event()
        self.has_ended = threading.Event()
        self.code = "A"

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            raise NotImplementedError
        headers, path = dict(scope["headers"]), scope["path"]
        body, more, parts = b"", True, 0
        while more:
            message = await receive()
            part, more = message.get("body", b""), message.get("more_body", False)
            body, parts = body + part[:100], parts + len(part)
        self.seen.append((scope["method"], scope["raw_path"].decode(), headers, body, parts))

        async def say(status, said, *others):
            raw = said if isinstance(said, bytes) else json.dumps(said).encode()
            length = (b"content-length", b"%d" % len(raw))
            await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *others]})
            await send({"type": "http.response.body", "body": raw})

        if path == "/open":
            await say(200, {"open": True})
        elif headers.get(b"authorization") != b"Bearer ada":
            await say(401, {"error": "who are you?"}, (b"www-authenticate", b"Bearer"))
        elif path == "/broken" or headers.get(b"x-answer") in (b"broken", b"stalled"):
            status = 200 if path == "/broken" else 422
            await send(
                {
                    "type": "http.response.start",
                    "status": status,
                    "headers": [JSON, (b"content-length", b"10")],
                }
            )
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            if headers.get(b"x-answer") == b"stalled":
                await receive()
                self.has_ended.set()
        elif path == "/me":
            await say(200, {"name": "ada"})
        elif path == "/orders":
            kind = headers.get(b"x-answer", b"").decode()
            is_good = (
                not kind and json.loads(body if body.startswith(b"{") else b"{}").get("promo") == self.code
            )
            if kind == "gzip":
                await say(400, gzip.compress(b'{"error": "no"}'), (b"content-encoding", b"gzip"))
            elif kind == "text":
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"no"})
            elif kind == "large":
                await say(400, b'{"error": "' + b"x" * 3_000_000 + b'"}')
            elif kind.isdigit():
                await say(int(kind), {"error": "no"})
            else:
                await say(200 if is_good else 422, {"ok": True} if is_good else {"error": "wrong promo"})
        elif path == "/moved":
            await say(302, {}, (b"location", b"http://%b/orders" % headers[b"host"]))
        elif path == "/cookies":
            await say(
                200,
                {},
                (b"set-cookie", b"a=1"),
                (b"set-cookie", b"b=2"),
                (b"x-hop", b"1"),
                (b"connection", b"x-hop"),
                (b"contract-at", b"x"),
            )
        elif path == "/stream":
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream")],
                }
            )
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
            leaving = asyncio.ensure_future(receive())
            while not self.is_heard.is_set() and not leaving.done():  # noqa: ASYNC110 - a thread tells
                await asyncio.sleep(0.005)
            if leaving.done():
                self.has_ended.set()
            leaving.cancel()
            await send({"type": "http.response.body", "body": b"data: 2\n\n"})
        elif path == "/silent":
            await asyncio.wait([asyncio.ensure_future(receive())])
        else:
            await say(404, {"error": "nothing here"})
