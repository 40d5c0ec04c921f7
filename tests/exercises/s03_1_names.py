"""Exercise 1 of s03_todo: the reminder names the items that are open."""
import re

from fake_api import calls, says

PLAN = ("todo", {"items": [{"text": "read the code", "status": "completed"},
                           {"text": "mend the till", "status": "in_progress"},
                           {"text": "write NOTES.md", "status": "pending"}]})
WORK = calls(("glob", {"pattern": "*"}))


def test_the_reminder_names_each_open_item_and_no_other(start):
    session = start("s03_todo", [calls(PLAN), WORK, WORK, WORK, says("Done.")])
    session.talk("go")
    early, last = session.results(3)[-1]["content"], session.results(4)[-1]["content"]
    assert "<reminder>" not in early
    [reminder] = re.findall(r"<reminder>(.*)</reminder>", last, re.S)
    assert "mend the till" in reminder and "write NOTES.md" in reminder
    assert "read the code" not in reminder
    assert "reminder" not in session.seen, "it is for the model; the person has seen the list"
    assert not session.api.refused
