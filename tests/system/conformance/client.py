"""The actions that the official conformance suite expects of a client, by its public API."""

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
    """Answer like a model that has one answer."""
    return CreateMessageResult(
        role="assistant", content=TextContent(text="hello"), model="conformance"
    )


def confirm(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """Accept a form, and fill in the required field; the library adds default values."""
    asked = request.requested_schema["properties"]
    return ElicitResult.accept({"confirmed": True} if "confirmed" in asked else {})


class Browser:
    """A person and their browser. The servers of the suite redirect it back without a form."""

    redirect_uri = "http://127.0.0.1:51763/callback"

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        """Allow every server of the suite."""
        return True

    def start(self, registered: Sequence[str] = ()) -> Browser:
        """Begin a sign-in; no port is opened."""
        return self

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        """Open the page; return the query parameters of the address to which it redirects."""
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


# The data that the suite provides for a scenario.
Context: TypeAlias = "Mapping[str, Any]"

ANSWERS: dict[str, Any] = {
    "sampling": say_hello,
    "elicitation": confirm,
    "roots": [tempfile.gettempdir()],
    "extensions": {EXTENSION: {}},
}


def call(client: syncmcp.Client, tool: str, *arguments: Any) -> None:
    """Call a tool, which must succeed."""
    client.call_tool(tool, *arguments).raise_for_error()


def use(tool: str, *arguments: Any) -> Callable[[syncmcp.Client, Context], None]:
    """Return an action that lists the tools, and calls this one."""

    def run(client: syncmcp.Client, _: Context) -> None:
        client.list_tools()
        call(client, tool, *arguments)

    return run


def nothing(client: syncmcp.Client, _: Context) -> None:
    """Do nothing: opening the client is the whole scenario."""


def call_what_is_listed(client: syncmcp.Client, _: Context) -> None:
    """Call each listed tool."""
    for tool in client.list_tools().tools:
        call(client, tool.name)


def use_everything(client: syncmcp.Client, context: Context) -> None:
    """Call each tool, read each resource, get each prompt."""
    call_what_is_listed(client, context)
    for resource in client.list_resources().resources:
        client.read_resource(resource.uri)
    for prompt in client.list_prompts().prompts:
        client.get_prompt(prompt.name)


def call_as_told(client: syncmcp.Client, context: Context) -> None:
    """Call tools with the arguments that the suite provides."""
    client.list_tools()
    for told in context["toolCalls"]:
        call(client, told["name"], told["arguments"])


def echo_schema(client: syncmcp.Client, _: Context) -> None:
    """Send the input schema of a tool back to the server."""
    tools = {tool.name: tool for tool in client.list_tools().tools}
    call(client, "json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})


def answer_in_rounds(client: syncmcp.Client, _: Context) -> None:
    """Call tools that ask in `input_required` results, with another call between the rounds."""

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
    """Load the first skill, and read all of its files."""
    skills = Skills(client)
    loaded = skills.load(skills.list()[0])
    for name in loaded.names:
        loaded.read(name)


def sign_in(context: Context) -> OAuth:
    """A person signs in; the program registers, or its client id is the URL of its document."""
    document = "https://conformance-test.local/client-metadata.json"
    return OAuth(receiver=Browser(), client_metadata_url=document)


def sign_in_with_proofs(context: Context) -> OAuth:
    """A person signs in; the tokens are bound to a key, which the library generates."""
    return OAuth(receiver=Browser(), dpop=True)


def chosen(context: Context, *names: str) -> dict[str, Any]:
    """Return some of the data that the suite provides."""
    return {name: context[name] for name in names}


def sign_in_as_registered(context: Context) -> OAuth:
    """A person signs in; the program is registered, with a client id and a secret."""
    known = chosen(context, "client_id", "client_secret", "issuer")
    return OAuth(receiver=Browser(), **known)


def prove_by_secret(context: Context) -> ClientCredentials:
    """The program signs in as itself, with a secret, at any issuer."""
    return ClientCredentials(**chosen(context, "client_id", "client_secret"), issuer=None)


def prove_by_key(context: Context) -> ClientCredentials:
    """The program signs in as itself, with a key, at any issuer."""
    key, algorithm = context["private_key_pem"], context["signing_algorithm"]
    client = context["client_id"]
    return ClientCredentials(client, private_key=key, algorithm=algorithm, issuer=None)


def let_the_company_decide(context: Context) -> EnterpriseManaged:
    """An employee has already signed in at the identity provider of their company."""
    known = chosen(context, "idp_token_endpoint", "idp_client_id", "client_id", "client_secret")
    return EnterpriseManaged(context["idp_id_token"], **known, issuer=None)


def let_the_platform_vouch(context: Context) -> WorkloadIdentity:
    """The platform that runs the program vouches for it by a JWT."""
    return WorkloadIdentity(context["valid_jwt"], client_id=context["client_id"], issuer=None)


SCENARIOS: dict[str, Callable[[syncmcp.Client, Context], object]] = {
    "initialize": nothing,
    "tools_call": use("add_numbers", {"a": 5, "b": 3}),
    "sse-retry": use("test_reconnection"),  # its answer arrives after the stream was resumed
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

# The authentication of scenarios; `sign_in` for all others that begin with `auth/`.
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
    """Do the actions of a scenario, at the server that the suite has started for it."""
    signs_in = scenario.startswith("auth/")
    auth = SIGNING_IN.get(scenario, sign_in)(context) if signs_in else None
    with syncmcp.connect(syncmcp.Http(url, auth=auth), **ANSWERS) as client:
        # By default, call a tool: in some scenarios this needs more scope than listing the tools.
        SCENARIOS.get(scenario, use("test-tool"))(client, context)
