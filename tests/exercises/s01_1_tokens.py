"""Exercise 1 of s01_agent_loop: the line that ends a turn tells the tokens of its last reply."""

import pytest

import fake_api
from fake_api import calls, reply, says

LONG_QUESTION = "a long question " * 500  # over 1,000 tokens
ECHO = calls(("bash", {"command": "echo hi"}))
DONE = says("Done.")
HALF_A_TEXT = {
    "type": "text",
    "text": "It begins with",
}
HALF_A_CALL = {
    "type": "tool_use",
    "name": "bash",
    "input": {},
}
LAST_REPLIES = {
    "words": DONE,
    "long words": says("word " * 5_000),
    "words cut off": reply([HALF_A_TEXT], "max_tokens"),
    "a call cut off": reply([HALF_A_CALL], "max_tokens"),
    "a refusal": reply([], "refusal"),
    "nothing": reply([], "end_turn"),
}


def ending(usage, stop_reason="end_turn"):
    """The line that ends a turn, from the `usage` of its last reply."""
    read = usage["input_tokens"]
    read += usage.get("cache_read_input_tokens", 0)
    read += usage.get("cache_creation_input_tokens", 0)
    written = usage["output_tokens"]
    return f"[{stop_reason}] {read:,} read, {written:,} written"


def endings(seen):
    """The lines that end a turn, among all that a person saw."""
    lines = []
    for line in seen.splitlines():
        if line.startswith("["):
            lines.append(line)
    return lines


@pytest.mark.parametrize(
    "last",
    LAST_REPLIES.values(),
    ids=LAST_REPLIES,
)
def test_the_line_that_ends_a_turn_tells_the_tokens_of_the_last_reply(start, last):
    session = start("s01_agent_loop", [ECHO, last])
    seen = session.talk(LONG_QUESTION)
    first_usage, last_usage = session.api.usage
    assert last_usage["cache_read_input_tokens"] > 0
    wanted = ending(last_usage, last["stop_reason"])
    assert endings(seen) == [wanted]


def test_each_turn_tells_its_own(start):
    script = [DONE, ECHO, DONE]
    session = start("s01_agent_loop", script)
    seen = session.talk("hi", LONG_QUESTION)
    first_turn, _, second_turn = session.api.usage
    wanted = [ending(first_turn), ending(second_turn)]
    assert endings(seen) == wanted


def test_a_server_without_a_cache_tells_only_its_input(start, monkeypatch):
    measure = fake_api.measure

    def measure_without_cache(request, content, cache):
        usage = measure(request, content, cache)
        read = usage.pop("cache_read_input_tokens")
        stored = usage.pop("cache_creation_input_tokens")
        usage["input_tokens"] += read + stored
        return usage

    monkeypatch.setattr(fake_api, "measure", measure_without_cache)
    session = start("s01_agent_loop", [ECHO, DONE])
    seen = session.talk(LONG_QUESTION)
    _, last_usage = session.api.usage
    wanted = ending(last_usage)
    assert endings(seen) == [wanted]
