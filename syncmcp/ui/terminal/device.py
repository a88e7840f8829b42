"""A terminal as a device: its modes and the output to it, on each operating system."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable

    from prompt_toolkit.output import Output

if sys.platform == "win32":
    from prompt_toolkit.output import create_output

    def save_modes(number: int) -> Callable[[], None]:
        """Return a function that does nothing: the console restores its modes by itself."""
        return lambda: None

    def make_output(stdout: TextIO) -> Output:
        """Return the output to a console."""
        return create_output(stdout)

else:
    import os
    import termios

    from prompt_toolkit.output.vt100 import Vt100_Output

    def save_modes(number: int) -> Callable[[], None]:
        """Return a function that restores the present modes of the terminal."""
        before = termios.tcgetattr(number)
        return lambda: termios.tcsetattr(number, termios.TCSADRAIN, before)

    class _Output(Vt100_Output):
        """Output to a terminal that need not tell the position of the cursor.

        Otherwise prompt_toolkit would ask for it. Where a terminal does not answer, it would print
        a warning at each prompt, and questionary would show no problem with ticked options.
        """

        def get_rows_below_cursor_position(self) -> int:
            return 1  # the row of the cursor; a prompt takes the rows that it needs

    def make_output(stdout: TextIO) -> Output:
        """Return the output to a terminal."""
        return _Output.from_pty(stdout, term=os.environ.get("TERM"))
