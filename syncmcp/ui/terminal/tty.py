"""What a question changes of a terminal, and how it is put back, on each system."""

from __future__ import annotations

import sys
from collections.abc import Callable

if sys.platform == "win32":
    import msvcrt

    def modes_of(number: int) -> Callable[[], None]:
        """Return what puts the terminal back as it is now; the console does so by itself."""
        return lambda: None

    def forget_typed(number: int) -> None:
        """Throw away what was typed and nobody has read."""
        while msvcrt.kbhit():
            msvcrt.getwch()

else:
    import termios

    def modes_of(number: int) -> Callable[[], None]:
        """Return what puts the terminal back as it is now."""
        before = termios.tcgetattr(number)
        return lambda: termios.tcsetattr(number, termios.TCSADRAIN, before)

    def forget_typed(number: int) -> None:
        """Throw away what was typed and nobody has read."""
        termios.tcflush(number, termios.TCIFLUSH)
