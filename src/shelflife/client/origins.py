"""How a server is spelled, so that what is learned of it by one route is found by another."""

from urllib.parse import urlsplit

__all__ = ["origin_of"]

_DEFAULT_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """`scheme://host:port` of a URL, in lower case and always with the port: `https://api.example:443`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    return f"{parts.scheme}://{host}:{parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)}"
