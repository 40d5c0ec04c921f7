"""Exercise 1 of s01_agent_loop: the line that ends a turn says how many tokens its last reply read and wrote."""
import re

import pytest

from fake_api import calls, reply, says

ECHO = calls(("bash", {"command": "echo hi"}))
CUT = reply([{"type": "text", "text": "It begins with"}], "max_tokens")


@pytest.mark.parametrize("last, stop", [(says("Done."), "end_turn"), (CUT, "max_tokens")])
def test_the_last_line_of_a_turn_tells_the_tokens_of_the_last_reply(start, last, stop):
    session = start("s01_agent_loop", [ECHO, last])
    [line] = [line for line in session.talk("go").splitlines() if stop in line]
    numbers = [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", line)]

    usage = session.api.usage[-1]
    written = usage["output_tokens"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    assert numbers == [read, written], f"{line!r} should tell {read} tokens read and {written} written"
