"""A pooler of our own before a PostgreSQL: it hands out the connections of the database by transaction, as PgBouncer can."""

import queue
import select
import socket
import struct
import threading
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

_STARTING = b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0"
_TRUSTED = b"R" + struct.pack("!II", 8, 0)
_READY = b"Z" + struct.pack("!I", 5) + b"I"
_ENDS_A_TURN = (b"Q", b"S")


class Pooler:
    """Listens on a port. Whoever speaks has a connection of the database until their transaction is over, and the next time maybe another."""

    def __init__(self, url, size=4):
        self._socket_of_database = f"{parse_qs(urlsplit(url).query)['host'][0]}/.s.PGSQL.5432"
        self._free = queue.LifoQueue()  # so that one who is alone mostly has the same again
        self._opened = []
        for _ in range(size):
            self._free.put(self._connected())
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception):
        for one in (self._listener, *self._opened):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _connected(self):
        database = socket.socket(socket.AF_UNIX)
        database.connect(self._socket_of_database)
        database.sendall(struct.pack("!II", len(_STARTING) + 8, 196608) + _STARTING)
        while _message(database)[:1] != b"Z":
            pass
        self._opened.append(database)
        return database

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._opened.append(client)
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client):
        database = None
        with client, suppress(OSError, EOFError):
            (length,) = struct.unpack("!I", _exactly(client, 4))
            _exactly(client, length - 4)
            client.sendall(_TRUSTED + _READY)
            while (said := _message(client))[:1] != b"X":
                if database is None:
                    database = self._free.get()
                    while select.select([database], [], [], 0)[0]:
                        _message(database)  # what it was told while it was nobody's is for nobody
                database.sendall(said)
                if said[:1] in _ENDS_A_TURN:
                    while (told := _message(database))[:1] != b"Z":
                        client.sendall(told)
                    if told == _READY:
                        self._free.put(database)
                        database = None
                    client.sendall(told)
        if database is not None:  # it was left in the middle
            database.close()
            with suppress(OSError):
                self._free.put(self._connected())


def _message(connection):
    head = _exactly(connection, 5)
    return head + _exactly(connection, struct.unpack("!I", head[1:])[0] - 4)


def _exactly(connection, size):
    told = connection.recv(size, socket.MSG_WAITALL) if size else b""
    if len(told) < size:
        raise EOFError
    return told
