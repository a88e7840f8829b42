"""Where the command keeps what it remembers: sign-ins, approvals, roots, the shell's history."""

from __future__ import annotations

import os
from pathlib import Path

from syncmcp.servers_file.approved import default_path

__all__ = ["home"]


def home() -> Path:
    """The directory; it need not exist yet. The variable ``SYNCMCP_HOME`` names another one."""
    given = os.environ.get("SYNCMCP_HOME")
    return Path(given).expanduser() if given else default_path().parent
