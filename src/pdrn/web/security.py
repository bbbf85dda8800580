"""Who may ask: pages of this server, and programs; no page of another origin, by whatever name it comes.

A page elsewhere on the web can let a name of its own point to this machine. Its requests carry that name as
Host, and so only names that this server is known by are answered, and addresses, which no name can fake.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = ("localhost",)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses other hosts and origins, and adds security headers to every answer.

    Parameters
    ----------
    app : ASGI application
    names : collection of str
        Host names that this server is known by, beyond localhost.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, {name.lower() for name in (*LOCAL, *names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        reason = self._why_not(Headers(scope=scope), scope["path"])
        if scope["type"] == "websocket":
            if reason:
                await send({"type": "websocket.close", "code": 1008})
            else:
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        app = JSONResponse({"detail": reason}, 403) if reason else self._app
        await app(scope, receive, send_guarded)

    def _why_not(self, headers: Headers, path: str) -> str | None:
        host = headers.get("host", "")
        if not self._is_known(host):
            return "This server is not known by that name; start it with --allow-host, or use its address."
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "Pages of other origins may not use this server."
        if path.startswith("/api/") and headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            return "Pages of other origins may not use this server."
        return None

    def _is_known(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True
