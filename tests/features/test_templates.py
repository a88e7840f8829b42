"""URI templates: expansion at each level of RFC 6570, without injections."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from syncmcp.errors import InvalidOutput, UsageError
from syncmcp.templates import BadTemplate, UriTemplate, Value
from syncmcp.types import ResourceTemplate

pytestmark = pytest.mark.requirement("M-11")

# The variables of the RFC's own examples (section 3.2).
VALUES: dict[str, Value] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": 1024,
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}
# Templates, each with its expansion.
EXAMPLES = """
    {var} value   {hello} Hello%20World%21   {half} 50%25   O{empty}X OX   O{undef}X OX
    {x,y} 1024,768   {x,hello,y} 1024,Hello%20World%21,768   ?{x,empty} ?1024,   ?{x,undef} ?1024
    ?{undef,y} ?768   {var:3} val   {var:30} value   {list} red,green,blue
    {list*} red,green,blue   {keys} semi,%3B,dot,.,comma,%2C   {keys*} semi=%3B,dot=.,comma=%2C
    {count} one,two,three   {base}index http%3A%2F%2Fexample.com%2Fhome%2Findex
    {+var} value   {+hello} Hello%20World!   {+half} 50%25
    {+base}index http://example.com/home/index   O{+empty}X OX   O{+undef}X OX
    {+path}/here /foo/bar/here   here?ref={+path} here?ref=/foo/bar
    up{+path}{var}/here up/foo/barvalue/here   {+x,hello,y} 1024,Hello%20World!,768
    {+path,x}/here /foo/bar,1024/here   {+path:6}/here /foo/b/here   {+list} red,green,blue
    {+list*} red,green,blue   {+keys} semi,;,dot,.,comma,,   {+keys*} semi=;,dot=.,comma=,
    {#var} #value   {#hello} #Hello%20World!   {#half} #50%25   foo{#empty} foo#   foo{#undef} foo
    {#x,hello,y} #1024,Hello%20World!,768   {#path,x}/here #/foo/bar,1024/here
    {#path:6}/here #/foo/b/here   {#list*} #red,green,blue   {#keys} #semi,;,dot,.,comma,,
    {#keys*} #semi=;,dot=.,comma=,
    {.who} .fred   {.who,who} .fred.fred   {.half,who} .50%25.fred   www{.dom*} www.example.com
    X{.var} X.value   X{.empty} X.   X{.undef} X   X{.var:3} X.val   X{.list} X.red,green,blue
    X{.list*} X.red.green.blue   X{.keys} X.semi,%3B,dot,.,comma,%2C
    X{.keys*} X.semi=%3B.dot=..comma=%2C   X{.empty_keys} X   X{.empty_keys*} X
    {/who} /fred   {/who,who} /fred/fred   {/half,who} /50%25/fred   {/who,dub} /fred/me%2Ftoo
    {/var,empty} /value/   {/var,undef} /value   {/var,x}/here /value/1024/here
    {/var:1,var} /v/value   {/list} /red,green,blue   {/list*} /red/green/blue
    {/list*,path:4} /red/green/blue/%2Ffoo   {/keys} /semi,%3B,dot,.,comma,%2C
    {/keys*} /semi=%3B/dot=./comma=%2C
    {;who} ;who=fred   {;half} ;half=50%25   {;empty} ;empty   {;v,empty,who} ;v=6;empty;who=fred
    {;v,undef,who} ;v=6;who=fred   {;x,y,empty} ;x=1024;y=768;empty   {;hello:5} ;hello=Hello
    {;list} ;list=red,green,blue   {;list*} ;list=red;list=green;list=blue
    {;keys} ;keys=semi,%3B,dot,.,comma,%2C   {;keys*} ;semi=%3B;dot=.;comma=%2C
    {?who} ?who=fred   {?half} ?half=50%25   {?x,y} ?x=1024&y=768
    {?x,y,empty} ?x=1024&y=768&empty=   {?x,y,undef} ?x=1024&y=768   {?undef,y} ?y=768
    {?var:3} ?var=val   {?list} ?list=red,green,blue   {?list*} ?list=red&list=green&list=blue
    {?keys} ?keys=semi,%3B,dot,.,comma,%2C   {?keys*} ?semi=%3B&dot=.&comma=%2C
    ?fixed=yes{&x} ?fixed=yes&x=1024   {&x,y,empty} &x=1024&y=768&empty=
    {&list*} &list=red&list=green&list=blue   {&keys*} &semi=%3B&dot=.&comma=%2C
"""
PAIRS = re.findall(r"(\S+) (\S+)", EXAMPLES)


@pytest.mark.parametrize(("template", "uri"), PAIRS)
def test_the_examples_of_the_rfc_expand_as_it_says(template: str, uri: str) -> None:
    read = UriTemplate(template)
    values = {name: VALUES[name] for name in read.variables}
    assert read.expand(values, unchecked=read.variables) == uri


WEB = "https://example.org{+x}"


def rows(table: str) -> Iterator[tuple[str, dict[str, Value], str]]:
    """Yield the templates of a table with their values and results; `WEB` is replaced."""
    for row in re.split(r"\n *|   ", table.strip().replace("WEB", WEB)):
        template, *words, result = row.split()
        pairs = (word.partition("=") for word in words)
        yield template, {name: value for name, _, value in pairs}, result


# Values of each type; dots that form no path segment, or are in the template; empty hosts that no
# program replaces by the path; expressions that stay within their part of the URI.
WRITTEN = """
    file://{path} path=/etc/config file://%2Fetc%2Fconfig
    file://{+path} path=/etc/config file:///etc/config   a/{b:2} b=éèê a/%C3%A9%C3%A8
    a/{+b:2} b=%C3%A9%20c a/%C3%A9%20   ä/{user-id} user-id=1 %C3%A4/1
    a/{x}..b{?y} x= y=.. a/..b?y=..   a/../{x} x=b a/../b   ../{x} x=b ../b   {x}/.. x=b b/..
    a/..{/x} x=b a/../b   a/..{?x} a/..   a/{x}{y}/b x=.. y=. a/.../b   a/.{x} x=git a/.git
    acme://../{x} x=b acme://../b   file://{h}/{x} h= x=a file:///a   file:///{x} x=a file:///a
    notes://{h}/{x} h= x=a notes:///a   https://{x}@h/ x= https://@h/
    https://{x}.example.org/ x= https://.example.org/   https://[{x}]/ x=::1 https://[%3A%3A1]/
    https://{h}:{x}/ h=h x= https://h:/   mailto:{x} x=a mailto:a   /{x} x=a /a
    https:///a https:///a   WEB x=/a/b;c=d:e@f//g https://example.org/a/b;c=d:e@f//g
    WEB x=/a%3Fb%23c https://example.org/a%3Fb%23c   WEB x= https://example.org
    WEB https://example.org
    https://example.org/{+x} x=@evil.com:80 https://example.org/@evil.com:80
    https://example.org/?z={+x} x=a?b&c=d https://example.org/?z=a?b&c=d
    https://example.org/{#x} x=a?b#c https://example.org/#a?b#c
    https://{x}.example.org x=a@evil.com/ https://a%40evil.com%2F.example.org
    https://example{.x}/a x=org https://example.org/a
    https://example.org{x} x=/a https://example.org%2Fa   {x}/b x=a:b a%3Ab/b
    {+x}/b x=a/c:b a/c:b/b   /{x}/b x=a /a/b   notes://{+x}/{y} x=a/b y=c notes://a/b/c
    file://{+x} x=//a/b file:////a/b   acme://a/{+x} x=//b acme://a///b
    acme:{x}{+y} x=a y=b/c:d acme:ab/c:d
"""


@pytest.mark.parametrize(
    ("template", "values", "uri"),
    [
        *rows(WRITTEN),
        ("db://rows{?params*}", {"params": {"a": 1, "b": 2}}, "db://rows?a=1&b=2"),
        ("a{?n,on}", {"n": 0, "on": False}, "a?n=0&on=false"),
        ("a{?none,nothing*}", {"none": [], "nothing": {"b": None}}, "a"),
        *(("a{?x*,y}", {"x": x, "y": "z"}, "a?y=z") for x in ([], {}, {"b": None}, [None])),
        ("a{;l*}", {"l": ["", "b", None, ""]}, "a;l;l=b;l"),
        ("a{;k*}", {"k": {"b": "", "c": "d"}}, "a;b;c=d"),
        ("a{?k*}", {"k": {"é": "ü"}}, "a?%C3%A9=%C3%BC"),
        ("a{?x*,y*,z*}", {"x": ["b", "c"], "y": {"d": "e"}, "z": ["f"]}, "a?x=b&x=c&d=e&z=f"),
        ("a{x*,y*,z}", {"x": ["b", "c"], "y": {"d": "e"}, "z": ["f"]}, "ab,c,d=e,f"),
        *((text, {"x": "a[]$()*'+&!~_"}, "/a[]$()*'+&!~_") for text in ("/{+x}", "/{+x:20}")),
        ("a/{+b}", {"b": "50% of%20it é"}, "a/50%25%20of%20it%20%C3%A9"),
        ("{x}", {"x": ""}, ""),
        (WEB, {"x": "/a b\\c"}, "https://example.org/a%20b%5Cc"),
        (
            "{scheme}://{user}@{host}:{port}/{x}",
            {"scheme": "db", "user": "me", "host": "h.example", "port": 1, "x": "a@b:c"},
            "db://me@h.example:1/a%40b%3Ac",
        ),
        ("notes://{+x}", {"x": "a b/c"}, "notes://a%20b/c"),
    ],
)
def test_every_kind_of_value_is_written(template: str, values: dict[str, Value], uri: str) -> None:
    assert UriTemplate(template).expand(values) == uri


HOSTILE = ("{", "}", "{name}", "{+x}", "?", "#", "&a=b", ";", "..", ".", "../..", "/", "a b", "%")
OTHERS = ("%2F", "\n", "\x00", "é", "\U0001f600", "https://evil", "//evil", "@evil", "\\..\\")


@pytest.mark.parametrize("value", HOSTILE + OTHERS)
@pytest.mark.parametrize(
    ("before", "expression", "after"),
    [
        ("acme://host/a/", "{value}", "/b?c=d#e"),
        ("acme://host", "{/value}", "/b"),
        ("acme://host/a", "{?value}", "&c=d"),
        ("acme://host/a", "{;value}", "/b"),
    ],
)
def test_a_value_stays_in_its_place(before: str, expression: str, after: str, value: str) -> None:
    template = UriTemplate(before + expression + after)
    if value in {".", ".."} and expression in {"{value}", "{/value}"}:
        with pytest.raises(UsageError, match=r"'value'.*segment"):
            template.expand({"value": value})
        return
    uri = template.expand({"value": value})
    assert uri.startswith(before)
    assert uri.endswith(after)
    place = uri[len(before) : len(uri) - len(after)].removeprefix(expression[1])
    place = place.removeprefix("value=")
    assert unquote(place) == value
    assert set("{}?#&/;@ \\\n").isdisjoint(place)
    assert {".", ".."}.isdisjoint(urlsplit(uri).path.split("/"))
    assert (urlsplit(uri).scheme, urlsplit(uri).netloc) == ("acme", "host")


# Templates with values, and the variables that the error names.
REFUSED = {
    "host": """
        WEB x=@evil.com/ x   WEB x=:80@evil.com/ x   WEB x=:8080/ x   WEB x=.evil.com x
        WEB x=evil x   WEB x=%40evil.com x   WEB x=\\@evil.com x   WEB{y} y=.evil.com y
        WEB{y} x= y=.evil.com y   WEB@evil.com x   WEB@evil.com x= x
        https://example.org{/x}.evil.com x   https://example.org{?x}{y} y=.evil.com y
        https://example.org{?x}{&y} y=1 y   file://{+x} x=evil/a x   https://{+x}/a x=evil.com x
        HTTPS://{+x}/a x=evil.com x   db://h{+x} x=.evil.com x   https:{+x} x=//evil.com x
        https:/{+x} x=/evil.com x   {+x}/{+y} x=/ y=evil.com [xy]   /{x}/evil.com x= x
        /{x}/evil.com x   https:/{/x} x=evil.com x   {/x,y} x= y=evil.com [xy]
        acme:{/x,y} x= y=evil.com [xy]   {x}//evil.com x= x   {+x} x=//evil x   acme:{+x} x=//evil x
        acme:/{+x} x=//evil x
    """,
    "query": """
        WEB x=?q=1 x   WEB x=/a?q=1 x   WEB?z=1 x=/a?admin=1& x   notes://{+x} x=a?b x
    """,
    "fragment": """
        WEB x=#f x   WEB x=/a#f?q x   https://example.org/a?z={+x} x=1#f x
    """,
    "scheme": """
        {+x}:b x=javascript x   java{+x}:b x=script x   {+x}{y} x=javascript: y=b x
        urn:a:{+x} x=b:c x   {x}{+y} x=java y=script:z [xy]   {+x}{+y} x=javascript y=:z [xy]
    """,
    "segment": """
        a/{x}/b x=.. [xy]   a/{x}{y}/b y=. x=. [xy]   acme:{x}/a x=.. [xy]   {x} x=. [xy]
        a/.{x} x=. [xy]   a/.{x} x= [xy]   a/{.x} x=. [xy]   a/{.x} x= [xy]   a/{.x,y} x= y= [xy]
        a/{+x}../b x=c/ [xy]   a/{+x}../b [xy]   a/..{+x} x=/b [xy]   a/..{x} [xy]
        a/{+x}{y} x=b/ y=.. [xy]   a/.{+x} x=%2E/b [xy]   a/{x}{+y} x=. y=/b [xy]
    """,
    "would leave.*host": """
        https://{h}/{x} h= x=evil.com h   HTTPS://{h}/{x} x=evil.com h   https://{h}/evil.com h
        https://{h}{+x} h= x=/evil.com/a h   https://{h}{x}/evil.com h= x= h
        https://{h}:{x}/evil.com h= x=80 h   https://{x}@{h}/evil.com x=me h= [xh]
        //{h}/{x} h= x=evil.com h   wss://{h}/{x} x=evil.com h   ftp://{h}/{x} x=evil.com h
        https:{+x} x=evil.com x   https:/{x} x=evil.com x   https:{/x} x=evil.com x
        https:///{x} x=evil.com x
    """,
}


@pytest.mark.parametrize(
    ("template", "values", "name", "problem"),
    [
        *((*row, problem) for problem, table in REFUSED.items() for row in rows(table)),
        *((WEB, {"x": x}, "x", "host") for x in (" @evil.com", ["", "@evil.com"])),
        (WEB, {"x": {"@evil.com": "a"}}, "x", "host"),
        ("{/x*}", {"x": ["", "evil.com"]}, "x", "host"),
        ("a{/x*}", {"x": ["b", ".."]}, "[xy]", "segment"),
        ("https://{h}{/x*}", {"h": "", "x": ["evil.com", "a"]}, "h", "would leave.*host"),
    ],
)
def test_the_structure_of_a_uri_is_that_of_its_template(
    template: str, values: dict[str, Value], name: str, problem: str
) -> None:
    read = UriTemplate(template)
    with pytest.raises(UsageError, match=rf"value of '{name}'.*{problem}.*unchecked"):
        read.expand(values)
    assert read.expand(values, unchecked=read.variables)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (
            ["..", "a/../b", "./a", "a/.", "%2e%2E/a", "a%2f..", "..\\a", "..?a"],
            "contains a segment",
        ),
        ([["a", "../b"]], "contains a segment"),
        (["a\nb", "a%0Db", "\x7f"], "control"),
        (["https://evil.example/", "javascript:alert(1)", "%6aavascript:alert(1)"], "scheme"),
        ([{"a": "b", "c:d": "e"}], "scheme"),
    ],
)
@pytest.mark.parametrize("template", ["file://{+x}", "acme://host/{+x}", "acme:a{#x}"])
def test_what_leads_elsewhere_is_refused(template: str, values: list[Value], problem: str) -> None:
    for value in values:
        with pytest.raises(UsageError, match=f"'x'.*{problem}.*unchecked"):
            UriTemplate(template).expand({"x": value})
        assert UriTemplate(template).expand({"x": value}, unchecked=["x"])


def test_what_was_asked_for_stays_as_it_is() -> None:
    template = UriTemplate("file://{+x}/{+y}")
    assert template.expand({"x": "/a/../b", "y": "c"}, unchecked={"x"}) == "file:///a/../b/c"
    assert template.expand({"x": "/..", "y": "c"}, unchecked="x") == "file:///../c"
    with pytest.raises(UsageError, match="'y'"):
        template.expand({"x": "/a/../b", "y": ".."}, unchecked={"x"})
    # Each value that leaves a host empty has to be unchecked.
    template = UriTemplate("https://{a}{b}/{x}")
    for unchecked in (["a"], ["b"], ["x"]):
        with pytest.raises(UsageError, match="host"):
            template.expand({"x": "evil.com"}, unchecked=unchecked)
    assert template.expand({"b": "example.org", "x": "y"}) == "https://example.org/y"


@pytest.mark.parametrize(
    ("template", "values", "problem"),
    [
        ("{x}", {"y": 1}, "no variable 'y'; it has 'x'"),
        ("a", {"y": 1}, "it has none"),
        ("{x}", {"x": b"bytes"}, "a string or a number"),
        ("{x}", {"x": [["nested"]]}, "a string or a number"),
        ("{x}", {"x": {"a": {"b": "c"}}}, "a string or a number"),
        ("{x}", {"x": {1, 2}}, "a string or a number"),
        ("{x}", {"x": "\ud800"}, "cannot be encoded in a URI"),
        ("{x:3}", {"x": ["a"]}, "takes a prefix of 'x', which must be one value"),
        ("{x:3}", {"x": {"a": "b"}}, "takes a prefix of 'x', which must be one value"),
        ("{x}", "x", "mapping"),
    ],
)
def test_what_cannot_be_expanded_is_refused(template: str, values: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=re.escape(problem)):
        UriTemplate(template).expand(values)


@pytest.mark.parametrize(
    "template",
    [
        *("{", "}", "{}", "{x", "a}b", "{x{y}}", "{{x}}", "{=x}", "{|x}", "{!x}", "{@x}", "{,x}"),
        *("{x,}", "{x:0}", "{x:}", "{x:10000}", "{x:a}", "{x**}", "{x*:3}", "{x y}", "{x=1}"),
        *("{.x.}", "{+}", "a b", "a\nb", 'a"b', "a<b", "a\\b", "a^b", "a`b", "a|b"),
        *("100%", "a%2", "a%zz", "a" * 4097),
    ],
)
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(BadTemplate):
        UriTemplate(template)


def test_a_template_is_a_plain_value() -> None:
    template = UriTemplate("a{/b}{?c,b}")
    assert template.variables == ("b", "c")
    assert template == pickle.loads(pickle.dumps(template)) != UriTemplate("a")
    assert len({template, UriTemplate("a{/b}{?c,b}")}) == 1
    assert (str(template), repr(template)) == ("a{/b}{?c,b}", "UriTemplate('a{/b}{?c,b}')")
    assert template != "a{/b}{?c,b}"
    for wrong in (None, 1, b"a"):
        with pytest.raises(BadTemplate, match="string"):
            UriTemplate(wrong)  # type: ignore[arg-type]
    with pytest.raises(BadTemplate, match=r"'\{' is not allowed .* \{...\}: 'a\{b'"):
        UriTemplate("a{b")


def test_a_template_of_a_server_is_used_as_it_came() -> None:
    template = ResourceTemplate(name="city", uri_template="demo://cities/{city}")
    assert template.expand({"city": "New York"}) == "demo://cities/New%20York"
    assert template.match("demo://cities/New%20York") == {"city": "New York"}
    assert template.template.variables == ("city",)
    with pytest.raises(UsageError, match="no variable 'town'"):
        template.expand({"town": "a"})
    broken = ResourceTemplate(name="broken", uri_template="demo://{")
    for use in (broken.expand, lambda: broken.match("a"), lambda: broken.template):
        with pytest.raises(InvalidOutput, match="'broken'"):
            use()
