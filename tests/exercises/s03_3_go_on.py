"""Exercise 3 of s03_todo: a model that ends its turn while items are open is asked once to go on.

In reading order: what the tests share, when the model is asked, when it is not.
"""

import json

import pytest

from fake_api import Status, calls, reply, says


def plan(mend, write):
    """The model writes its plan, with the statuses of its last two items."""
    items = [
        {"text": "read it", "status": "completed"},
        {"text": "mend it", "status": mend},
        {"text": "write it", "status": write},
    ]
    return calls(("todo", {"items": items}))


OPEN = plan("in_progress", "pending")
DONE = plan("completed", "completed")
WORK = calls(("glob", {"pattern": "*"}))
BROKEN = Status(400)  # the API refuses, and so the turn is over


@pytest.fixture
def play(start):
    """A session that plays these replies; one that asks on and on after them is stopped."""

    def play(*script):
        the_end = [BROKEN] * 5
        return start(
            "s03_todo",
            [*script, *the_end],
        )

    return play


def assert_requests(session, number):
    assert len(session.api.requests) == number
    assert not session.api.refused


def assert_asked(message):
    """The message asks the model to go on: it names what is open, and nothing else."""
    assert message["role"] == "user"
    asked = json.dumps(message)
    assert "mend it" in asked, "an item in progress is open"
    assert "write it" in asked, "a pending item is open"
    assert "read it" not in asked, "this one is completed"


# ---- When it is asked ------------------------------------------------------------------


def test_the_model_is_asked_with_the_open_items_and_goes_on(play):
    session = play(
        OPEN,
        says("That is all."),
        DONE,
        says("Now it is."),
    )
    session.talk("go")
    assert_requests(session, 4)
    said, asked = session.sent(2)[-2:]
    words = {"type": "text", "text": "That is all."}
    assert said["content"] == [words], "what it said stays"
    assert_asked(asked)


def test_the_person_is_told(play):
    session = play(
        OPEN,
        says("That is all."),
        DONE,
        says("Now it is."),
    )
    seen = session.talk("go")
    after = seen.partition("That is all.")[2]
    between = after.partition("todo {")[0]
    assert "open" in between, "a line with this word, before the model goes on"


def test_a_model_that_says_nothing_is_asked_too(play):
    session = play(
        OPEN,
        reply([]),
        DONE,
        says("Now it is."),
    )
    session.talk("go")
    assert_requests(session, 4)
    before = session.sent(1)
    *kept, asked = session.sent(2)
    assert kept == before, "what was there stays as it was"
    assert_asked(asked)


def test_it_is_asked_once_for_each_thing_that_the_person_types(play):
    session = play(
        OPEN,
        says("One."),
        says("Two."),
        says("Three."),
        says("Four."),
    )
    session.talk("go", "and now?")
    assert_requests(session, 5)
    typed = session.sent(3)[-1]
    assert typed["content"] == "and now?", "after the second end it is the person's turn"
    asked = session.sent(4)[-1]
    assert_asked(asked)


def test_a_turn_that_broke_off_does_not_count_for_the_next_one(play):
    session = play(
        OPEN,
        says("One."),
        BROKEN,
        says("Two."),
        says("Three."),
    )
    session.talk("go", "and now?")
    assert_requests(session, 5)
    asked = session.sent(4)[-1]
    assert_asked(asked)


# ---- When it is not asked --------------------------------------------------------------


def test_it_is_not_asked_again_after_work_in_between(play):
    session = play(
        OPEN,
        says("One."),
        WORK,
        OPEN,
        says("Two."),
    )
    session.talk("go")
    assert_requests(session, 5)


def test_a_reply_with_a_call_is_run_whatever_its_stop_reason(play):
    some_servers = reply(WORK["content"], "end_turn")
    session = play(
        OPEN,
        some_servers,
        DONE,
        says("Done."),
    )
    session.talk("go")
    assert_requests(session, 4)
    last_turn = session.sent(2)[-1]
    types = [block["type"] for block in last_turn["content"]]
    assert types == ["tool_result"], "nobody is asked to go on"
    result = last_turn["content"][0]
    assert result["content"] == "(nothing found)"


def test_it_is_not_asked_when_all_is_completed(play):
    session = play(DONE, says("Done."))
    session.talk("go")
    assert_requests(session, 2)


def test_it_is_not_asked_without_a_plan(play):
    session = play(says("Hello."))
    session.talk("go")
    assert_requests(session, 1)


def test_it_is_not_asked_about_a_plan_that_was_refused(play):
    refused = plan("completed", "finished")
    session = play(refused, says("Oh."))
    session.talk("go")
    assert_requests(session, 2)


@pytest.mark.parametrize(
    "stop_reason",
    ["max_tokens", "refusal", "model_context_window_exceeded"],
)
def test_a_reply_that_was_cut_off_or_refused_ends_the_turn(play, stop_reason):
    words = {"type": "text", "text": "I"}
    session = play(
        OPEN,
        reply([words], stop_reason),
    )
    session.talk("go")
    assert_requests(session, 2)
