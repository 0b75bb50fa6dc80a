"""A network of our own between two parts: it takes turns between several addresses, and can fall silent, delay, and cut."""

import itertools
import select
import socket
import threading
import time
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit


class Proxy:
    """Listens on a port, and hands each connection to the next of the addresses."""

    def __init__(self, *addresses):
        self.turn_to(*addresses)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.is_silent = False
        """Whether it takes everything, and hands nothing on. What was sent meanwhile is lost, and its connection with it."""
        self.delay_s = 0.0
        self.drip_s = 0.0
        """What the engine says is handed on byte by byte, with so long a pause after each."""
        self.carried_count = 0
        """How much it has handed on."""
        self._open = set()
        self._is_over = False

    def turn_to(self, *addresses):
        """From now on hand connections to these. Those that there are go on."""
        self._turns = itertools.cycle(_place_of(address) for address in addresses)

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception):
        self.close_port()

    def close_port(self):
        """Take no more connections, and end those that there are."""
        self._is_over = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self):
        """End all connections that there are."""
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def url_of(self, url):
        """The same engine, by way of this."""
        is_postgres = url.startswith("postgresql")
        return self.postgres_url_of(url) if is_postgres else f"redis://127.0.0.1:{self.port}/0"

    def postgres_url_of(self, url):
        """The same database, by way of this."""
        schema = parse_qs(urlsplit(url).query).get("schema")
        named = f"&schema={schema[0]}" if schema else ""
        return f"postgresql://postgres:hidden@127.0.0.1:{self.port}/postgres?sslmode=disable{named}"

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=[client], daemon=True).start()

    def _carry(self, client):
        family, place = next(self._turns)
        with client, socket.socket(family, socket.SOCK_STREAM) as server, suppress(OSError):
            server.connect(place)
            self._open |= {client, server}
            others = {client: server, server: client}
            was_silent = False
            try:
                while others and not self._is_over:
                    for one in select.select([*others], [], [], 0.05)[0]:
                        part = one.recv(65536)
                        was_silent = was_silent or self.is_silent
                        if was_silent and not part:
                            del others[one]  # nor is it told of an end
                        elif not part:
                            return
                        elif not was_silent:
                            if self.delay_s:
                                time.sleep(self.delay_s)
                            self._hand_on(part, others[one], is_answer=one is server)
                            self.carried_count += 1
            finally:
                self._open -= {client, server}

    def _hand_on(self, part, to, *, is_answer):
        while is_answer and self.drip_s and part and not self._is_over:
            to.sendall(part[:1])
            part = part[1:]
            time.sleep(self.drip_s)
        to.sendall(part)


def _place_of(address):
    """Where to connect: of PostgreSQL its socket in a folder."""
    url = urlsplit(address)
    if url.scheme in ("http", "redis"):
        return socket.AF_INET, (url.hostname, url.port)
    return socket.AF_UNIX, f"{parse_qs(url.query)['host'][0]}/.s.PGSQL.5432"
