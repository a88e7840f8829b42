"""What each word of a schema demands of a value.

For each word there is a function that is given the word's value, the schema around it and its
`Place`, and makes a `Check`. Words are known to be well-formed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from syncmcp._protocol.schema import array, branch, member, scalar
from syncmcp._protocol.schema.place import Maker, Place
from syncmcp._protocol.schema.run import Check

MAKERS: Final[Mapping[str, Maker]] = {
    **scalar.SCALAR_MAKERS,
    **array.ARRAY_MAKERS,
    **member.MEMBER_MAKERS,
    **branch.BRANCH_MAKERS,
}
"""What makes the check of a word, in the order in which they are made: the cheap ones first."""

LAST_MAKERS: Final[Mapping[str, Callable[[Any, Mapping[str, Any], Place], Check]]] = {
    "unevaluatedItems": array.unevaluated_items,
    "unevaluatedProperties": member.unevaluated_properties,
}
"""The words that need to know what all others of their schema have looked at."""
