"""What a client offers to answer: the source of every capability that it declares."""

from __future__ import annotations

from typing import Any, NamedTuple

SAMPLING = "sampling/createMessage"
ELICITATION = "elicitation/create"
ROOTS = "roots/list"


class Offer(NamedTuple):
    """Which questions of a server have somebody to answer them."""

    sampling: bool = False
    sampling_tools: bool = False
    sampling_context: bool = False
    form: bool = False
    url: bool = False
    roots: bool = False


NOTHING = Offer()
"""The offer of a client without handlers."""


def client_capabilities(offer: Offer, *, modes: bool) -> dict[str, Any]:
    """The capabilities that stand for `offer`, which the revision has.

    Args:
        offer: What is offered.
        modes: Whether elicitation has modes; without them it means forms.
    """
    capabilities: dict[str, Any] = {}
    if offer.roots:
        capabilities["roots"] = {}
    if offer.sampling:
        sampling = {"tools": offer.sampling_tools, "context": offer.sampling_context}
        capabilities["sampling"] = {name: {} for name, has in sampling.items() if has}
    if offer.form or offer.url:
        elicitation = {"form": offer.form, "url": offer.url}
        capabilities["elicitation"] = {
            name: {} for name, has in elicitation.items() if has and modes
        }
    return capabilities
