"""Keys at a prompt on a terminal: they cancel the question, go back, or do nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import Application
from prompt_toolkit.key_binding import KeyBindings, merge_key_bindings
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

# The key that goes back; and how long, in seconds, a terminal may take to send the rest of another
# key, which begins in the same way.
ESCAPE = (Keys.Escape,)
ESCAPE_SECONDS = 0.2


class PersonCancelled(Exception):
    """The person pressed Ctrl-C or Ctrl-D, or closed the terminal."""


class WentBack(Exception):
    """The person pressed Esc, to go back to the prompt before."""


def in_turn(steps: Sequence[Callable[[], object]]) -> None:
    """Run steps that ask a person; a step from which the person goes back leads to the one before.

    Raises:
        WentBack: The person went back from the first step.
    """
    at = 0
    while at < len(steps):
        try:
            steps[at]()
            at += 1
        except WentBack:
            if at == 0:
                raise
            at -= 1


def add_keys(application: Application[Any], keys: KeyBindings) -> None:
    """Add keys to those of a prompt."""
    own = application.key_bindings
    application.key_bindings = merge_key_bindings([own, keys] if own else [keys])


def disable_editor(application: Application[Any]) -> None:
    """Let no key return the text of the editor in a prompt with options: the text is no option.

    Otherwise Ctrl-O would return it.
    """
    application.current_buffer.accept_handler = None


def ignore(_: KeyPressEvent) -> None:
    """Do nothing, on a key that must not answer."""


def cancel(event: KeyPressEvent) -> None:
    """Cancel the question, on a key."""
    event.app.exit(exception=PersonCancelled())


def go_back(event: KeyPressEvent) -> None:
    """Leave the prompt for the one before, on a key."""
    event.app.exit(exception=WentBack())
