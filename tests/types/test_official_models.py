"""The models compared with the generated ones of `mcp_types`, in its two revisions."""

from __future__ import annotations

import functools
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import mcp_types._v2025_11_25 as v2025
import mcp_types._v2026_07_28 as v2026
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import syncmcp.types
from syncmcp.types import WireModel

ENVELOPE = "a JSON-RPC message; frames are not models, what they carry is compared on its own"
SENT = "parameters that only a client sends, as a plain dict"
META = "kept as a plain dict"
SCHEMA = "a JSON Schema, kept as a plain dict"
OWN = "read or written by the library itself, as a plain dict"
MIXIN = "no construct of its own; the models that have its fields are compared"
NESTED = "part of `TasksCapability.requests`, a plain dict"

# Types with another name here; then the types that are absent here, with the reason.
RENAMED = {
    name: own
    for own, names in {
        "ErrorObject": """
            Error Error1 Error2 Error3 InternalError InvalidParamsError InvalidRequestError
            MethodNotFoundError ParseError
        """,
        "Result": "GetTaskPayloadResult",
        "PromptsCapability": "Prompts",
        "ResourcesCapability": "Resources",
        "RequestParams": "TaskAugmentedRequestParams",
        "TasksCapability": "Tasks Tasks1",
    }.items()
    for name in names.split()
}
RENAMED_IN = {
    v2025: {"Tools1": "ToolsCapability"},
    v2026: {
        "CreateMessageRequest": "InputRequest",
        "ElicitRequest": "InputRequest",
        "ListRootsRequest": "InputRequest",
        "Params": "ListRootsRequestParams",
        "Tools": "ToolsCapability",
    },
}
ABSENT = {
    name: reason
    for reason, names in {
        SCHEMA: """
            AnyOfItem BooleanSchema InputSchema Items Items1 LegacyTitledEnumSchema
            NumberSchema OneOfItem OutputSchema RequestedSchema StringSchema
            TitledMultiSelectEnumSchema TitledSingleSelectEnumSchema
            UntitledMultiSelectEnumSchema UntitledSingleSelectEnumSchema
        """,
        SENT: """
            Argument CallToolRequestParams CompleteRequestParams Context
            GetPromptRequestParams InitializeRequestParams InputResponseRequestParams
            PaginatedRequestParams Params Params2 Params3 ReadResourceRequestParams
            ResourceRequestParams SetLevelRequestParams SubscribeRequestParams
            SubscriptionsListenRequestParams UnsubscribeRequestParams
        """,
        OWN: """
            CancelTaskResult CancelledNotificationParams ClientCapabilities CreateTaskResult
            Data Data1 DiscoverResult Elicitation GetTaskResult InitializeResult
            InputRequiredResult NotificationParams Params1 ProgressNotificationParams
            RelatedTaskMetadata ResourceUpdatedNotificationParams Roots Sampling
            SubscriptionFilter SubscriptionsAcknowledgedNotificationParams
            SubscriptionsListenResult TaskStatusNotificationParams
        """,
        NESTED: "Elicitation1 Requests Requests1 Sampling1 Tools",
        ENVELOPE: """
            HeaderMismatchError JSONRPCErrorResponse JSONRPCNotification JSONRPCRequest
            JSONRPCResultResponse MissingRequiredClientCapabilityError
            URLElicitationRequiredError UnsupportedProtocolVersionError
        """,
        MIXIN: "Icons ResourceContents",
        META: """
            Meta MetaObject NotificationMetaObject RequestMetaObject ResultMetaObject
            SubscriptionsListenResultMeta
        """,
    }.items()
    for name in names.split()
}


def official_models(version: types.ModuleType) -> dict[str, type[BaseModel]]:
    return {
        name: value
        for name, value in vars(version).items()
        if isinstance(value, type)
        and issubclass(value, BaseModel)
        and (value.__module__, value.__name__) == (version.__name__, name)
    }


def is_envelope(model: type[BaseModel]) -> bool:
    """Return whether a model is a whole message, rather than its params or its result."""
    named = {"jsonrpc", "method"} & set(model.model_fields)
    return bool(named) or model.__name__.endswith("Response")


def ours_for(version: types.ModuleType, name: str) -> type[WireModel] | None:
    own = RENAMED_IN[version].get(name) or RENAMED.get(name)
    if own is None and (name in ABSENT or is_envelope(official_models(version)[name])):
        return None
    model: type[WireModel] = getattr(syncmcp.types, own or name)
    assert issubclass(model, WireModel)
    return model


def alias(name: str, field: Any) -> str:
    return str(field.serialization_alias or field.alias or name)


VERSIONS = [v2025, v2026]
PAIRS = [
    pytest.param(version, name, id=f"{version.__name__[-10:]}-{name}")
    for version in VERSIONS
    for name in official_models(version)
    if ours_for(version, name) is not None
]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_official_field_is_here_or_there_is_a_reason(version: types.ModuleType) -> None:
    constructs = official_models(version)
    assert len(constructs) > 100
    for name, official in constructs.items():
        ours = ours_for(version, name)
        if ours is None:
            assert name in ABSENT or is_envelope(official), name
            continue
        ours.model_rebuild()
        declared = {alias(*item) for item in ours.model_fields.items()}
        assert {alias(*item) for item in official.model_fields.items()} <= declared, name


def test_the_tables_name_only_what_exists() -> None:
    models = {version: set(official_models(version)) for version in VERSIONS}
    assert set(RENAMED) | set(ABSENT) <= models[v2025] | models[v2026]
    assert all(set(names) <= models[version] for version, names in RENAMED_IN.items())


# Drawing whole results is slow, but these are what the tests compare.
QUICKLY = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner, max_size=2),
    max_leaves=3,
)


def samples(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Draw JSON values for an annotation of the official models, never null if it is optional."""
    low: Any = next((item.ge for item in metadata if isinstance(item, annotated_types.Ge)), -1e9)
    high: Any = next((item.le for item in metadata if isinstance(item, annotated_types.Le)), 1e9)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return samples(arguments[0], arguments[1:])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in arguments if kind is not type(None)]
        return st.one_of([samples(kind, metadata) for kind in kinds])
    if origin is list:
        return st.lists(samples(arguments[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(st.text(), samples(arguments[1]), max_size=2)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return st.deferred(lambda: objects(annotation))
    simple: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(),
        bool: st.booleans(),
        int: st.integers(int(low), int(high)),
        float: st.floats(low, high),
    }
    return simple.get(annotation, json_values)


@functools.cache
def objects(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional = {"x-unknown": json_values} if model.model_config.get("extra") != "forbid" else {}
    for name, field in model.model_fields.items():
        table = required if field.is_required() else optional
        table[alias(name, field)] = samples(field.annotation, tuple(field.metadata))
    return st.fixed_dictionaries(required, optional=optional)


@pytest.mark.parametrize(("version", "name"), PAIRS)
@QUICKLY
@given(data=st.data())
def test_official_samples_come_back_and_what_is_built_of_them_is_valid_there(
    version: types.ModuleType, name: str, data: st.DataObject
) -> None:
    official, ours = official_models(version)[name], ours_for(version, name)
    assert ours is not None
    sample = data.draw(objects(official))
    official.model_validate(sample)
    assert ours.from_wire(sample).to_wire() == sample

    attributes = {alias(*item): item[0] for item in ours.model_fields.items()}
    sample.pop("x-unknown", None)
    built = ours(**{attributes.get(key, key): value for key, value in sample.items()})
    assert official.model_validate(built.to_wire()) == official.model_validate(sample)
