"""Exercise 3 of s01_agent_loop: /save FILE and /load FILE carry a session over to another one."""
import json

import pytest

from fake_api import calls, says

OLD = [{"role": "user", "content": "My cat is called Äffle 🐱."}, {"role": "assistant", "content": "A fine name."}]


def lines_after(seen, number):
    """What was printed after the person's input of this number, counted from 1."""
    return seen.split("s01 >> ")[number].splitlines()


def test_a_saved_session_goes_on_where_it_ended(start):
    first = start("s01_agent_loop", [calls(("bash", {"command": "echo Äffle"}), text="I look 🐱."), says("Done.")])
    first.talk("go", "/save session.json", "and now?")
    history = first.sent()[:-1]
    assert len(history) == 4 and len(first.api.requests) == 3, "a command of the prompt is no message"

    second = start("s01_agent_loop", [says("Again."), says("Still here.")])
    second.talk("something else", "/load session.json", "go on")
    assert second.sent() == [*history, {"role": "user", "content": "go on"}]
    assert len(second.api.requests) == 2 and not second.api.refused


def test_the_file_is_plain_json(start):
    session = start("s01_agent_loop", [says("Hello.")])
    (session.folder / "old.json").write_text(json.dumps(OLD), encoding="utf-8")
    session.talk("/load old.json", "/save new.json", "What is my cat called?")
    assert session.sent()[:-1] == OLD and not session.api.refused
    assert json.loads((session.folder / "new.json").read_text(encoding="utf-8")) == OLD


@pytest.mark.parametrize("text", [None, "no JSON", "{}", "5", "[1, 2]", '[{"role": "user"}]'],
                         ids=["no file", "no JSON", "no list", "a number", "no messages", "half a message"])
def test_what_is_no_session_costs_one_line_and_leaves_the_list_as_it_is(start, text):
    session = start("s01_agent_loop", [says("Hello."), says("Still here.")])
    if text is not None:
        (session.folder / "bad.json").write_text(text, encoding="utf-8")
    seen = session.talk("hi", "/load bad.json", "and now?")
    assert len(lines_after(seen, 2)) == 1, "the person is told, in one line"
    assert [message["role"] for message in session.sent()] == ["user", "assistant", "user"]
    assert session.sent()[0]["content"] == "hi" and session.sent()[-1]["content"] == "and now?"
    assert not session.api.refused


def test_a_file_that_cannot_be_written_costs_one_line(start):
    session = start("s01_agent_loop", [says("Hello."), says("Still here.")])
    seen = session.talk("hi", "/save no/such/folder/x.json", "and now?")
    assert len(lines_after(seen, 2)) == 1 and "Still here." in seen
    assert len(session.sent()) == 3 and not session.api.refused
