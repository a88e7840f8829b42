"""URI templates: expansion of values to a URI (RFC 6570), and matching of URIs of simple templates.

Servers describe many resources by one template (server/resources#resource-templates). All four
levels of the RFC are supported. A value is never parsed as a template. In most kinds of expressions
values are percent-encoded. The template alone determines scheme, user, host, port and the
beginnings of query and fragment. No value makes a segment of the path ``.`` or ``..``.

The RFC defines no matching. `UriTemplate.match` reads a URI by one regular expression. It needs a
template that expands to each of its URIs from one set of values only.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, unquote_to_bytes

from typing_extensions import Self

from syncmcp._base.uri_pieces import PiecedUri
from syncmcp.errors import UsageError

__all__ = ["BadTemplate", "Scalar", "UriTemplate", "Value"]

MAX_TEMPLATE: Final = 4_096
"""The maximum length of a template, in characters."""

MAX_URI: Final = 65_536
"""The maximum length of a URI that `UriTemplate.match` reads, in characters."""

Scalar: TypeAlias = str | int | float
"""A single value. Numbers are formatted with `str`, `True` as ``true`` and `False` as ``false``."""

Value: TypeAlias = Scalar | Sequence[Scalar | None] | Mapping[str, Scalar | None] | None
"""The value of a variable. `None`, also within a list or mapping, means that it is undefined."""

_Prepared: TypeAlias = str | list[str] | list[tuple[str, str]]

_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_UNRESERVED: Final = string.ascii_letters + string.digits + "-._~"

_EXPRESSION = re.compile(r"\{([^{}]*)\}")
_VARIABLE = re.compile(
    # The RFC does not allow hyphens, but servers use them.
    r"((?:[A-Za-z0-9_-]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_-]|%[0-9A-Fa-f]{2}))*)"
    r"(\*|:[1-9][0-9]{0,3})?"
)
_NOT_LITERAL = re.compile(r"[\x00-\x20\"<>\\^`{|}\x7f-\x9f]|%(?![0-9A-Fa-f]{2})")
_OPERATORS: Final = frozenset("+#./;?&")
_NAMED: Final = frozenset(";?&")
_RAW: Final = frozenset("+#")
_WRITTEN_FIRST: Final = {"+": "/"}  # "+" is not written; a ``{+path}`` mostly begins with "/"

# One character for the prefix modifier of `{+x}`: a percent-encoded character of several bytes, a
# percent-encoded byte, or any other character.
_RAW_CHARACTER = re.compile(
    r"%[C-Fc-f][0-9A-Fa-f](?:%[89ABab][0-9A-Fa-f])+|%[0-9A-Fa-f]{2}|.", re.DOTALL
)
_UNENCODED: Final = frozenset(_RESERVED + _UNRESERVED)
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NO_VALUE = re.compile("=(?=;|$)")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_BETWEEN_SEGMENTS = re.compile(r"[/\\?#]")

# The expanded value of `{x}`. It ends at a reserved character or at the end of the URI. Where the
# engine tries a shorter value, the lookahead fails at once.
_VALUE: Final = r"([\w.~%-]*)(?![\w.~%-])"


class BadTemplate(UsageError):
    """A text is not a valid URI template."""


class UriTemplate:
    """A parsed URI template; immutable, hashable and comparable by its text.

    >>> from syncmcp.templates import UriTemplate
    >>> UriTemplate("file:///{+path}{?line}").expand({"path": "a/b.txt", "line": 3})
    'file:///a/b.txt?line=3'

    Args:
        template: The text of the template.

    Raises:
        BadTemplate: `template` is not a string, not valid, or longer than 4,096 characters.
    """

    def __init__(self, template: str) -> None:
        if not isinstance(template, str):
            raise BadTemplate(f"a URI template must be a string, not {template!r}")
        if len(template) > MAX_TEMPLATE:
            raise BadTemplate(f"a URI template must have at most {MAX_TEMPLATE} characters")
        self._text = template
        self._parts = tuple(_parse(template))
        names = [variable.name for part in self._parts for variable in part.variables]
        self._variables = tuple(dict.fromkeys(names))

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables, without duplicates, in the order of the text."""
        return self._variables

    def expand(
        self, values: Mapping[str, Value] | None = None, *, unchecked: Collection[str] = ()
    ) -> str:
        """Return the URI for these values (RFC 6570, section 3).

        The URI has the structure of the template. `expand` refuses values that would

        * change its scheme, user, host or port, unless an expression that encodes reserved
          characters (``{x}``) stands there in the template, as in ``https://{host}/``;
        * begin a query or a fragment, other than by ``{?x}`` and ``{#x}``;
        * make a segment ``.`` or ``..`` of the path, alone or together with the text next to them.

        In ``{+x}`` and ``{#x}``, reserved characters such as ``/`` are not encoded. There `expand`
        also refuses a value that begins with a scheme, has segments ``.`` or ``..``, or has control
        characters, percent-encoded or not. Spaces, backslashes and characters beyond ASCII are
        percent-encoded everywhere.

        Args:
            values: The values by name of the variable: a string or a number, a list of these, or a
                mapping of names to these. A variable is undefined if it is missing, `None`, an
                empty list or an empty mapping.
            unchecked: The names of variables whose values are not refused for the reasons above.

        Raises:
            UsageError: There is no variable of this name, a value is of a wrong type, or a value is
                refused.
        """
        values = {} if values is None else values
        unchecked = (unchecked,) if isinstance(unchecked, str) else unchecked
        if not isinstance(values, Mapping):
            raise UsageError(f"values must be a mapping, not {values!r}")
        self._check_names((*values, *unchecked))
        uri = PiecedUri()
        for number, part in enumerate(self._parts):
            if not part.variables:
                uri.add(part.text, number)
            first = True
            for variable in part.variables:
                raw = part.operator in _RAW
                prepared = _prepare(variable, values.get(variable.name), raw=raw)
                if prepared is None:
                    continue
                if raw and variable.name not in unchecked:
                    _check_reserved(variable.name, prepared)
                text = _expand(part.operator, variable, prepared, first=first)
                uri.add(text, number, part.operator, variable.name)
                first = False
        for name, problem in uri.changes(self._structure):
            if name not in unchecked:
                raise _refused(name, problem)
        return uri.text

    def _check_names(self, names: Collection[str]) -> None:
        for name in names:
            if name not in self._variables:
                known = ", ".join(map(repr, self._variables)) or "none"
                raise UsageError(f"{self._text!r} has no variable {name!r}; it has {known}")

    @cached_property
    def _structure(self) -> PiecedUri:
        """The URI of this template with one letter as the value of each expression."""
        uri = PiecedUri()
        for number, part in enumerate(self._parts):
            if part.variables:
                text = f"{_WRITTEN_FIRST.get(part.operator, part.operator)}x"
                uri.add(text, number, part.operator, part.variables[-1].name)
            else:
                uri.add(part.text, number)
        return uri

    @property
    def ambiguity(self) -> str | None:
        """Why `match` cannot read the URIs of this template; `None` if it can."""
        return _ambiguity(self._parts)

    def match(self, uri: str, *, unchecked: Collection[str] = ()) -> dict[str, str] | None:
        """Return the values for which `expand` returns this URI; `None` if there are none.

        So a URI does not match if `expand` would refuse its values.

        A template can be matched if it consists of literals, ``{x}``, ``{+x}`` and ``{?x,y}``, and

        * a reserved character such as ``/`` stands between two expressions, or the second one
          is ``{?x,y}``: ``{x}{y}`` and ``{x}-{y}`` cannot be matched;
        * no expression follows ``{+x}``, whose value may have any character;
        * ``{?x,y}`` ends the template;
        * no variable occurs twice.

        Variables of ``{?x,y}`` that the URI does not have are omitted. In ``{+x}``, percent-encoded
        reserved characters are not decoded, as `expand` does not encode them again. A URI of more
        than 65,536 characters does not match. The time is linear in the length of the URI.

        Args:
            uri: The URI.
            unchecked: The same as for `expand`.

        Raises:
            UsageError: The template cannot be matched (`ambiguity` says why), or `unchecked` names
                an unknown variable.
        """
        if not isinstance(uri, str):
            raise UsageError(f"uri must be a string, not {uri!r}")
        problem = self.ambiguity
        if problem is not None:
            raise UsageError(f"{self._text!r} cannot be matched: {problem}")
        unchecked = (unchecked,) if isinstance(unchecked, str) else unchecked
        self._check_names(unchecked)
        pattern, groups = self._reading
        found = pattern.fullmatch(_normal(uri)) if len(uri) <= MAX_URI else None
        if found is None:
            return None
        values: dict[str, str] = {}
        for group, text in zip(groups, found.groups(), strict=True):
            if text is None:
                continue
            value = group.value_of(text)
            if value is None:
                return None
            values[group.name] = value
        try:
            self.expand(values, unchecked=unchecked)
        except UsageError:  # a value is refused
            return None
        return values

    @cached_property
    def _reading(self) -> tuple[re.Pattern[str], list[_Group]]:
        return _compile(self._parts)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"UriTemplate({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, UriTemplate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self._text,)


# -- the parts of a template ---------------------------------------------------------------------


class _Variable(NamedTuple):
    name: str
    explode: bool
    prefix: int | None


class _Part(NamedTuple):
    """A part of a template: an expression, or a literal, which has no variables."""

    text: str
    """The encoded literal, or the text between the braces of the expression."""

    operator: str = ""
    variables: tuple[_Variable, ...] = ()


def _parse(template: str) -> list[_Part]:
    parts = []
    end = 0
    for found in _EXPRESSION.finditer(template):
        parts += [_literal(template[end : found.start()]), _expression(found[1])]
        end = found.end()
    parts.append(_literal(template[end:]))
    return [part for part in parts if part.text]


def _literal(text: str) -> _Part:
    wrong = _NOT_LITERAL.search(text)
    if wrong is not None:
        raise BadTemplate(f"{wrong[0]!r} is not allowed outside an expression {{...}}: {text!r}")
    return _Part(_encode(text))


def _expression(text: str) -> _Part:
    operator = text[:1] if text[:1] in _OPERATORS else ""
    variables = []
    for written in text[len(operator) :].split(","):
        found = _VARIABLE.fullmatch(written)
        if found is None:
            raise BadTemplate(f"'{{{text}}}' is not an expression of a URI template")
        modifier = found[2] or ""
        prefix = int(modifier[1:]) if modifier.startswith(":") else None
        variables.append(_Variable(found[1], modifier == "*", prefix))
    return _Part(text, operator, tuple(variables))


def _encode(text: str) -> str:
    return quote(text, safe=_RESERVED + _UNRESERVED + "%", errors="surrogatepass")


# -- from values to a URI ------------------------------------------------------------------------


def _prepare(variable: _Variable, value: Value, *, raw: bool) -> _Prepared | None:
    """Return a value as strings for the expansion; `None` if it is undefined."""
    name = variable.name
    if value is None:
        return None
    composite = isinstance(value, (Mapping, Sequence)) and not isinstance(value, (str, bytes))
    if composite and variable.prefix is not None:
        raise UsageError(f"this template takes a prefix of {name!r}, which must be one value")

    def ready(value: object) -> str:
        text = _text(name, value)
        if not raw:
            return text[: variable.prefix]
        characters = _RAW_CHARACTER.findall(text)[: variable.prefix]
        return "".join(
            character
            if len(character) > 1 or character in _UNENCODED
            else quote(character, safe="")
            for character in characters
        )

    if not composite:
        return ready(value)
    if isinstance(value, Mapping):
        pairs = [(ready(key), ready(item)) for key, item in value.items() if item is not None]
        return pairs or None
    assert isinstance(value, Sequence)
    return [ready(item) for item in value if item is not None] or None


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, (str, int, float)):
        raise UsageError(f"the value of {name!r} must be a string or a number, not {value!r}")
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the value of {name!r} cannot be encoded in a URI") from error
    return text


def _check_reserved(name: str, prepared: _Prepared) -> None:
    """Refuse a value of `{+x}` or `{#x}` that is dangerous at any position of a URI."""
    for item in [prepared] if isinstance(prepared, str) else prepared:
        for escaped in [item] if isinstance(item, str) else item:
            text = unquote(escaped)
            if any(unicodedata.category(character) == "Cc" for character in text):
                raise _refused(name, "has control characters")
            if _SCHEME.match(text):
                raise _refused(name, "begins with a scheme")
            if not {".", ".."}.isdisjoint(_BETWEEN_SEGMENTS.split(text)):
                raise _refused(name, "contains a segment '.' or '..'")


def _refused(name: str, problem: str) -> UsageError:
    return UsageError(f"the value of {name!r} {problem} (see the argument unchecked)")


def _expand(operator: str, variable: _Variable, prepared: _Prepared, *, first: bool) -> str:
    """Expand one variable of an expression; `first` is true for its first defined variable."""
    from uritemplate import URITemplate

    separator = ""
    if not first and operator not in _NAMED | {".", "/"}:
        separator, operator = ",", operator.replace("#", "+")
    elif not first and operator == "?":
        operator = "&"
    star = "*" if variable.explode else ""
    given: Any = {variable.name: prepared}
    text = URITemplate(f"{{{operator}{variable.name}{star}}}").expand(given)
    if operator == ";":
        text = _NO_VALUE.sub("", text)  # in lists, uritemplate also writes "=" before empty values
    return separator + text


# -- from a URI to values ------------------------------------------------------------------------


class _Group(NamedTuple):
    """A group of the pattern: the expanded value of a variable, and the literal that follows it."""

    name: str
    raw: bool = False
    tail: str = ""
    """The beginning of the literal, of characters that a value can also have."""

    def value_of(self, text: str) -> str | None:
        """Decode the value at the start of a matched text; return `None` if it is invalid."""
        expanded = text.removesuffix(self.tail)
        if len(expanded) + len(self.tail) != len(text) or _BROKEN_ESCAPE.search(expanded):
            return None
        try:
            if self.raw:
                return _ESCAPES.sub(_decode_octets, expanded)
            return unquote_to_bytes(expanded).decode()
        except UnicodeDecodeError:
            return None


def _ambiguity(parts: Sequence[_Part]) -> str | None:
    """Return why the URIs of a template cannot be read; `None` if they can."""
    names = [_normal(variable.name) for part in parts for variable in part.variables]
    if len(set(names)) < len(names):
        return "it uses a variable twice"
    before: _Part | None = None  # the previous expression
    ended = False  # whether a reserved character follows its value
    for part in parts:
        if before is not None and before.operator == "?":
            return f"'{{{before.text}}}' must be at its end"
        if not part.variables:
            ended = _without_start(part.text) != ""
            continue
        modified = any(variable.explode or variable.prefix for variable in part.variables)
        several = len(part.variables) > 1 and part.operator != "?"
        if part.operator not in {"", "+", "?"} or several or modified:
            return f"only {{x}}, {{+x}} and {{?x,y}} can be matched, not '{{{part.text}}}'"
        if before is not None and (before.operator == "+" or not (ended or part.operator == "?")):
            return f"the end of {before.variables[0].name!r} is ambiguous"
        before, ended = part, False
    return None


def _compile(parts: Sequence[_Part]) -> tuple[re.Pattern[str], list[_Group]]:
    """Compile an unambiguous template; each group of the pattern is described in the list.

    No part of the pattern can match in two ways, so backtracking ends at once: each value ends
    at a reserved character, and the names in ``{?x,y}`` differ. A literal between a value and that
    character (``.json`` in ``{x}.json/{y}``) is matched with the value, and split off later.
    """
    pattern: list[str] = []
    groups: list[_Group] = []
    for part in parts:
        if part.operator == "?":
            pattern.append(r"(?=(?:\?[^?]*)?\Z)")  # the first of them has "?", the others have "&"
            for variable in part.variables:
                start = f"[?&]{re.escape(_normal(variable.name))}="
                pattern.append(f"(?:{start}{_VALUE}|(?!{start}))")
                groups.append(_Group(variable.name))
        elif part.variables:
            raw = part.operator == "+"
            pattern.append("(.*)" if raw else _VALUE)
            groups.append(_Group(part.variables[0].name, raw))
        else:
            literal = _normal(part.text)
            if groups:
                rest = "" if groups[-1].raw else _without_start(literal)
                groups[-1] = groups[-1]._replace(tail=literal.removesuffix(rest))
                literal = rest
            pattern.append(re.escape(literal))
    return re.compile("".join(pattern), re.ASCII), groups


def _without_start(literal: str) -> str:
    """Return a literal from its first reserved character on; empty if it has none."""
    return literal.lstrip(_UNRESERVED + "%")


def _normal(uri: str) -> str:
    """Return the URI with the encoding that `expand` writes, and escapes in upper case."""
    return _ESCAPES.sub(lambda found: found[0].upper(), _encode(uri))


def _decode_octets(found: re.Match[str]) -> str:
    """Decode the characters that `expand` would percent-encode again."""
    return "".join(
        f"%{ord(character):02X}" if character in _UNENCODED or character == "%" else character
        for character in unquote_to_bytes(found[0]).decode()
    )
