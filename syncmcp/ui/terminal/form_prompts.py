"""A form, filled in field by field on a terminal."""

from __future__ import annotations

import json
from typing import Any

from syncmcp.handlers.forms import ABSENT, Field, Form, Option
from syncmcp.ui.terminal.screen import Quit, Screen, named
from syncmcp.ui.text import shorten, visible

__all__ = ["fill", "reviewed", "show_answers"]


def fill(screen: Screen, form: Form) -> dict[str, Any]:
    """Ask for every field; return the answers, without those of optional fields left empty."""
    answers: dict[str, Any] = {}
    for field in form.fields:
        _ask(screen, form, field, answers)
    return answers


def reviewed(screen: Screen, form: Form, answers: dict[str, Any]) -> dict[str, Any] | None:
    """Show the answers until the person sends them.

    Returns:
        The answers as changed, or `None` if the person cancelled.
    """
    while True:
        show_answers(screen, form, answers)
        problems = form.problems(form.with_defaults(answers))
        for name, problem in problems.items():
            screen.say(f"Not right yet: {named(name)}")
            screen.quote(problem)
        options = [] if problems else [("send", "Send these answers")]
        if form.fields:
            options.append(("edit", "Change an answer"))
        options.append(("cancel", "Cancel"))
        action = screen.choose("All right?", options)
        if action == "send":
            return answers
        if action == "cancel":
            return None
        field = screen.choose("Which one?", [(field, _label(field)) for field in form.fields])
        if field is not None:
            _ask(screen, form, field, answers)


def show_answers(screen: Screen, form: Form, answers: dict[str, Any]) -> None:
    """Print what will be sent: the answers, and the defaults of fields that were left out."""
    screen.say()
    screen.say("What will be sent:")
    sent = form.with_defaults(answers)
    for field in form.fields:
        if field.name not in sent:
            screen.quote_line(f"{_label(field)}: (left out)")
            continue
        default = "" if field.name in answers else " (the default)"
        lines = screen.quoted(f"{_label(field)}: {_words(field, sent[field.name])}{default}")
        for line in lines:
            screen.quote_line(line)


def _ask(screen: Screen, form: Form, field: Field, answers: dict[str, Any]) -> None:
    current = answers.get(field.name, field.default)
    number = form.fields.index(field) + 1
    screen.say()
    screen.say(
        f"Field {number} of {len(form.fields)}, {'required *' if field.required else 'optional'}",
        "bold",
    )
    screen.quote(field.label, limit=200)
    if field.description:
        screen.quote(field.description)
    if field.default is not ABSENT:
        screen.say("Default:")
        screen.quote(_words(field, field.default), limit=200)
    if field.secret:
        screen.warn("this looks like a secret. A server must not ask for secrets in a form.")
    message = f"{_label(field)}{' *' if field.required else ''}:"
    if field.kind == "boolean":
        value = _yes_or_no(screen, field, message, current)
    elif field.kind == "choice":
        value = _one(screen, field, message, current)
    elif field.kind == "choices":
        value = _some(screen, field, message, current)
    else:
        value = _typed(screen, field, message, current)
    if value is ABSENT:
        answers.pop(field.name, None)
    else:
        answers[field.name] = value


def _typed(screen: Screen, field: Field, message: str, current: Any) -> Any:
    def check(text: str) -> str | None:
        if not text:
            return "An answer is needed here." if field.required else None
        try:
            value = field.parse(text)
        except ValueError as problem:
            return visible(str(problem))
        return _problem(field, value)

    text = screen.write(message, "" if current is ABSENT else _plain(current), check=check)
    return field.parse(text) if text else ABSENT


def _yes_or_no(screen: Screen, field: Field, message: str, current: Any) -> Any:
    options: list[tuple[Any, str]] = [(True, "Yes"), (False, "No")]
    return _chosen(screen, field, message, options, current)


def _one(screen: Screen, field: Field, message: str, current: Any) -> Any:
    options = [(option.value, _option(option)) for option in field.options]
    return _chosen(screen, field, message, options, current)


def _chosen(
    screen: Screen, field: Field, message: str, options: list[tuple[Any, str]], current: Any
) -> Any:
    if not field.required:
        options = [*options, (ABSENT, "(leave empty)")]
    values = [value for value, _ in options]
    at = values.index(current) if current in values else 0
    chosen = screen.choose(message, list(enumerate(words for _, words in options)), default=at)
    if chosen is None:
        raise Quit
    return values[chosen]


def _some(screen: Screen, field: Field, message: str, current: Any) -> Any:
    values = [option.value for option in field.options]

    def check(positions: list[int]) -> str | None:
        if not positions and not field.required:
            return None
        return _problem(field, [values[position] for position in positions])

    ticked = [] if current is ABSENT else [values.index(value) for value in current]
    positions = screen.tick(message, [_option(option) for option in field.options], ticked, check)
    if not positions and not field.required:
        return ABSENT
    return [values[position] for position in positions]


def _problem(field: Field, value: Any) -> str | None:
    problem = field.problem(value)
    return None if problem is None else visible(problem)


def _label(field: Field) -> str:
    return f"“{visible(shorten(field.label, 30))}”"


def _option(option: Option) -> str:
    title = named(str(option.title))
    value = named(str(option.value))
    return title if title == value else f"{title} ({value})"


def _words(field: Field, value: Any) -> str:
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, list):
        return ", ".join(_words(field, item) for item in value) or "(none)"
    for option in field.options:
        if option.value == value:
            return _option(option)
    return _plain(value)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
