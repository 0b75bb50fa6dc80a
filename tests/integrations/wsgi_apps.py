"""Apps of Flask and Django, and one that is plain WSGI, on loopback."""

import asyncio
import io
import json
import sys
from types import ModuleType

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import JsonResponse
from django.urls import path as url
from flask import Flask, request

from shelflife.integrations.asgi import ContractMiddleware as AsgiContractMiddleware
from shelflife.integrations.django import contract_urls
from shelflife.integrations.flask import install
from shelflife.integrations.wsgi import ContractMiddleware

__all__ = ["django_asgi_with", "django_handler", "django_with", "flask_with", "over_asgi"]

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DEFAULT_CHARSET="utf-8",
        LOGGING_CONFIG=None,
        MIDDLEWARE=[
            "django.middleware.common.CommonMiddleware",
            "shelflife.integrations.django.RefusalsAnswered",
        ],
        ROOT_URLCONF="",
        SECRET_KEY="of a test",
    )
    django.setup()


def over_asgi(app):
    """A WSGI app in a thread of an ASGI server, so that tests of ASGI apps can take it too. Each response is whole."""

    def answered(environ):
        started = []
        body = app(environ, lambda status, headers, exc_info=None: started.append((status, headers)))
        try:
            return b"".join(body), *started[-1]
        finally:
            getattr(body, "close", lambda: None)()

    async def served(scope, receive, send):
        if scope["type"] != "http":
            raise NotImplementedError
        sent, more = b"", True
        while more:
            message = await receive()
            sent, more = sent + message.get("body", b""), message.get("more_body", False)
        root = scope.get("root_path", "")
        environ = {
            "REQUEST_METHOD": scope["method"],
            "SCRIPT_NAME": root,
            "PATH_INFO": scope["path"].removeprefix(root).encode().decode("latin-1"),
            "QUERY_STRING": scope["query_string"].decode(),
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "80",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(sent),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in scope["headers"]:
            key = name.decode().upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value.decode()
        body, status, headers = await asyncio.to_thread(answered, environ)
        raw = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": int(status[:3]), "headers": raw})
        await send({"type": "http.response.body", "body": body})

    return served


def flask_with(provider, path):
    app = Flask(__name__)

    @app.post(path.replace("{id}", "<id>"))
    def operation(**parameters):
        provider.check(json.loads(request.get_data()))
        return {"done": True}

    install(app, provider)
    return app


def django_handler(kind, *patterns):
    """Django's own app with these URLs; the settings are those of the whole process."""
    urls = ModuleType("urls")
    urls.urlpatterns = list(patterns)

    class Handler(kind):
        def resolve_request(self, request):
            request.urlconf = urls
            return super().resolve_request(request)

    return Handler()


def _django(kind, middleware, provider, path):
    def operation(request, **parameters):
        provider.check(json.loads(request.body))
        return JsonResponse({"done": True})

    where = url(path.removeprefix("/").replace("{id}", "<str:id>"), operation)
    return middleware(django_handler(kind, *contract_urls(provider), where), provider)


def django_with(provider, path):
    return _django(WSGIHandler, ContractMiddleware, provider, path)


def django_asgi_with(provider, path):
    return _django(ASGIHandler, AsgiContractMiddleware, provider, path)
