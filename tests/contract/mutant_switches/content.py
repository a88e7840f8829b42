"""Mutants of resources, their templates, prompts, and the completion of arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from syncmcp.errors import UsageError
from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always, result

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

ARGUMENTS = "syncmcp._client.operations"
TEMPLATES = "syncmcp.templates"


def _only_schemes_of_the_web(uri: str) -> str:
    if not uri.startswith(("http:", "https:", "file:")):
        raise UsageError("no such scheme")
    return uri


def _send_any_arguments(original: Function) -> Function:
    def prompt_params(prompt: Any, arguments: Any) -> dict[str, Any]:
        name = getattr(prompt, "name", prompt)
        return {"name": name} if arguments is None else {"name": name, "arguments": arguments}

    return prompt_params


def _complete_anything(original: Function) -> Function:
    def completion_params(ref: Any, name: Any, value: Any, context: Any) -> dict[str, Any]:
        params = {"ref": {"type": "ref/prompt"}, "argument": {"name": name, "value": value}}
        return params if context is None else {**params, "context": {"arguments": context}}

    return completion_params


def _without_context(params: dict[str, Any]) -> dict[str, Any]:
    return {name: params[name] for name in params if name != "context"}


def _without_a_pause(original: Function) -> Function:
    def suggest(self: Any, *typed: Any) -> Any:
        self._pause = 0.0
        return original(self, *typed)

    return suggest


MUTANTS = (
    Mutant(
        "values-unescaped",
        "a value is not encoded when a template is expanded",
        f"{TEMPLATES}:_expand",
        result(unquote),
        ("M-11",),
    ),
    Mutant(
        "values-that-lead-elsewhere",
        "where reserved characters pass, every value does",
        f"{TEMPLATES}:_check_reserved",
        always(None),
        ("M-11",),
    ),
    Mutant(
        "any-reading",
        "a URI is read by a template that it does not tell the values of",
        f"{TEMPLATES}:UriTemplate.ambiguity",
        lambda _: property(lambda template: None),
        ("M-11",),
    ),
    Mutant(
        "schemes-of-the-web",
        "only resources of well-known schemes are read",
        f"{ARGUMENTS}:uri_of",
        result(_only_schemes_of_the_web),
        ("RES-02",),
    ),
    Mutant(
        "prompts-unchecked",
        "a prompt is asked for with any arguments",
        f"{ARGUMENTS}:prompt_params",
        _send_any_arguments,
        ("PMT-01",),
    ),
    Mutant(
        "completion-unchecked",
        "completions are asked for whatever the arguments are",
        f"{ARGUMENTS}:completion_params",
        _complete_anything,
        ("CMP-01",),
    ),
    Mutant(
        "completion-out-of-context",
        "arguments are completed without those that are settled",
        f"{ARGUMENTS}:completion_params",
        result(_without_context),
        ("CMP-02", "M-13"),
    ),
    Mutant(
        "completion-at-each-key",
        "the server is asked for completions without a pause",
        "syncmcp.completion:Completer.suggest",
        _without_a_pause,
        ("CMP-02",),
    ),
)
