"""Exercise 3 of s03_todo: a model that ends its turn while items are open is asked once to go on."""
import json

import pytest

from fake_api import calls, reply, says


def plan(read, write):
    return calls(("todo", {"items": [{"text": "read it", "status": read}, {"text": "write it", "status": write}]}))


OPEN, DONE = plan("completed", "pending"), plan("completed", "completed")


def test_the_model_is_asked_with_the_open_items_and_goes_on(start):
    session = start("s03_todo", [OPEN, says("That is all."), DONE, says("Now it is.")])
    seen = session.talk("go")
    assert len(session.api.requests) == 4 and not session.api.refused
    asked = session.sent(2)[-1]
    assert asked["role"] == "user" and "write it" in json.dumps(asked) and "read it" not in json.dumps(asked)
    assert session.sent(2)[-2]["content"][0]["text"] == "That is all.", "what the model said stays where it was"
    between = seen[seen.index("That is all.") + len("That is all."):seen.index("todo {", seen.index("That is all."))]
    assert "open" in between, "the person is told why the model goes on"


def test_it_is_asked_once_for_each_request_of_the_person(start):
    session = start("s03_todo", [OPEN, says("One."), says("Two."), says("Three."), says("Four.")])
    seen = session.talk("go", "and now?")
    assert len(session.api.requests) == 5 and not session.api.refused
    assert [number for number in range(5) if session.sent(number)[-1]["content"] == "and now?"] == [3]
    assert "s03 >> " in seen[seen.index("Two."):seen.index("Three.")], "after the second end the person is asked"


@pytest.mark.parametrize("script", [
    [DONE, says("Done.")],
    [says("Hello.")],
    [plan("completed", "finished"), says("Oh.")],
], ids=["all done", "no plan", "a plan that was refused"])
def test_nobody_is_asked_when_nothing_is_open(start, script):
    session = start("s03_todo", script)
    session.talk("go")
    assert len(session.api.requests) == len(script) and not session.api.refused


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_only_an_end_of_turn_is_asked_about(start, stop):
    session = start("s03_todo", [OPEN, reply([{"type": "text", "text": "I"}], stop)])
    session.talk("go")
    assert len(session.api.requests) == 2 and not session.api.refused
