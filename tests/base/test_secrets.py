"""Secrets that are known by value: which values count, in which forms, and how many are stored."""

from __future__ import annotations

import base64
import json
import pickle
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Annotated, Any
from urllib.parse import quote

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp import Client, Http
from syncmcp._base.escapes import Reading, readings
from syncmcp._base.secrets import MOST_PARTS, MOST_SENT, Secrets, change_texts
from syncmcp._base.text import MOST_QUOTED, first_problem
from syncmcp.errors import McpError
from tests.observe.test_repeated_secrets import shown_by
from tests.support.memory import peak
from tests.transports.http_peer import Request, serving

PASSWORD = 'pa"ss/w+rd \\42'
TOKEN = "t0ken-aaaa-bbbb-cccc"


def escaped_as_json(secret: str, marks: str, *, upper: bool) -> str:
    """Return `secret` in JSON, written by a program that also escapes these characters."""
    text = json.dumps(secret)
    if upper:
        text = re.sub(r"(?<=\\u)....", lambda found: found[0].upper(), text)
    for mark in marks:
        code = f"{ord(mark):04X}" if upper else f"{ord(mark):04x}"
        text = text.replace(mark, "\\/" if mark == "/" else f"\\u{code}")
    return text


def percent_in_small_letters(secret: str) -> str:
    return re.sub("%..", lambda found: found[0].lower(), quote(secret, safe=""))


def base64_within(before: str, after: str, secret: str) -> str:
    return base64.b64encode(f"{before}{secret}{after}".encode()).decode()


FORMS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "json": json.dumps,
    "json in json": lambda secret: json.dumps(json.dumps(secret)),
    "json of PHP": partial(escaped_as_json, marks="/", upper=False),
    "json of Go": partial(escaped_as_json, marks="&<>", upper=False),
    "json of Gson": partial(escaped_as_json, marks="&<>'=", upper=False),
    "json of .NET": partial(escaped_as_json, marks="&<>'+`", upper=True),
    "url": partial(quote, safe=""),
    "url in small letters": percent_in_small_letters,
    "base64": partial(base64_within, "", ""),
    "base64 within 1": partial(base64_within, "x", "y"),
    "base64 within 2": partial(base64_within, "xx", "yy"),
    "urlsafe base64": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "repr": repr,
    "ascii": ascii,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "secret",
    [PASSWORD, TOKEN, "a+b/c&d=e<f>g'h==", "\u00fcml\u00e4ut-\u2603", "\u00ff\u00fe?>~~~\u00ff"],
)
def test_a_secret_is_found_however_it_is_encoded(form: str, secret: str) -> None:
    written = FORMS[form](secret)
    shown = Secrets([secret]).redact(f"before {written} after")
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    # Of the characters around the secret in base64, up to six may remain.
    assert not any(written[at : at + 7] in shown for at in range(len(written) - 6))


PARTS = st.sampled_from(
    ["aB%41+/=", "aB%41", "aBA+/=", "%", "41", "\\", "u0041", "\0", "n", "é", "7"]
)
VALUES = st.recursive(
    st.lists(PARTS, max_size=6).map("".join) | st.sampled_from([None, True, 7, 1234567, 123456.5]),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(PARTS, values, max_size=3),
)


@given(VALUES)
def test_in_a_value_the_same_is_masked_as_in_each_of_its_texts(value: Any) -> None:
    secrets = Secrets(["aB%41+/=", "1234567", "123456.5"])

    def masked(given: object, _: str = "") -> object:
        return given if secrets.mask(str(given)) == str(given) else secrets.mask(str(given))

    assert secrets.mask_value(value) == change_texts(value, masked, secrets.mask)


def test_the_texts_of_a_value_are_searched_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def search(text: str) -> Iterator[Reading]:
        searched.append(text)
        return readings(text)

    monkeypatch.setattr("syncmcp._base.secrets.readings", lambda text, **_: search(text))
    secrets = Secrets([TOKEN])
    value = [{f"n{n}": [f"%41 {TOKEN}", n] for n in range(100)}]
    assert secrets.mask_value(value) == [{f"n{n}": ["%41 ***", n] for n in range(100)}]
    assert len(searched) == 1


def test_of_two_secrets_that_overlap_no_part_is_left() -> None:
    secrets = Secrets(["abcdefgh", "fghijklm"])
    assert secrets.redact("<abcdefghijklm>") == "<***>"
    assert secrets.redact("abcdefgh fghijklm") == "*** ***"


def test_what_resembles_a_secret_at_a_cut_stays() -> None:
    token = Secrets([TOKEN])
    assert token.redact(f"\ufffd{TOKEN[-4:]} it was", starts_cut=True).endswith("*** it was")
    assert token.redact(f"it was {TOKEN[:-1]}") == f"it was {TOKEN[:-1]}"  # not at a cut
    secrets = Secrets(["warning-sign"])
    assert secrets.redact("a war", ends_cut=True) == "a war"
    assert secrets.redact("a warden", ends_cut=True) == "a warden"
    assert secrets.redact("ign first", starts_cut=True) == "ign first"


def variables(**values: str) -> Secrets:
    secrets = Secrets()
    secrets.give_variables(values)
    return secrets


def test_short_values_are_secrets_only_by_their_name() -> None:
    secrets = variables(LOG="debug", PATH="/usr/bin:/bin", API_TOKEN="p1ns", PIN="1")
    assert secrets.redact("debug /usr/bin:/bin p1ns 1") == "debug /usr/bin:/bin *** 1"


def test_variables_and_headers_are_taken_apart() -> None:
    url = "postgres://someuser:p%40ssword@db/x"
    secrets = variables(
        AUTH_HEADER="Bearer abcdefghij", DATABASE_URL=url, MOTTO="production server"
    )
    secrets.add_headers({"X-Key": "key=qwertzuiop; v=2", "Cookie": b"sid=cookie-value"})
    pair = base64.b64encode(b"alice-1:wonder-land").decode()
    secrets.add_headers({"Authorization": f"Basic {pair}"})
    secrets.add_headers({"Mcp-Method": "tools/call", "Accept": "application/json"})
    known = "abcdefghij someuser p@ssword p%40ssword qwertzuiop cookie-value alice-1 wonder-land"
    for secret in known.split():
        assert secrets.redact(f"<{secret}>") == "<***>", secret
    ordinary = "production tools/call server application/json Bearer Basic"
    assert secrets.redact(ordinary) == ordinary


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ('{"type": "robot", "key": {"parts": ["inner-one", "inner-two"]}}', "inner-one"),
        ('{"key": {"parts": ["inner-one", "inner-two"]}}', "inner-two"),
        ('[{"pat": "ghp_abcdefgh"}]', "ghp_abcdefgh"),
        (json.dumps({"private_key": "-----BEGIN-----\nline-of-key\n-----"}), "line-of-key"),
        ('{"pass": "x", "db_password": "p1ns"}', "p1ns"),
        ('{"dsn": "postgres://app-user:in-json-1@db/x"}', "in-json-1"),
        ('"just-a-string"', "just-a-string"),
        ("Server=db;User Id=app;Password=two words;Timeout=5", "two words"),
        ("host=db user=app password=libpq-word", "libpq-word"),
        ("redis.example:6379,password='in-list-1',ssl=True", "in-list-1"),
        ("AccountName=a;AccountKey=c29tZS1rZXk9PQ==;", "c29tZS1rZXk9PQ=="),
        ("-Dtrust.password=of-java-1 -Xmx1g", "of-java-1"),
        ("grant=a&code=in-form-1", "in-form-1"),
        ("someuser:word-behind", "word-behind"),
        ("someuser:word:with:colons", "word:with:colons"),
        ('{"broken": "in-broken-1', '{"broken": "in-broken-1'),
    ],
)
def test_the_parts_of_a_variable_are_known_on_their_own(value: str, known: str) -> None:
    assert variables(SETTINGS=value).redact(f"<{known}>") == "<***>"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('{"level": "debug", "n": 12345678, "ok": true, "none": null}', "debug 12345678 true null"),
        ("level=debug;retries=3", "level debug retries 3"),
        ("/usr/share/one:/usr/share/two", "/usr/share/two"),
        ("C:\\Program Files\\one", "\\Program Files\\one"),
        ("localhost:8080", "8080 localhost"),
        ("--max-old-space-size=4096", "4096 --max-old-space-size"),
    ],
)
def test_ordinary_parts_of_a_variable_are_not_masked(value: str, text: str) -> None:
    assert variables(SETTINGS=value).redact(text) == text


def test_a_bounded_number_of_parts_of_a_variable_is_known_and_telling_names_come_first() -> None:
    value = {f"n{number}": f"value-{number:05}" for number in range(9_000)}
    deep = "[" * 5_000 + "]" * 5_000
    secrets = Secrets()
    secrets.give_variables({"A": json.dumps({**value, "password": "last-word"}), "B": deep})
    assert secrets.redact("last-word value-00000") == "last-word value-00000"  # A is too long
    few = dict(list(value.items())[:500])
    secrets.give_variables({"C": json.dumps({**few, "password": "last-word"})})
    assert secrets.redact("last-word value-00000") == "*** ***"
    assert secrets.redact("value-00400") == "value-00400"
    assert int(repr(secrets).split()[0][1:]) <= MOST_PARTS + 3


def of_url(url: str) -> Secrets:
    secrets = Secrets()
    secrets.give_url(url)
    return secrets


@pytest.mark.parametrize("password", ["p/word-1", "p#word-1", "p?word-1", "p[word-1", "p@/word-1"])
def test_a_password_in_a_url_is_known_although_it_is_not_encoded(password: str) -> None:
    for port in ("", ":5432", ":x"):
        secrets = of_url(f"postgres://someuser:{password}@db.example{port}/x?key=of-query")
        assert secrets.redact(f"<{password}> someuser") == "<***> ***"
    assert of_url("https://example.com:99999/@path?key=of-query").redact("of-query @path") == (
        "*** @path"
    )
    url = "https://example.com:8080/a/"
    assert of_url(f"{url}@path/more").redact(url) == url


def test_the_password_of_a_proxy_without_a_scheme_is_known() -> None:
    secrets = of_url("//someuser:word-1@proxy.example:3128")
    pair = base64.b64encode(b"someuser:word-1").decode()
    assert secrets.redact(f"someuser, word-1, {pair}") == "***, ***, ***"


def test_a_bounded_number_of_sent_values_is_kept_and_the_given_ones_always() -> None:
    secrets = Secrets(["given-value"])
    for number in range(3 * MOST_SENT):
        secrets.add_headers({"Authorization": f"Bearer rotated-{number:05}", "X-Key": "steady-key"})
    assert secrets.redact("given-value steady-key rotated-00767") == "*** *** ***"
    assert secrets.redact("rotated-00001") == "rotated-00001"
    assert repr(secrets) == f"<{MOST_SENT + 1} secrets>"
    copy = pickle.loads(pickle.dumps(secrets))
    assert copy.redact("given-value") == "***"


def test_a_copy_knows_what_the_original_knows_and_no_more() -> None:
    """A copy also leaves out lines that are too short: an empty line would match everywhere."""
    secrets = Secrets()
    secrets.give("first-line\na\n\nthe-last")
    copy = pickle.loads(pickle.dumps(secrets))
    assert repr(copy) == repr(secrets) == "<3 secrets>"
    assert copy.redact("a first-line a the-last") == "a *** a ***"
    assert Http("https://a.example/?q=first-line%0A%0Athe-last").label == "https://a.example/?q=***"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_basic_credentials_are_read_in_either_encoding(encoding: str) -> None:
    secrets = Secrets()
    pair = "b\u00f6b:p\u00e4ssw\u00f6rd".encode(encoding)
    secrets.add_headers({"Authorization": f"Basic {base64.b64encode(pair).decode()}"})
    assert secrets.redact("it is p\u00e4ssw\u00f6rd") == "it is ***"


def test_a_value_that_is_encoded_is_known_without_its_escapes() -> None:
    secrets = Secrets()
    secrets.add_headers({"Cookie": "sid=s%3Aabc%2Bdef; b=%41%42"})
    assert secrets.redact("s:abc+def, s%3Aabc%2Bdef, AB") == "***, ***, AB"


def test_cookies_of_a_server_push_out_nothing_that_the_program_sends() -> None:
    secrets = Secrets()
    many = "; ".join(f"c{number}=w{number:06}" for number in range(MOST_SENT))
    for name in ("Cookie", "cookie"):
        secrets.add_headers({"Authorization": f"Bearer {TOKEN}", name: f"{name}=1; {many}"})
        assert secrets.redact(TOKEN) == "***"


def test_a_text_that_repeats_a_secret_takes_a_few_times_its_size() -> None:
    secrets, text = Secrets([TOKEN]), f"{TOKEN} " * 2_000 + "%41"
    secrets.mask(TOKEN)
    assert peak(lambda: secrets.mask(text)) < 6 * len(text)  # it took 14 times the size
    assert secrets.mask(text) == "*** " * 2_000 + "%41"


def problem(kind: Any, value: Any) -> pydantic.ValidationError:
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(kind).validate_python(value)
    return caught.value


def refuse(value: int) -> int:
    raise ValueError("too small")


def test_a_cause_that_is_too_long_to_be_read_is_not_kept() -> None:
    error = McpError("no")
    error.__cause__ = problem(dict[str, int], {"x" * MOST_QUOTED: ""})
    Secrets([TOKEN]).clean(error)
    assert error.__cause__ is None


def test_a_problem_is_told_without_a_part_of_a_secret_or_a_name_of_pydantic() -> None:
    cut = problem(dict[str, int], {"x" * 190 + TOKEN: ""})
    assert TOKEN[:4] not in Secrets([TOKEN]).mask(first_problem(cut))
    of_validator = problem(Annotated[int, pydantic.AfterValidator(refuse)], 1)
    assert first_problem(of_validator) == ": too small"


@pytest.mark.parametrize("place", ["cookies", "session"])
def test_what_is_received_pushes_nothing_sent_out(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    counted = count()

    def serve(request: Request) -> None:
        number, connection = next(counted), request.connection
        if place == "session":
            reply = {"jsonrpc": "2.0", "id": request.id, "result": {"protocolVersion": TOKEN}}
            connection.json(reply, headers={"Mcp-Session-Id": f"session-{number:05}"})
        else:
            head = b"HTTP/1.1 500 Oh\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
            body = f"bad {TOKEN}".encode()
            cookies = "".join(f"Set-Cookie: c{n}=v{number:04}-{n:04}\r\n" for n in range(49))
            connection.write(head % len(body) + cookies.encode() + b"\r\n" + body)

    with serving(serve) as peer:
        http = Http(peer.url, headers=lambda: {"Authorization": f"Bearer {TOKEN}"})
        for number in range(MOST_SENT - 20):
            http.secrets.add(f"filled-{number:05}")
        for _ in range(25 if place == "session" else 8):
            client = Client(http, mode="legacy", retry=None)
            assert TOKEN not in shown_by(client.open, caplog)
            client.close()
            caplog.clear()


# Escapes in texts of servers


ODD = "\u00fcml\u00e4ut-\u2603 \U0001f600 & <more>"

# Valid characters of a cookie or session id that get long when they are escaped.
SPECIAL = "/+=&<'`"


def texts(text: str, *, ends_cut: bool = False) -> list[str]:
    return [reading.text for reading in readings(text, ends_cut=ends_cut)]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("plain", []),
        (r"a\u0041\x42\U00000043\n\/\"\qd", ['aABC\n/"qd']),
        (r"\ud83d\ude00-\ud83d", ["\U0001f600-\ud83d"]),
        (r"\\u0041", [r"\u0041", "A"]),
        ("%2541", ["%41", "A"]),
        ("%5cu0041", [r"\u0041", "A"]),
        (r"\u002541", ["%41", "A"]),
        (r"\UFFFFFFFF \u12 \x1 \ ", ["\ufffd u12 x1  "]),
        ("a%41%c3%BC%ff%4", ["aA\u00fc\ufffd%4"]),
        ("\\", []),
        ("%", []),
    ],
)
def test_escapes_are_undone(text: str, read: list[str]) -> None:
    assert texts(text) == [text, *read]


@pytest.mark.parametrize("text", [r"x\u00f", "x\\", r"x\U0001f60", r"x\xf", "x%c", "x%"])
def test_a_part_of_an_escape_at_a_cut_is_left_out(text: str) -> None:
    assert texts(text, ends_cut=True)[1] == "x"


def test_each_character_has_its_place() -> None:
    text = r"a\u0041-\\\\u00fc-\"" + "%c3%bc-%41z"
    found = list(readings(text))
    assert len(found) > 1
    for reading in found:
        for position, character in enumerate(reading.text):
            start, end = reading.place(position), reading.place(position + 1)
            assert character in texts(text[start:end])
        assert reading.place(len(reading.text)) == len(text)


@pytest.mark.parametrize("form", [name for name in FORMS if "base64" not in name])
@pytest.mark.parametrize("secret", [PASSWORD, TOKEN, ODD])
def test_a_cut_within_an_escape_shows_no_part_of_a_secret(form: str, secret: str) -> None:
    written = FORMS[form](secret).strip("\"'").removeprefix('\\"').removesuffix("\\")
    secrets = Secrets([secret])
    beginning, end = (FORMS[form](part) for part in (secret[:4], secret[-4:]))
    for length in range(len(beginning), len(written)):
        assert secrets.redact(f"it was {written[:length]}", ends_cut=True) == "it was ***"
    for length in range(len(end), len(written)):
        assert secrets.redact(f"{written[-length:]} it was", starts_cut=True) == "*** it was"


ESCAPES = (
    "\\u{:04x}",
    "%{:02x}",
    "\\\\x{:02x}",
    "%25{:02x}",  # a URL in a URL
    "%5Cu{:04x}",  # JSON in a URL
    "\\u0025{:02x}",  # a URL in JSON
)


@pytest.mark.parametrize(
    "written",
    [
        *("".join(escape.format(ord(one)) for one in TOKEN) for escape in ESCAPES),
        TOKEN.replace("e", r"\u0065").replace("k", r"\x6b"),
    ],
)
def test_characters_that_need_no_escape_may_have_one(written: str) -> None:
    assert Secrets([TOKEN]).redact(f"<{written}>") == "<***>"


def test_a_blank_may_be_a_plus() -> None:
    assert Secrets(["two words+1"]).redact("<two+words%2b1>") == "<***>"


def test_values_that_a_server_sets_cost_no_more_than_their_length() -> None:
    secrets, begun = Secrets(), time.process_time()
    for number in range(20):
        secrets.add_headers({"Cookie": f"c{number}={SPECIAL * 2_000}"})
        assert secrets.redact(f"<{quote(SPECIAL * 2_000)}>") == "<***>"
    assert sum(map(len, secrets._all_forms())) < 10_000_000  # it was six times as long
    assert time.process_time() - begun < 10  # an earlier version took minutes


def test_a_text_of_one_letter_costs_no_more_than_its_length() -> None:
    secrets, begun = Secrets("a" * length for length in range(6, 206)), time.process_time()
    assert secrets.redact("a" * 100_000 + "b") == "***b"
    assert secrets.redact("a" * 100_000 + "b", ends_cut=True, starts_cut=True) == "***b"
    assert time.process_time() - begun < 5  # an earlier version took minutes


def test_many_beginnings_of_a_secret_before_a_cut_cost_little() -> None:
    secrets = Secrets("a" * 9_000 + str(number) for number in range(100))
    begun = time.process_time()
    shown = secrets.redact("a" * 8_000 + "b", ends_cut=True)
    assert time.process_time() - begun < 2  # an earlier version took a second for each secret
    assert shown.endswith("***")


def test_long_values_push_out_the_oldest_and_never_the_newest() -> None:
    secrets = Secrets()
    secrets.add("first-secret")
    secrets.add("a steady one")
    for number in range(4):
        secrets.add("a steady one")
        secrets.add(f"{number}" * 1_000_000)
    assert secrets.redact("first-secret a steady one 3333") == "first-secret *** 3333"
    assert secrets.redact("3" * 1_000_000) == "***"
    secrets.add("4" * 5_000_000)
    assert secrets.redact("4" * 5_000_000) == "***"


def test_what_is_sent_again_is_not_among_the_oldest() -> None:
    secrets = Secrets()
    for number in range(2 * MOST_SENT):
        secrets.add("client-secret-1", "secret")
        secrets.add(f"value-{number:05}")
    for number in range(MOST_SENT - 2):
        secrets.add(f"other-{number:05}")
    assert secrets.redact("client-secret-1") == "***"
