"""What runs in workers: each way in which Python programs make TLS connections.

``ask_all(ports, strict)`` asks every server by every client and returns, by client and kind of
server, "ok" or what OpenSSL said against the certificate. Not imported by tests: its text is run.
"""

# ruff: noqa: D103 - the names say it

import ssl
from typing import Any


def made_strict(context: Any) -> Any:
    """Set the bit, as clients do where it is no default: before Python 3.13, and elsewhere."""
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


def default_context() -> Any:
    context = ssl.create_default_context()
    return made_strict(context)


def by_urllib(port: int) -> int:
    import urllib.request

    with urllib.request.urlopen(f"https://localhost:{port}/", timeout=5) as reply:
        return int(reply.status)


def by_urllib_with_context(port: int) -> int:
    import urllib.request

    url = f"https://localhost:{port}/"
    with urllib.request.urlopen(url, context=default_context(), timeout=5) as reply:
        return int(reply.status)


def by_http_client(port: int) -> int:
    import http.client

    connection = http.client.HTTPSConnection("localhost", port, timeout=5)
    made_strict(vars(connection)["_context"])
    try:
        connection.request("GET", "/")
        return int(connection.getresponse().status)
    finally:
        connection.close()


def by_bare_context(port: int) -> int:
    import socket

    context = made_strict(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.load_default_certs()
    with (
        socket.create_connection(("localhost", port), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost"),
    ):
        return 200


def by_asyncio(port: int) -> int:
    import asyncio

    async def connect() -> int:
        _, writer = await asyncio.open_connection("localhost", port, ssl=default_context())
        writer.close()
        return 200

    return asyncio.run(connect())


def by_urllib3(port: int) -> int:
    import urllib3

    with urllib3.PoolManager(retries=False, timeout=5) as pool:
        return pool.request("GET", f"https://localhost:{port}/").status


def by_urllib3_with_flags(port: int) -> int:
    import urllib3.util.ssl_

    context = urllib3.util.ssl_.create_urllib3_context(verify_flags=ssl.VERIFY_X509_STRICT)
    context.load_default_certs()
    with urllib3.PoolManager(ssl_context=context, retries=False, timeout=5) as pool:
        return pool.request("GET", f"https://localhost:{port}/").status


def by_requests(port: int) -> int:
    import requests

    return requests.get(f"https://localhost:{port}/", timeout=5).status_code


def by_requests_with_context(port: int) -> int:
    import requests
    from requests.adapters import HTTPAdapter

    class Strict(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> Any:
            return super().init_poolmanager(*args, ssl_context=default_context(), **kwargs)

    with requests.Session() as session:
        session.mount("https://", Strict())
        return session.get(f"https://localhost:{port}/", timeout=5).status_code


def by_httpx(port: int) -> int:
    import httpx

    return httpx.get(f"https://localhost:{port}/", timeout=5).status_code


def by_httpx_with_context(port: int) -> int:
    import httpx

    url = f"https://localhost:{port}/"
    return httpx.get(url, verify=default_context(), timeout=5).status_code


def by_aiohttp(port: int, context: Any = True) -> int:  # noqa: FBT002 - as aiohttp has it
    import asyncio

    import aiohttp

    async def fetch() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"https://localhost:{port}/", ssl=context) as reply,
        ):
            return reply.status

    return asyncio.run(fetch())


def by_aiohttp_with_context(port: int) -> int:
    return by_aiohttp(port, default_context())


def by_truststore(port: int) -> int:
    import truststore
    import urllib3

    context = made_strict(truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    with urllib3.PoolManager(ssl_context=context, retries=False, timeout=5) as pool:
        return pool.request("GET", f"https://localhost:{port}/").status


def by_injected_truststore(port: int) -> int:
    import truststore

    truststore.inject_into_ssl()
    try:
        return by_urllib_with_context(port)
    finally:
        truststore.extract_from_ssl()


def reason(error: BaseException) -> str:
    """Find what OpenSSL said, however deep a client has wrapped it."""
    waiting: list[Any] = [error]
    seen: list[BaseException] = []
    while waiting:
        found = waiting.pop()
        if not isinstance(found, BaseException) or any(found is one for one in seen):
            continue
        seen.append(found)
        if hasattr(found, "verify_message"):
            return str(found.verify_message)
        waiting += [found.__cause__, found.__context__, getattr(found, "reason", None)]
        waiting += [getattr(found, "certificate_error", None), *found.args]
    return repr(error)


def ask_all(ports: dict[str, int]) -> dict[str, dict[str, str]]:
    clients = {name: value for name, value in globals().items() if name.startswith("by_")}
    table: dict[str, dict[str, str]] = {}
    for name, client in clients.items():
        for kind, port in ports.items():
            try:
                answer = "ok" if client(port) == 200 else "another status"
            except Exception as error:
                answer = reason(error)
            table.setdefault(name, {})[kind] = answer
    return table
