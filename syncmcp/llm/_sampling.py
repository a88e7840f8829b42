"""The base of the sampling handlers of all providers: the choice of a model, and its stream."""

from __future__ import annotations

import contextvars
import inspect
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypedDict, get_args

from syncmcp import types
from syncmcp._base.checks import whole_number
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.timing import monotonic
from syncmcp._protocol.jsonrpc import INVALID_PARAMS
from syncmcp.errors import InvalidOutput, Refused, RequestCancelled, UsageError
from syncmcp.handlers.context import HandlerContext
from syncmcp.llm._format import ModelFormat, Unrepresentable, message_content

# The choice of a model by the preferences of the server.


@dataclass(frozen=True)
class Model:
    """A model that may be chosen, and its properties.

    Attributes:
        name: The provider's name of the model.
        aliases: Other names that match hints of a server: those of similar models, for example.
        cheapness: A number from 0 to 1; 1 is the cheapest. The three numbers count only in relation
            to those of the other models.
        speed: A number from 0 to 1; 1 is the fastest.
        intelligence: A number from 0 to 1; 1 is the most intelligent.
    """

    name: str
    aliases: tuple[str, ...] = ()
    cheapness: float = 0.5
    speed: float = 0.5
    intelligence: float = 0.5

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("a model must have a name")
        for name in ("cheapness", "speed", "intelligence"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name} must be from 0 to 1, not {getattr(self, name)!r}")


def choose_model(models: Sequence[Model], preferences: types.ModelPreferences | None) -> Model:
    """Return the model for a request (spec: sampling, "Model Preferences").

    Hints are tried first, in order. A hint matches a model if the hint is a substring of the
    model's name or of an alias, ignoring case. If no hint matches, the model with the highest sum
    of cheapness, speed and intelligence is chosen, each weighted by the server's priority. Among
    equals, the first is chosen.
    """
    if preferences is None:
        return models[0]
    for hint in preferences.hints or ():
        wanted = (hint.name or "").casefold()
        for model in models:
            if wanted and any(wanted in name.casefold() for name in (model.name, *model.aliases)):
                return model
    cost, speed = preferences.cost_priority or 0.0, preferences.speed_priority or 0.0
    intelligence = preferences.intelligence_priority or 0.0

    def worth(model: Model) -> float:
        return cost * model.cheapness + speed * model.speed + intelligence * model.intelligence

    return max(models, key=worth)


SystemPrompt = Literal["use", "append", "ignore"]
"""The ways to use the system prompt of a server."""

PROGRESS_PAUSE: Final = 0.5
"""The shortest time between two progress notifications to the server, in seconds."""

# Guards that the default client of a provider is made once.
_client_lock = threading.Lock()


class Accumulator(Protocol):
    """Accumulates the events of a stream into an answer."""

    def add(self, event: Any, /) -> str:
        """Add one event; return the text in the event."""
        ...

    def answer(self) -> dict[str, Any] | None:
        """Return the complete answer; `None` if the stream ended early."""
        ...


class Settings(TypedDict, total=False):
    """The keyword arguments of `ModelSampling`."""

    system: str | None
    system_prompt: SystemPrompt
    max_tokens: int | None
    max_temperature: float | None
    tools: bool
    options: Mapping[str, Any] | None


class ModelSampling(ABC):
    """Lets a provider's model answer for a server, or be the model of a `ToolLoop`.

    ::

        from syncmcp.llm import AnthropicSampling

        client = syncmcp.Client(server, sampling=AnthropicSampling(name, max_tokens=1000))

    The answer is streamed: a reviewer sees the partial answer, and a server that asked for progress
    is notified of the progress. `context.cancel` ends the answer at once. The provider's request is
    closed at the next event of its stream, on a thread for which no call waits. Exceptions of the
    provider's package are raised to the caller: the server only learns that the handler failed.

    The object may be called from any thread. It can be pickled if `client` can be pickled, or was
    omitted.

    Attributes:
        models: The models to choose from.
        tools: Whether servers may send tools with a request.

    Args:
        model: The model, or several models, of which the preferences of the server choose one; the
            first is the default. See `Model`.
        client: A client object of the provider's package, which has its own key, URLs, proxies and
            timeouts.
        system: Your own system prompt.
        system_prompt: How the server's system prompt is used. ``"use"`` replaces yours by it,
            ``"append"`` appends it to yours, and ``"ignore"`` ignores it.
        max_tokens: The upper limit for the tokens of an answer. A lower limit of the server counts.
        max_temperature: The upper limit for the temperature. A lower temperature of the server
            counts.
        tools: Whether servers may send tools for the model with a request.
        options: Fields of the provider's request, which override those of this class; `None` omits
            a field.

    Raises:
        UsageError: An argument is invalid, or the provider's package is not installed.
    """

    context: ClassVar = False
    """`False`: the handler adds no context of other servers to a request (`includeContext`)."""

    # The provider's package, the extra that installs it, and an attribute that its client has.
    _package: ClassVar[str]
    _extra: ClassVar[str]
    _required_attribute: ClassVar[str]
    # The format of requests and answers, and the reader of the events of a stream.
    _format: type[ModelFormat]
    _accumulator: type[Accumulator]

    def __init__(
        self,
        model: str | Model | Iterable[str | Model],
        client: Any = None,
        *,
        system: str | None = None,
        system_prompt: SystemPrompt = "use",
        max_tokens: int | None = None,
        max_temperature: float | None = None,
        tools: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        given = [model] if isinstance(model, (str, Model)) else model
        self.models = tuple(Model(each) if isinstance(each, str) else each for each in given)
        if not self.models:
            raise UsageError("at least one model is needed")
        if system_prompt not in get_args(SystemPrompt):
            raise UsageError(
                f'system_prompt must be "use", "append" or "ignore", not {system_prompt!r}'
            )
        if max_temperature is not None and not max_temperature >= 0:
            raise UsageError(f"max_temperature must be at least 0, not {max_temperature!r}")
        _check_installed(self._package, self._extra)
        self._check_client(client)
        self.tools = tools
        self._client = client
        self._default_client: Any = None
        self._system = system
        self._system_prompt = system_prompt
        self._max_tokens = None if max_tokens is None else whole_number(max_tokens, "max_tokens")
        self._max_temperature = max_temperature
        self._options = dict(options or {})

    def __call__(
        self, request: types.CreateMessageRequestParams, context: HandlerContext, /
    ) -> types.CreateMessageResult:
        """Return the answer of a model.

        Raises:
            Refused: The provider's format cannot represent the request: a sound, for example.
            RequestCancelled: `context.cancel` was cancelled.
            InvalidOutput: The model's answer is invalid, or ended early.
        """
        context.cancel.raise_if_cancelled()
        request = self._limited(request)
        model = choose_model(self.models, request.model_preferences).name
        format = self._format(request.tools or ())
        try:
            body = {**self._provider_fields(format.render_request(request, model)), **self._options}
        except Unrepresentable as error:
            raise Refused(INVALID_PARAMS, str(error)) from error
        body = {name: value for name, value in body.items() if value is not None}
        client, accumulator = self._get_client(), self._accumulator()
        progress = _AnswerProgress(context, model)
        for event in _stream_events(lambda: self._open_stream(client, body), context.cancel):
            progress.add(accumulator.add(self._event_dict(event)))
        answer = accumulator.answer()
        if answer is None:
            raise InvalidOutput("the model's answer is incomplete")
        return _cut_at_stop(format.parse_answer(answer), request.stop_sequences or ())

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_default_client": None}

    # -- implemented by each provider

    @abstractmethod
    def _new_client(self) -> Any:
        """Return a client of the provider with defaults from the environment."""

    def _provider_fields(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a request as arguments of the provider's package."""
        return body

    @abstractmethod
    def _open_stream(self, client: Any, body: dict[str, Any]) -> Any:
        """Send a request; return the stream of its answer, an iterable with `close`."""

    def _event_dict(self, event: Any) -> dict[str, Any]:
        """Return an event of the stream as a dict, in the format of the provider's HTTP API."""
        # Without warnings: an old version of the package would warn of every new value.
        found: dict[str, Any] = event.to_dict(mode="json", warnings=False)
        return found

    # -- the request

    def _limited(
        self, request: types.CreateMessageRequestParams
    ) -> types.CreateMessageRequestParams:
        """Return the request with the combined system prompt, within the limits of this handler."""
        update: dict[str, Any] = {"system_prompt": self._combined_prompt(request.system_prompt)}
        if self._max_tokens is not None:
            update["max_tokens"] = min(request.max_tokens, self._max_tokens)
        if self._max_temperature is not None and request.temperature is not None:
            update["temperature"] = min(request.temperature, self._max_temperature)
        return request.model_copy(update=update)

    def _combined_prompt(self, theirs: str | None) -> str | None:
        ours = self._system
        if self._system_prompt == "ignore" or not theirs:
            return ours
        if self._system_prompt == "append" and ours:
            return f"{ours}\n\n{theirs}"
        return theirs

    def _get_client(self) -> Any:
        if self._client is not None:
            return self._client
        with _client_lock:
            if self._default_client is None:
                self._default_client = self._new_client()
            return self._default_client

    def _check_client(self, client: Any) -> None:
        if client is None:
            return
        kind = type(client).__name__
        if kind.startswith("Async"):
            raise UsageError(f"{kind} needs an event loop: pass a blocking client instead")
        if not hasattr(client, self._required_attribute):
            raise UsageError(f"{kind} is not a client of the package {self._package}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(model.name for model in self.models)}>"


class _AnswerProgress:
    """Shows the partial answer to the reviewer, and reports progress to the server."""

    def __init__(self, context: HandlerContext, model: str) -> None:
        self._context = context
        self._model = model
        self._pieces: list[str] = []
        self._length = 0
        self._last_report: float | None = None

    def add(self, piece: str) -> None:
        if not piece:
            return
        self._pieces.append(piece)
        self._length += len(piece)
        self._context.show("".join(self._pieces))
        now = monotonic()
        if self._last_report is None or now - self._last_report >= PROGRESS_PAUSE:
            self._last_report = now
            self._context.report_progress(
                self._length, message=f"{self._model} has written {self._length} characters"
            )


# The streamed answer of a model is read on a thread that may be abandoned.

# On Windows, Ctrl-C does not interrupt a main thread that waits for a queue without a timeout.
_POLL_SECONDS: Final = 0.2 if sys.platform == "win32" else None


class _End(NamedTuple):
    """The end of the stream, with an error or without."""

    error: BaseException | None = None


def _stream_events(begin: Callable[[], Any], cancel: CancelToken) -> Iterator[Any]:
    """Yield the events of a streamed call of a provider's package.

    The call runs on a daemon thread of its own, with the caller's context variables. When the call
    is cancelled, or the iterator is closed, the thread is abandoned: no thread waits for it, and
    later events and errors are discarded. The thread closes the stream at the next event, because
    no package lets another thread interrupt a thread that waits for bytes.

    `begin` makes the call and returns its stream, an iterable with `close`. Errors of the package
    are raised here, and `RequestCancelled` if `cancel` was cancelled.
    """
    items: SimpleQueue[Any] = SimpleQueue()
    abandoned = threading.Event()

    def read() -> None:
        end = _End()
        try:
            with closing(begin()) as stream:
                for event in stream:
                    if abandoned.is_set():
                        return
                    items.put(event)
        except BaseException as error:  # raised again in the thread that iterates
            end = _End(error)
        items.put(end)

    context = contextvars.copy_context()
    unsubscribe = call_when_cancelled(cancel, lambda: items.put(_End()))
    try:
        threading.Thread(target=context.run, args=(read,), name="syncmcp-llm", daemon=True).start()
        while True:
            try:
                item = items.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            if cancel.cancelled:
                raise RequestCancelled(
                    "the question was withdrawn", reason=cancel.reason, delivery="unknown"
                )
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        unsubscribe()
        abandoned.set()


def fit_arguments(create: Callable[..., Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return a request as arguments of `create`; fields unknown to it go into ``extra_body``."""
    known = inspect.signature(create).parameters
    accepted = {name: value for name, value in body.items() if name in known}
    if others := {name: value for name, value in body.items() if name not in known}:
        accepted["extra_body"] = {**accepted.get("extra_body", {}), **others}
    return accepted


def _check_installed(package: str, extra: str) -> None:
    parent = package.partition(".")[0]
    if find_spec(parent) is None or find_spec(package) is None:
        raise UsageError(f"sampling needs the package {package}: install syncmcp-client[{extra}]")


def _cut_at_stop(
    result: types.CreateMessageResult, stops: Iterable[str]
) -> types.CreateMessageResult:
    """Cut the answer at the first stop sequence: some providers support none, or only a few."""
    blocks: list[Any] = []
    for block in result.blocks:
        if isinstance(block, types.TextContent):
            ends = [end for stop in stops if stop and (end := block.text.find(stop)) >= 0]
            if ends:
                blocks.append(types.TextContent(text=block.text[: min(ends)]))
                update = {"content": message_content(blocks), "stop_reason": "stopSequence"}
                return result.model_copy(update=update)
        blocks.append(block)
    return result
