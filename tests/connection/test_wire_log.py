"""The frames that a dump of a client shows: the newest, and of each its beginning."""

from __future__ import annotations

import sys

import syncmcp
from syncmcp import Stdio
from syncmcp._connection import wire_log
from tests.observe.test_diagnosis import dumped
from tests.support.scripts import OLD
from tests.support.stage import Stage


def test_only_the_newest_frames_are_kept_and_of_each_its_beginning() -> None:
    stage = Stage()
    with syncmcp.connect(stage.server) as client:
        for _ in range(wire_log.FRAMES):
            client.call_tool("echo", {"text": "x" * 5000})
        frames = dumped(client)["frames"]
    assert len(frames) == wire_log.FRAMES
    assert all(len(frame["text"]) < 2 * wire_log.KEPT_BYTES for frame in frames)
    assert all(frame["bytes"] > 5000 for frame in frames)
    assert frames[-1]["text"].endswith("bytes more")
    assert [frame["direction"] for frame in frames[-2:]] == ["sent", "received"]


# The frame of its answer is cut within the secret.
ANSWERS_LONG = f"""
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {{"jsonrpc": "2.0", "id": asked["id"], "result": {{"a": ""}}}}
    if asked["method"] == "initialize":
        answer["result"] = {{
            "protocolVersion": "{OLD}", "capabilities": {{}},
            "serverInfo": {{"name": "a", "version": "1"}},
        }}
    else:
        before = json.dumps(answer).index('"a": ') + 6
        answer["result"]["a"] = "x" * ({wire_log.KEPT_BYTES} - 12 - before) + os.environ["WHAT"]
    print(json.dumps(answer), flush=True)
"""


def test_a_frame_that_is_kept_in_part_shows_no_part_of_a_secret() -> None:
    secret = "environment-secret-0123456789"
    server = Stdio(sys.executable, "-c", ANSWERS_LONG, env={"WHAT": secret})
    with syncmcp.Client(server, mode="legacy") as client:
        client.ping()
        shown = client.dump().facts["frames"][-1]["text"]
    assert "xxx*** ... " in shown
    assert secret[:4] not in shown
