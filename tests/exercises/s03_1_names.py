"""Exercise 1 of s03_todo: the reminder names the items that are open."""

import re

from fake_api import calls, says


def plan(read, mend, note):
    """The model writes its plan, with a status for each of three items."""
    items = [
        {"text": "read the code", "status": read},
        {"text": "mend the till", "status": mend},
        {"text": "write NOTES.md", "status": note},
    ]
    return calls(("todo", {"items": items}))


GLOB = ("glob", {"pattern": "*"})
WORK = calls(GLOB)
FIRST = plan("completed", "in_progress", "pending")
SECOND = plan("completed", "completed", "in_progress")
DONE = plan("completed", "completed", "completed")


def last_text(session, number=-1):
    """The text of the last result in a request."""
    last = session.results(number)[-1]
    return last["content"]


def reminder_in(text):
    """What stands between the marks, of which there must be one pair."""
    found = re.findall(
        r"<reminder>(.*?)</reminder>",
        text,
        re.DOTALL,
    )
    assert len(found) == 1, text
    return found[0]


def test_the_reminder_names_each_open_item_and_no_other(start):
    script = [
        FIRST,
        WORK,
        WORK,
        WORK,
        says("Done."),
    ]
    session = start("s03_todo", script)
    session.talk("go")
    early = last_text(session, 3)
    assert "<reminder>" not in early
    late = last_text(session, 4)
    reminder = reminder_in(late)
    assert "mend the till" in reminder, "an item in progress is open"
    assert "write NOTES.md" in reminder, "a pending item is open"
    assert "read the code" not in reminder, "this one is completed"
    assert not session.api.refused


def test_it_names_what_is_open_at_that_moment(start):
    script = [
        FIRST,
        WORK,
        WORK,
        WORK,
        SECOND,
        WORK,
        WORK,
        WORK,
        WORK,
        says("Done."),
    ]
    session = start("s03_todo", script)
    session.talk("go")
    for number in (8, 9):  # the third round since the second plan, and the fourth
        text = last_text(session, number)
        reminder = reminder_in(text)
        assert "write NOTES.md" in reminder
        assert "mend the till" not in reminder, "it was completed in the meantime"
    assert not session.api.refused


def test_it_ends_the_last_result_and_leaves_the_others_alone(start):
    fly = ("fly", {})
    script = [
        FIRST,
        WORK,
        WORK,
        calls(GLOB, fly),
        says("Done."),
    ]
    session = start("s03_todo", script)
    session.talk("go")
    first, last = session.results()
    assert first["content"] == "(nothing found)"
    text = last["content"]
    reminder_in(text)
    assert text.startswith("Error: "), "the result comes first, then the reminder"
    assert text.rstrip().endswith("</reminder>")


def test_when_all_is_completed_there_is_none(start):
    script = [
        DONE,
        WORK,
        WORK,
        WORK,
        says("Done."),
    ]
    session = start("s03_todo", script)
    session.talk("go")
    assert "<reminder>" not in last_text(session)


def test_without_a_plan_there_is_none(start):
    script = [
        WORK,
        WORK,
        WORK,
        WORK,
        says("Done."),
    ]
    session = start("s03_todo", script)
    session.talk("go")
    assert "<reminder>" not in last_text(session)
