"""Sign in with OAuth, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp
from syncmcp.auth import OAuth

url = sys.argv[1]

login = OAuth(client_name="Example")
target = syncmcp.Http(url, auth=login)
with syncmcp.connect(target) as client:
    tools = client.list_tools()
    print(tools.tools[0].name)
