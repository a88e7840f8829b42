"""A secret is found whatever escapes a server writes, at a cost that the server cannot raise."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest

from syncmcp._base.escapes import readings
from syncmcp._base.secrets import MOST_SENT, Secrets
from tests.base.test_secrets import FORMS, PASSWORD, TOKEN

ODD = "\u00fcml\u00e4ut-\u2603 \U0001f600 & <more>"

# What a server may set as a cookie or a session id, and each escape makes long.
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


@pytest.mark.parametrize(
    "written",
    [
        "".join(f"\\u{ord(one):04x}" for one in TOKEN),
        "".join(f"%{ord(one):02x}" for one in TOKEN),
        "".join(f"\\\\x{ord(one):02x}" for one in TOKEN),
        "".join(f"%25{ord(one):02x}" for one in TOKEN),  # a URL in a URL
        "".join(f"%5Cu{ord(one):04x}" for one in TOKEN),  # JSON in a URL
        "".join(f"\\u0025{ord(one):02x}" for one in TOKEN),  # a URL in JSON
        TOKEN.replace("e", r"\u0065").replace("k", r"\x6b"),
    ],
)
def test_characters_that_need_no_escape_may_have_one(written: str) -> None:
    assert Secrets([TOKEN]).redact(f"<{written}>") == "<***>"


def test_a_blank_may_be_a_plus() -> None:
    assert Secrets(["two words+1"]).redact("<two+words%2b1>") == "<***>"


def test_values_that_a_server_sets_cost_no_more_than_their_length() -> None:
    secrets = Secrets()
    begun = time.process_time()
    for number in range(20):
        secrets.add_headers({"Cookie": f"c{number}={SPECIAL * 2_000}"})
        assert secrets.redact(f"<{quote(SPECIAL * 2_000)}>") == "<***>"
    assert sum(map(len, secrets._all_forms())) < 10_000_000  # it was six times as much
    assert time.process_time() - begun < 10  # it took minutes


def test_a_text_of_one_letter_costs_no_more_than_its_length() -> None:
    secrets = Secrets("a" * length for length in range(6, 206))
    begun = time.process_time()
    assert secrets.redact("a" * 100_000 + "b") == "***b"
    assert secrets.redact("a" * 100_000 + "b", ends_cut=True, starts_cut=True) == "***b"
    assert time.process_time() - begun < 5  # it took minutes


def test_many_beginnings_of_a_secret_before_a_cut_cost_little() -> None:
    secrets = Secrets("a" * 9_000 + str(number) for number in range(100))
    begun = time.process_time()
    shown = secrets.redact("a" * 8_000 + "b", ends_cut=True)
    assert time.process_time() - begun < 2  # it took a second for each of them
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
