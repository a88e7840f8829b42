"""Grants: the answer with which a person allows all later questions of the same kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from syncmcp.approval import Kind, Question


class Grant(NamedTuple):
    """The words for a grant, which lasts as long as the program runs."""

    label: str
    """The words of the button or the option."""
    effect: str
    """What the grant allows from then on."""


_GRANTS: Final[Mapping[Kind, Grant]] = {
    "sampling": Grant(
        "Approve this and all later requests",
        "this server may then use your model for anything",
    ),
    "form": Grant(
        "Allow for all forms of this server",
        "this program then answers all forms of this server for you",
    ),
    "roots": Grant(
        "Allow each time",
        "this server then learns your directories whenever it asks",
    ),
    "tool": Grant(
        "Allow all calls of this tool",
        "this tool may then be called with any arguments",
    ),
}
_MODEL_ANSWERS: Final = Grant(
    "Send this and all later answers",
    "this server then gets everything your model writes for it, unreviewed",
)


def grant_for(question: Question) -> Grant | None:
    """Return the grant that a person may give in place of one answer; `None` for links."""
    if question.kind == "sampling" and question.answer is not None:
        return _MODEL_ANSWERS
    return _GRANTS.get(question.kind)
