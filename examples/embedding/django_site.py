"""Django: a blocking view and an asynchronous view share one client.

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

# One client for the process; the first call opens it. In a project, put it in a module of an app.
client = syncmcp.Client(SERVER, lazy=True, timeout=30.0)


def add(request: HttpRequest) -> HttpResponse:
    """Call a tool. Blocks only the thread of this request."""
    numbers = {name: int(request.GET[name]) for name in ("a", "b")}
    try:
        result = client.call_tool("add", numbers).raise_for_error()
    except syncmcp.McpError as error:
        return JsonResponse({"error": str(error)}, status=502)
    return JsonResponse({"sum": result.text})


async def parallel(request: HttpRequest) -> HttpResponse:
    """Await five calls at once. Under ASGI the loop serves other requests during the calls."""
    calls = [client.call_tool.future("sleep", {"seconds": 0.1}) for _ in range(5)]
    results = await asyncio.gather(*map(asyncio.wrap_future, calls))
    return JsonResponse({"results": [result.raise_for_error().text for result in results]})


urlpatterns = [path("add", add), path("parallel", parallel)]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
