"""Django: a view that blocks and a view that awaits, on one client.

python django_site.py runserver --noreload 8000
curl 'http://127.0.0.1:8000/add?a=1&b=2'
"""

from __future__ import annotations

import asyncio
import secrets
import sys

from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

import syncmcp

SERVER = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=secrets.token_hex(),
)

# One for the process; the first view that calls opens it. With a project: in a module of an app.
client = syncmcp.Client(SERVER, lazy=True, timeout=30.0)


def add(request: HttpRequest) -> HttpResponse:
    """Block the thread of this request, and no other."""
    numbers = {name: int(request.GET[name]) for name in ("a", "b")}
    try:
        result = client.call_tool("add", numbers).raise_for_error()
    except syncmcp.McpError as error:
        return JsonResponse({"error": str(error)}, status=502)
    return JsonResponse({"sum": result.text})


async def naps(request: HttpRequest) -> HttpResponse:
    """Await five calls at once; under ASGI the loop serves others meanwhile."""
    calls = [client.call_tool.future("sleep", {"seconds": 0.1}) for _ in range(5)]
    results = await asyncio.gather(*map(asyncio.wrap_future, calls))
    return JsonResponse({"naps": [result.raise_for_error().text for result in results]})


urlpatterns = [path("add", add), path("naps", naps)]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
