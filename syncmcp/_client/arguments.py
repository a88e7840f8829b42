"""The arguments of requests, checked before anything is sent.

If the program passes an object from a list, the names of the arguments are checked, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from syncmcp import types
from syncmcp._base.checks import kind_of, text
from syncmcp.errors import UsageError

Completable: TypeAlias = "types.CompletionReference | types.Prompt | types.ResourceTemplate | str"
"""A prompt or template whose arguments can be completed; a string is its name or URI template."""

# Strings that are URI templates for sure: `demo://...` and `urn:isbn:{isbn}`.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://|[^{}\s]*\{)")
_LIKE_URI = re.compile(r"[{}]|://")


def uri_of(resource: str | types.Resource) -> str:
    """The URI of a resource, unchanged; `UsageError` if it is neither a resource nor a URI."""
    if not isinstance(resource, str):
        if not isinstance(resource, types.Resource):
            raise UsageError(
                f"uri must be a string, a Resource or a ResourceLink, not {resource!r}"
            )
        resource = resource.uri
    text(resource, "uri")
    return resource


def prompt_params(
    prompt: str | types.Prompt, arguments: Mapping[str, str] | None
) -> dict[str, Any]:
    """The parameters of `prompts/get` (server/prompts#getting-a-prompt).

    `UsageError` if an argument is not a string, or, with a `Prompt`, is missing or unknown.
    """
    described = prompt if isinstance(prompt, types.Prompt) else None
    name: Any = prompt if described is None else described.name
    text(name, "name")
    if arguments is not None:
        arguments = _strings(arguments, "arguments")
    if described is not None and described.arguments is not None:
        given = arguments or {}
        _known(given, (argument.name for argument in described.arguments), f"the prompt {name!r}")
        missing = [
            argument.name
            for argument in described.arguments
            if argument.required and argument.name not in given
        ]
        if missing:
            raise UsageError(f"the prompt {name!r} needs {', '.join(map(repr, missing))}")
    return {"name": name} if arguments is None else {"name": name, "arguments": arguments}


def completion_params(
    ref: Completable, argument_name: str, value: str, context: Mapping[str, str] | None
) -> dict[str, Any]:
    """The parameters of `completion/complete` (server/utilities/completion).

    `UsageError` if one is invalid, or, with a `Prompt` or `ResourceTemplate`, unknown.
    """
    text(argument_name, "argument_name")
    if not isinstance(value, str):
        raise UsageError(f"value must be a string, not {value!r}")
    settled = None if context is None else _strings(context, "context")
    params: dict[str, Any] = {
        "ref": _reference(ref, (argument_name, *(settled or ()))).to_wire(),
        "argument": {"name": argument_name, "value": value},
    }
    if settled is not None:
        params["context"] = {"arguments": settled}
    return params


def _named(ref: str) -> types.PromptReference | types.ResourceTemplateReference:
    """A reference from a string: to a prompt by its name, or to a URI template.

    A string that begins with a scheme is a URI template if ``//`` follows the scheme, or if it has
    an expression in braces.
    """
    text(ref, "ref")
    if _URI.match(ref):
        return types.ResourceTemplateReference(uri=ref)
    if _LIKE_URI.search(ref):
        raise UsageError(
            f"{ref!r} may be the name of a prompt or a URI template: say which, with"
            " PromptReference(name=...) or ResourceTemplateReference(uri=...)"
        )
    return types.PromptReference(name=ref)


def _reference(
    ref: Completable, names: Iterable[str]
) -> types.PromptReference | types.ResourceTemplateReference:
    if isinstance(ref, str):
        return _named(ref)
    if isinstance(ref, types.Prompt):
        if ref.arguments is not None:
            known = (argument.name for argument in ref.arguments)
            _known(names, known, f"the prompt {ref.name!r}")
        return types.PromptReference(name=ref.name)
    if isinstance(ref, types.ResourceTemplate):
        _known(names, ref.template.variables, f"the template {ref.uri_template!r}")
        return types.ResourceTemplateReference(uri=ref.uri_template)
    if not isinstance(ref, types.PromptReference | types.ResourceTemplateReference):
        raise UsageError(
            "ref must be the name of a prompt, a URI template, a Prompt, a ResourceTemplate, a"
            f" PromptReference or a ResourceTemplateReference, not {ref!r}"
        )
    return ref


def _known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    possible = list(known)
    for name in names:
        if name not in possible:
            has = ", ".join(map(repr, possible)) or "none"
            raise UsageError(f"{what} has no argument {name!r}; it has {has}")


def _strings(arguments: object, name: str) -> dict[str, str]:
    if not isinstance(arguments, Mapping):
        raise UsageError(f"{name} must be a mapping or None, not {kind_of(arguments)}")
    for key, value in arguments.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise UsageError(
                f"{name} must map strings to strings, not {key!r:.80} to {kind_of(value)}"
            )
    return dict(arguments)
