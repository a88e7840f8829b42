"""What the official conformance suite asks of a client, as any program would do it."""

from __future__ import annotations

import tempfile
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import syncmcp
from syncmcp import Handlers, InputRequired
from syncmcp.auth import ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity
from syncmcp.skills import EXTENSION, Skills
from syncmcp.types import CreateMessageResult, ElicitResult, TextContent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from requests.auth import AuthBase

    from syncmcp import HandlerContext
    from syncmcp.auth import Deadline, Redirect, SignInRequest
    from syncmcp.types import CreateMessageRequestParams, ElicitRequestFormParams


def say_hello(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
    """A model with one answer."""
    return CreateMessageResult(
        role="assistant", content=TextContent(text="hello"), model="conformance"
    )


def confirm(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """Accepts a form and fills in what it must; the library adds what has a default."""
    asked = request.requested_schema["properties"]
    return ElicitResult.accept({"confirmed": True} if "confirmed" in asked else {})


class Browser:
    """A person and their browser: the suite's servers send it back without asking anything."""

    redirect_uri = "http://127.0.0.1:51763/callback"

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        """Signs in wherever the suite says."""
        return True

    def start(self, registered: Sequence[str] = ()) -> Browser:
        """Begins a login; nobody listens anywhere."""
        return self

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Opens the page, and returns what the address holds that it leads to."""
        page = urlsplit(redirect.url)
        connection = HTTPConnection(page.netloc, timeout=deadline.remaining())
        try:
            connection.request("GET", f"{page.path}?{page.query}")
            location = connection.getresponse().headers["Location"]
        finally:
            connection.close()
        return dict(parse_qsl(urlsplit(location).query))

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        pass


# What the suite gives for a scenario.
Context: TypeAlias = "Mapping[str, Any]"

ANSWERS: dict[str, Any] = {
    "sampling": say_hello,
    "elicitation": confirm,
    "roots": [tempfile.gettempdir()],
    "extensions": {EXTENSION: {}},
}


def call(client: syncmcp.Client, tool: str, *arguments: Any) -> None:
    """Calls a tool, which has to succeed."""
    client.call_tool(tool, *arguments).raise_for_error()


def use(tool: str, *arguments: Any) -> Callable[[syncmcp.Client, Context], None]:
    """Lists the tools, and calls this one."""

    def run(client: syncmcp.Client, _: Context) -> None:
        client.list_tools()
        call(client, tool, *arguments)

    return run


def nothing(client: syncmcp.Client, _: Context) -> None:
    """Opening the client is all there is to see."""


def call_what_is_listed(client: syncmcp.Client, _: Context) -> None:
    """Calls each tool that the list holds."""
    for tool in client.list_tools().tools:
        call(client, tool.name)


def use_everything(client: syncmcp.Client, context: Context) -> None:
    """Calls each tool, reads each resource, gets each prompt."""
    call_what_is_listed(client, context)
    for resource in client.list_resources().resources:
        client.read_resource(resource.uri)
    for prompt in client.list_prompts().prompts:
        client.get_prompt(prompt.name)


def call_as_told(client: syncmcp.Client, context: Context) -> None:
    """Calls tools with the arguments that the suite gives."""
    client.list_tools()
    for told in context["toolCalls"]:
        call(client, told["name"], told["arguments"])


def echo_schema(client: syncmcp.Client, _: Context) -> None:
    """Sends a tool's input schema back as it came."""
    tools = {tool.name: tool for tool in client.list_tools().tools}
    call(client, "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


def answer_in_rounds(client: syncmcp.Client, _: Context) -> None:
    """Calls tools that ask in `input_required` results, with another call between the rounds."""

    def confirm_later(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
        call(context.client, "test_mrtr_unrelated")
        return confirm(request, context)

    asking_back = Handlers(elicitation=confirm_later)
    client.call_tool("test_mrtr_echo_state", handlers=asking_back).raise_for_error()
    by_hand = client.begin_tool("test_mrtr_no_state")
    if not isinstance(by_hand, InputRequired):
        raise TypeError(f"nothing was asked: {by_hand!r}")
    client.resume(by_hand, {"confirm": ElicitResult.accept({"confirmed": True})})
    call(client, "test_mrtr_no_result_type")


def load_a_skill(client: syncmcp.Client, _: Context) -> None:
    """Loads the first skill, and reads all of its files."""
    skills = Skills(client)
    loaded = skills.load(skills.list()[0])
    for name in loaded.names:
        loaded.read(name)


def sign_in(context: Context) -> OAuth:
    """A person signs in; the program has no name at the server yet, or that of its document."""
    document = "https://conformance-test.local/client-metadata.json"
    return OAuth(receiver=Browser(), client_metadata_url=document)


def sign_in_with_proofs(context: Context) -> OAuth:
    """A person signs in, for tokens that are of no use without the key that is made here."""
    return OAuth(receiver=Browser(), dpop=True)


def chosen(context: Context, *names: str) -> dict[str, Any]:
    """Some of what the suite gives."""
    return {name: context[name] for name in names}


def sign_in_as_registered(context: Context) -> OAuth:
    """A person signs in; the program has a name and a secret."""
    known = chosen(context, "client_id", "client_secret", "issuer")
    return OAuth(receiver=Browser(), **known)


def prove_by_secret(context: Context) -> ClientCredentials:
    """The program signs in as itself; it trusts any server that it is sent to."""
    return ClientCredentials(**chosen(context, "client_id", "client_secret"), issuer=None)


def prove_by_key(context: Context) -> ClientCredentials:
    """The same, with a signature."""
    key, algorithm = context["private_key_pem"], context["signing_algorithm"]
    client = context["client_id"]
    return ClientCredentials(client, private_key=key, algorithm=algorithm, issuer=None)


def let_the_company_decide(context: Context) -> EnterpriseManaged:
    """An employee has signed in at their company's identity provider already."""
    known = chosen(context, "idp_token_endpoint", "idp_client_id", "client_id", "client_secret")
    return EnterpriseManaged(context["idp_id_token"], **known, issuer=None)


def let_the_platform_vouch(context: Context) -> WorkloadIdentity:
    """What runs the program says what it is."""
    return WorkloadIdentity(context["valid_jwt"], client_id=context["client_id"], issuer=None)


SCENARIOS: dict[str, Callable[[syncmcp.Client, Context], object]] = {
    "initialize": nothing,
    "tools_call": use("add_numbers", {"a": 5, "b": 3}),
    "sse-retry": use("test_reconnection"),  # its answer comes on another stream than it began on
    "request-metadata": nothing,
    "http-standard-headers": use_everything,
    "http-custom-headers": call_as_told,
    "http-invalid-tool-headers": call_what_is_listed,
    "json-schema-ref-no-deref": lambda client, _: client.list_tools(),
    "json-schema-2020-12-preservation": echo_schema,
    "elicitation-sep1034-client-defaults": use("test_client_elicitation_defaults"),
    "sep-2322-client-request-state": answer_in_rounds,
    "sep-2640-client-no-prefetch": lambda client, _: Skills(client).list(),
    "sep-2640-client-verify-digest": load_a_skill,
    "sep-2640-client-verify-size": load_a_skill,
    "sep-2640-client-verify-frontmatter": load_a_skill,
}

# In all other scenarios that begin with `auth/`: `sign_in`.
SIGNING_IN: dict[str, Callable[[Context], AuthBase]] = {
    "auth/client-credentials-basic": prove_by_secret,
    "auth/client-credentials-jwt": prove_by_key,
    "auth/dpop": sign_in_with_proofs,
    "auth/dpop-nonce": sign_in_with_proofs,
    "auth/enterprise-managed-authorization": let_the_company_decide,
    "auth/pre-registration": sign_in_as_registered,
    "auth/wif-jwt-bearer": let_the_platform_vouch,
}


def play(scenario: str, url: str, context: Context) -> None:
    """Does what a scenario asks for, at the server that the suite has started for it."""
    signs_in = scenario.startswith("auth/")
    auth = SIGNING_IN.get(scenario, sign_in)(context) if signs_in else None
    with syncmcp.connect(syncmcp.Http(url, auth=auth), **ANSWERS) as client:
        # A tool needs more than the list of tools does.
        SCENARIOS.get(scenario, use("test-tool"))(client, context)
