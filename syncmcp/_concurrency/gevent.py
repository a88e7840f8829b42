"""gevent: whether a program has patched the standard library, and whether in a way that works.

Nothing here imports it: a program that uses it has it loaded already.
"""

from __future__ import annotations

import sys

from syncmcp.errors import UsageError

# What the library waits with.
_WAITING = ("threading", "queue", "select", "socket", "ssl", "subprocess")


def patched(module: str) -> bool:
    """Whether gevent has put functions of its own into this module of the standard library."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched(module))


def _lacking() -> list[str]:
    return [module for module in _WAITING if not patched(module)]


_lacking_at_import = _lacking()


def check() -> None:
    """Look whether whoever waits here lets other greenlets run, or is a thread of its own.

    Raises:
        UsageError: Neither: a part is patched, or what was in use here before it was patched.
    """
    lacking = _lacking()
    if len(lacking) == len(_WAITING):
        return
    if lacking:
        here = ", ".join(module for module in _WAITING if module not in lacking)
        raise UsageError(
            f"gevent has patched {here}, but not {', '.join(lacking)}: where only some of them let "
            "other greenlets run, calls hang. Use gevent.monkey.patch_all() without exceptions, or "
            "patch none of them"
        )
    if _lacking_at_import:
        raise UsageError(
            "gevent has patched the standard library after syncmcp was imported: call "
            "gevent.monkey.patch_all() first thing in the program, before `import syncmcp`"
        )
