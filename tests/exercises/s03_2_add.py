"""Exercise 2 of s03_todo: /todo shows the plan, and /todo TEXT puts an item on it.

In reading order: what the tests share, /todo alone, /todo with a text.
"""

import json

from fake_api import calls, says


def plan(*items):
    """The model writes its plan."""
    return calls(("todo", {"items": list(items)}))


READ = {"text": "read", "status": "completed"}
WRITE = {"text": "write", "status": "in_progress"}
WORK = calls(("glob", {"pattern": "*"}))
ANSWER = says("Well?")

TWO = "[x] read\n[ ] feed the cat\n(1/2 completed)\n"  # as the person sees it


def printed(seen, number):
    """What was printed after the person's input of this number, counted from 1."""
    after_prompts = seen.split("s03 >> ")
    return after_prompts[number]


def count(words, session, number=-1):
    """How often the words stand in a request."""
    sent = session.sent(number)
    return json.dumps(sent).count(words)


def typed(session):
    """Each text of the user's in the last request, whole."""
    texts = []
    for message in session.sent():
        content = message["content"]
        if message["role"] != "user":
            continue
        if isinstance(content, str):
            texts.append(content)
            continue
        for block in content:
            if block["type"] == "text":
                texts.append(block["text"])
    return texts


# ---- /todo alone -----------------------------------------------------------------------


def test_the_plan_is_shown_and_the_model_is_not_asked(start):
    script = [
        plan(READ, WRITE),
        ANSWER,
        ANSWER,
    ]
    session = start("s03_todo", script)
    seen = session.talk("go", "/todo", "and now?")
    shown = printed(seen, 2)
    assert shown == "[x] read\n[>] write\n(1/2 completed)\n"
    assert len(session.api.requests) == 3
    assert count("/todo", session) == 0, "it is for the harness, not for the model"


def test_an_empty_plan_is_shown_too(start):
    session = start("s03_todo", [])
    seen = session.talk("/todo")
    shown = printed(seen, 1)
    assert shown == "(0/0 completed)\n"
    assert session.api.requests == []


def test_what_only_begins_like_it_goes_to_the_model(start):
    script = [
        ANSWER,
        ANSWER,
    ]
    session = start("s03_todo", script)
    session.talk("/todos", "/todolist of mine")
    assert typed(session) == ["/todos", "/todolist of mine"]


# ---- /todo with a text -----------------------------------------------------------------


def test_an_item_is_put_at_the_end_and_shown(start):
    script = [
        plan(READ),
        ANSWER,
    ]
    session = start("s03_todo", script)
    seen = session.talk("go", "/todo feed the cat", "/todo")
    assert TWO in printed(seen, 2)
    assert TWO in printed(seen, 3)
    assert len(session.api.requests) == 2, "no request is made for it"


def test_the_model_is_told_once_with_the_next_words(start):
    script = [
        plan(READ),
        ANSWER,
        ANSWER,
        ANSWER,
    ]
    session = start("s03_todo", script)
    session.talk(
        "go",
        "/todo feed the cat",
        "go on",
        "and now?",
    )
    for number in (2, 3):
        assert count("feed the cat", session, number) == 1
    assert not session.api.refused


def test_it_is_told_of_each_of_several_items(start):
    script = [
        ANSWER,
        ANSWER,
    ]
    session = start("s03_todo", script)
    session.talk(
        "/todo feed the cat",
        "/todo water the fern",
        "go",
        "and now?",
    )
    for number in (0, 1):
        assert count("feed the cat", session, number) == 1
        assert count("water the fern", session, number) == 1
    assert not session.api.refused


def test_the_words_of_the_person_stay_as_they_were_typed(start):
    script = [
        plan(READ),
        ANSWER,
        ANSWER,
    ]
    session = start("s03_todo", script)
    session.talk("go", "/todo feed the cat", "go on")
    texts = typed(session)
    assert texts[0] == "go"
    assert "go on" in texts, "in a message or a text block of their own"


def test_what_the_model_wrote_stays_as_it_was(start):
    script = [
        plan(READ),
        ANSWER,
        ANSWER,
    ]
    session = start("s03_todo", script)
    session.talk("go", "/todo feed the cat", "go on")
    call = session.sent()[1]["content"][0]
    assert call["input"] == {"items": [READ]}, "PLAN.items is this very list"


def test_the_model_is_reminded_of_it(start):
    script = [
        plan(READ),
        ANSWER,
        WORK,
        WORK,
        WORK,
        ANSWER,
    ]
    session = start("s03_todo", script)
    session.talk("go", "/todo feed the cat", "go on")
    last = session.results()[-1]
    assert "<reminder>" in last["content"], "the item is pending"


def test_a_full_plan_costs_one_line_and_stays_as_it_is(start):
    full = [READ] * 20
    script = [
        plan(*full),
        ANSWER,
        ANSWER,
    ]
    session = start("s03_todo", script)
    seen = session.talk(
        "go",
        "/todo one more",
        "/todo",
        "and now?",
    )
    said = printed(seen, 2)
    assert len(said.splitlines()) == 1
    assert "20" in said
    assert "(20/20 completed)" in printed(seen, 3)
    assert count("one more", session) == 0, "what was not taken is not told"
    assert not session.api.refused
