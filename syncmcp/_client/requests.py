"""Messages of any method (`request`, `notify`), and calls resumed with answers (`resume`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from typing_extensions import Unpack

from syncmcp import types
from syncmcp._base.checks import check_mapping, kind_of, text, validate
from syncmcp._client.background import FutureDrive
from syncmcp._client.core import ClientCore, HasCore
from syncmcp._client.driver import run
from syncmcp._client.pages import one_page
from syncmcp._client.tool_calls import checked_result
from syncmcp._concurrency.futures import RequestFuture
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions, ResolvedOptions, list_options
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.exchange import single_exchange
from syncmcp._protocol.steps import InputRound, Steps
from syncmcp.errors import SessionLost, UsageError
from syncmcp.handlers.pending import InputRequired, retry_params

if TYPE_CHECKING:
    from pydantic import BaseModel


M = TypeVar("M", bound="BaseModel")
R = TypeVar("R")


class Request:
    """`client.request`: call it to block until the result has arrived, or use its `future`."""

    def __init__(self, client: HasCore) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<request of {self._client!r}>"

    @overload
    def __call__(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[M],
        **options: Unpack[CallOptions],
    ) -> M: ...
    @overload
    def __call__(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[dict[str, Any]] = ...,
        **options: Unpack[CallOptions],
    ) -> dict[str, Any]: ...
    @list_options
    def __call__(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[Any] = dict,
        **options: Unpack[CallOptions],
    ) -> Any:
        """Send a request of any method and block until its result has arrived.

        The request has an id, a timeout, cancellation and `_meta` like every other request.

        Args:
            method: The JSON-RPC method.
            params: The parameters of the request.
            result: The pydantic model of the result, or `dict` for the result as received.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Raises:
            NotSupported: The library knows the method, and the revision lacks the method. Or
                `undeclared` is ``"refuse"``, and the server does not declare the capability.
            InvalidOutput: The result does not match the model.
            McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
        """
        core = self._client._core
        resolved = any_request_options(core, options)
        steps = any_request(core, method, params, result)
        return run(steps, core, resolved, Deadline(resolved.timeout))

    @overload
    def future(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[M],
        **options: Unpack[CallOptions],
    ) -> RequestFuture[M]: ...
    @overload
    def future(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[dict[str, Any]] = ...,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[dict[str, Any]]: ...
    def future(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[Any] = dict,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[Any]:
        """Send a request of any method, as the blocking call does, and return a future at once.

        Returns:
            A `RequestFuture`, which is a `concurrent.futures.Future`. Its ``result()`` returns the
            result of the blocking call.

        Raises:
            UsageError: An argument is invalid. Other errors are raised by ``result()``.
        """
        core, own = self._client._core, result is not dict
        resolved = any_request_options(core, options)
        steps, deadline = any_request(core, method, params, result), Deadline(resolved.timeout)
        drive = FutureDrive(steps, core, resolved, deadline, self._client, runs_user_code=own)
        return drive.future


def any_request_options(core: ClientCore, options: CallOptions) -> ResolvedOptions:
    """The options of a request of any method; `undeclared` is ``"try"`` by default."""
    return core.resolve({"undeclared": "try", **options})


def any_request(
    core: ClientCore, method: str, params: Mapping[str, Any] | None, result: Any
) -> Steps[Any]:
    text(method, "method")
    if not isinstance(result, type) or not (result is dict or hasattr(result, "model_validate")):
        raise UsageError(f"result must be dict or a pydantic model, not {result!r}")
    check_mapping(params, "params")
    model: Any = result
    raw = yield from one_page(method, None if params is None else dict(params), core)
    return raw if model is dict else validate(model, raw, method)


def notify(
    self: HasCore,
    method: str,
    params: Mapping[str, Any] | None = None,
    **options: Unpack[CallOptions],
) -> None:
    """Send a notification (before 2026-07-28).

    Args:
        method: The JSON-RPC method.
        params: The parameters of the notification.
        options: See `CallOptions`. `timeout` limits the time for sending.

    Raises:
        NotSupported: The revision has no such notification from a client.
    """
    core = self._core
    resolved = core.resolve(options)
    text(method, "method")
    deadline = Deadline(resolved.timeout)
    check_mapping(params, "params")
    sent = None if params is None else dict(params)
    try:
        core.ensure_connection(deadline).notify(method, sent, deadline)
    except SessionLost:  # the server refused the notification, so it goes to the new session
        core.ensure_connection(deadline).notify(method, sent, deadline)


def report_progress(
    self: HasCore,
    token: str | int,
    progress: float,
    total: float | None = None,
    message: str | None = None,
) -> None:
    """Tell the server how far a request of its own has come (before 2026-07-28).

    Args:
        token: The ``progressToken`` from the `_meta` of the server's request.
        progress: The progress so far, in any unit. It must increase with each report.
        total: The value of `progress` at the end, if known.
        message: A description of the current step, for people.

    Raises:
        NotSupported: The revision has no such notification from a client.
    """
    params: dict[str, Any] = {"progressToken": token, "progress": progress}
    if total is not None:
        params["total"] = total
    if message is not None:
        params["message"] = message
    client: Any = self  # so that an override of `notify` in a subclass is called
    client.notify("notifications/progress", params)


class Resume:
    """`client.resume`: call it to block until the result has arrived, or use its `future`."""

    def __init__(self, client: HasCore) -> None:
        self._client = client

    def __repr__(self) -> str:
        return f"<resume of {self._client!r}>"

    @list_options
    def __call__(
        self,
        pending: InputRequired[R],
        answers: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> R | InputRequired[R]:
        """Continue a call that waits for answers, and block until its result has arrived.

        >>> pending = client.begin_tool("ask_user_preferences")
        >>> answer = syncmcp.types.ElicitResult.accept({"outputFormat": "json"})
        >>> client.resume(pending, {key: answer for key in pending.questions}).data["action"]
        'accept'

        Args:
            pending: The `InputRequired` that `begin_tool`, `begin_prompt`, `begin_read` or `resume`
                returned.
            answers: The answers by the keys of their questions. An answer is an `ElicitResult`, a
                `CreateMessageResult`, a `ListRootsResult`, or one of them as a dict. An accepted
                form gets the defaults of omitted fields. Unanswered questions are asked again.
            options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`.

        Returns:
            The result, or the next questions of the server.

        Raises:
            UsageError: There is no such question.
            InvalidAnswer: The answer is not of the kind that the question needs, or does not fit
                its form.
            McpError: `RequestTimeout`, `ConnectionLost` and others; see `CallOptions`.
        """
        core = self._client._core
        resolved = core.resolve(options)
        return run(_resume(pending, answers, core), core, resolved, Deadline(resolved.timeout))

    def future(
        self,
        pending: InputRequired[R],
        answers: Mapping[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[R | InputRequired[R]]:
        """Continue a call that waits for answers, and return a future at once.

        The arguments are those of the blocking call.

        Returns:
            A `RequestFuture`, which is a `concurrent.futures.Future`. Its ``result()`` returns the
            result of the blocking call.

        Raises:
            UsageError: An argument is invalid. Other errors are raised by ``result()``.
        """
        core = self._client._core
        resolved = core.resolve(options)
        steps, deadline = _resume(pending, answers, core), Deadline(resolved.timeout)
        return FutureDrive(steps, core, resolved, deadline, self._client).future


def _resume(
    pending: InputRequired[R], answers: Mapping[str, Any] | None, core: ClientCore
) -> Steps[R | InputRequired[R]]:
    if not isinstance(pending, InputRequired):
        raise UsageError(
            f"pending must be an InputRequired, not {kind_of(pending)}: pass what begin_tool,"
            " begin_prompt, begin_read or resume returned, unless it is the result of the call"
        )
    check_mapping(answers, "answers")
    params = retry_params(pending, answers)
    result: R | InputRequired[R]
    result = yield from ask(core, pending.method, pending._params, params, pending._offer)
    return result


def ask(
    core: ClientCore,
    method: str,
    params: dict[str, Any],
    sent: dict[str, Any],
    offer: OfferedCapabilities,
) -> Steps[Any]:
    """The checked result of a call, or an `InputRequired` with the questions of the server.

    `params` are those of the call, and `sent` those of this request.
    """
    reply = yield from single_exchange(method, sent, offer, max_rounds=core.settings.max_rounds)
    if isinstance(reply, InputRound):
        return InputRequired(method, params, reply, offer)
    if method == "prompts/get":
        return validate(types.GetPromptResult, reply, method)
    if method == "resources/read":
        return validate(types.ReadResourceResult, reply, method)
    return (yield from checked_result(core, params["name"], reply, core.validation))
