"""A client for a WSGI app that really runs on loopback."""

import threading
from contextlib import contextmanager

import httpx2
from werkzeug.serving import WSGIRequestHandler, make_server

__all__ = ["calling_wsgi"]


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, kind, message, *arguments):
        pass


@contextmanager
def calling_wsgi(app, **options):
    """A client whose requests go to a WSGI app, which a server of threads serves."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with httpx2.Client(
            base_url=f"http://127.0.0.1:{server.port}", trust_env=False, timeout=60, **options
        ) as client:
            yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
