"""Forms on a terminal: filled in field by field, reviewed and changed before they are sent."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import Any

from syncmcp.handlers.forms import ABSENT, Field, Form, Option
from syncmcp.ui import shorten, visible
from syncmcp.ui.terminal.keys import PersonCancelled, WentBack, in_turn
from syncmcp.ui.terminal.screen import Screen, short_name


def fill_form(screen: Screen, form: Form, answers: dict[str, Any]) -> dict[str, Any] | None:
    """Ask for every field, and let the person review the answers.

    Args:
        screen: The screen.
        form: The form.
        answers: The answers so far. The answers of the person are added.

    Returns:
        The answers to send, without optional fields that were left empty; `None` if the person
        cancelled at the end.

    Raises:
        WentBack: The person went back from the first field.
    """
    sent: dict[str, Any] | None = None

    def review() -> None:
        nonlocal sent
        sent = review_answers(screen, form, answers, back=True)

    fields = [partial(_ask_field, screen, form, field, answers) for field in form.fields]
    in_turn([*fields, review])
    return sent


def review_answers(
    screen: Screen, form: Form, answers: dict[str, Any], *, back: bool = False
) -> dict[str, Any] | None:
    """Let the person review and change the answers before they are sent.

    Returns:
        The answers as changed, or `None` if the person cancelled.

    Raises:
        WentBack: The person went back to the fields, which `back` permits.
    """
    while True:
        problems = form.problems(form.with_defaults(answers))
        show_answers(screen, form, answers, valid=not problems)
        labels = {field.name: _label(field) for field in form.fields}
        wrong = [labels.get(name, f"“{short_name(name)}”") for name in problems]
        for label, problem in zip(wrong, problems.values(), strict=True):
            screen.say(f"Not valid yet: {label}")
            screen.quote(problem)
        options = [("cancel", "Cancel: send nothing")]
        if form.fields:
            options.insert(0, ("edit", f"Change an answer{_what_to_change(wrong)}"))
        if not problems:
            words = "Send these answers" if form.fields else "Send the empty form"
            options.insert(0, ("send", words))
        # Enter alone chooses the default, and a person may press it by reflex: it sends nothing.
        action = screen.choose(
            "Not ready to send:" if problems else "Ready to send?",
            options,
            default=0 if problems else 1,
            back=back,
        )
        if action == "send":
            return answers
        if action == "cancel":
            return None
        with suppress(WentBack):  # the person sees the answers again
            _change_answer(screen, form, answers, problems)


def _what_to_change(wrong: list[str]) -> str:
    if not wrong:
        return ""
    return f": {f'{len(wrong)} are' if wrong[1:] else f'{wrong[0]} is'} not valid yet"


def show_answers(screen: Screen, form: Form, answers: dict[str, Any], *, valid: bool) -> None:
    """Print the content to be sent: the answers, and the defaults of omitted fields."""
    screen.say()
    if not form.fields:
        screen.say("The form has no fields: there is nothing to fill in.")
        return
    screen.say("What will be sent:" if valid else "The answers so far:")
    sent = form.with_defaults(answers)
    for field in form.fields:
        if field.name not in sent:
            screen.read(f"“{visible(field.label)}”: (left out)", hanging=True)
            continue
        default = "" if field.name in answers else " (the default)"
        # Indented, so no line of an answer looks like the next answer.
        value = _value_text(field, sent[field.name]).replace("\n", "\n  ")
        screen.read(f"“{visible(field.label)}”: {value}{default}", hanging=True)


def _change_answer(
    screen: Screen, form: Form, answers: dict[str, Any], problems: dict[str, str]
) -> None:
    labels = [
        (field, f"{_label(field)}{': not valid yet' if field.name in problems else ''}")
        for field in form.fields
    ]
    first = next((at for at, each in enumerate(form.fields) if each.name in problems), 0)
    field = screen.choose("Which answer?", labels, default=first, back=True)
    if field is not None:
        _ask_field(screen, form, field, answers)


def _ask_field(screen: Screen, form: Form, field: Field, answers: dict[str, Any]) -> None:
    current = answers.get(field.name, field.default)
    number = form.fields.index(field) + 1
    screen.say()
    screen.say(
        f"Field {number} of {len(form.fields)}, {'required *' if field.required else 'optional'}",
        "bold",
    )
    screen.read(field.label)
    if field.description:
        screen.read(field.description)
    if field.hint:
        screen.say(field.hint)
    if field.pattern is not None:
        screen.say("It must match the pattern:")
        screen.read(field.pattern)
    options = [_whole_option(option) for option in field.options]
    if options != [_option_text(option) for option in field.options]:
        screen.say("Its options:")
        for option in options:
            screen.read(option)
    if field.default is not ABSENT:
        screen.say("Default:")
        screen.read(_value_text(field, field.default))
    if field.secret:
        screen.warn("this looks like a secret. A server must not ask for secrets in a form.")
    message = f"{_label(field)}{' *' if field.required else ''}:"
    if field.kind == "boolean":
        value = _ask_boolean(screen, field, message, current)
    elif field.kind == "choice":
        value = _ask_choice(screen, field, message, current)
    elif field.kind == "choices":
        value = _ask_choices(screen, field, message, current)
    else:
        value = _ask_text(screen, field, message, current)
    if value is ABSENT:
        answers.pop(field.name, None)
    else:
        answers[field.name] = value


def _ask_text(screen: Screen, field: Field, message: str, current: Any) -> Any:
    def check(text: str) -> str | None:
        if not text:
            return "This field needs an answer." if field.required else None
        try:
            value = field.parse(text)
        except ValueError as problem:
            return visible(str(problem))
        return _field_problem(field, value)

    text = screen.edit_text(message, "" if current is ABSENT else _plain_text(current), check=check)
    return field.parse(text) if text else ABSENT


def _ask_boolean(screen: Screen, field: Field, message: str, current: Any) -> Any:
    options: list[tuple[Any, str]] = [(True, "Yes"), (False, "No")]
    return _choose_value(screen, field, message, options, current)


def _ask_choice(screen: Screen, field: Field, message: str, current: Any) -> Any:
    options = [(option.value, _option_text(option)) for option in field.options]
    return _choose_value(screen, field, message, options, current)


def _choose_value(
    screen: Screen, field: Field, message: str, options: list[tuple[Any, str]], current: Any
) -> Any:
    if not field.required:
        options = [*options, (ABSENT, "(leave empty)")]
    values = [value for value, _ in options]
    at = values.index(current) if current in values else 0
    numbered = list(enumerate(words for _, words in options))
    chosen = screen.choose(message, numbered, default=at, back=True)
    if chosen is None:
        raise PersonCancelled
    return values[chosen]


def _ask_choices(screen: Screen, field: Field, message: str, current: Any) -> Any:
    values = [option.value for option in field.options]

    def check(positions: list[int]) -> str | None:
        if not positions and not field.required:
            return None
        return _field_problem(field, [values[position] for position in positions])

    ticked = [] if current is ABSENT else [values.index(value) for value in current]
    positions = screen.choose_many(
        message, [_option_text(option) for option in field.options], ticked, check
    )
    if not positions and not field.required:
        return ABSENT
    return [values[position] for position in positions]


def _field_problem(field: Field, value: Any) -> str | None:
    problem = field.problem(value)
    return None if problem is None else visible(problem)


def _label(field: Field) -> str:
    return f"“{visible(shorten(field.label, 30))}”"


def _option_text(option: Option) -> str:
    """Return the text of an option for one row of a prompt."""
    return _whole_option(Option(short_name(option.value), short_name(option.title)))


def _whole_option(option: Option) -> str:
    value, title = map(visible, option)
    return title if title == value else f"{title} ({value})"


def _value_text(field: Field, value: Any) -> str:
    if isinstance(value, bool):
        return "Yes" if value else "No"
    if isinstance(value, list):
        return ", ".join(_value_text(field, item) for item in value) or "(none)"
    for option in field.options:
        if option.value == value:
            return _whole_option(option)
    return _plain_text(value)


def _plain_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
