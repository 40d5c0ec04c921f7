"""Exercise 2 of s03_todo: /todo shows the plan, and /todo TEXT puts an item on it."""
import json

from fake_api import calls, says


def plan(*items):
    return calls(("todo", {"items": [{"text": text, "status": status} for text, status in items]}))


DONE = plan(("read", "completed"))
WORK = calls(("glob", {"pattern": "*"}))


def printed(seen, number):
    """What was printed after the person's input of this number, counted from 1."""
    return seen.split("s03 >> ")[number]


def test_the_plan_is_shown_and_the_model_is_not_asked(start):
    session = start("s03_todo", [plan(("read", "completed"), ("write", "in_progress")), says("Well?")])
    seen = session.talk("/todo", "go", "/todo", "and now?")
    assert "Error" not in printed(seen, 1) and "(0/0 completed)" in printed(seen, 1)
    assert printed(seen, 3) == "[x] read\n[>] write\n(1/2 completed)\n"
    assert len(session.api.requests) == 3 and "/todo" not in json.dumps(session.sent())


def test_an_item_of_the_person_is_shown_and_the_model_hears_of_it(start):
    session = start("s03_todo", [DONE, says("Well?"), says("I will.")])
    seen = session.talk("go", "/todo feed the cat", "go on", "and now?")
    assert "[x] read\n[ ] feed the cat\n(1/2 completed)\n" in printed(seen, 2)
    assert len(session.api.requests) == 4, "it goes along with the person's next words"
    assert "feed the cat" not in json.dumps(session.sent(1))
    assert json.dumps(session.sent(2)).count("feed the cat") == 1
    assert json.dumps(session.sent(3)).count("feed the cat") == 1, "the model is told once"
    assert not session.api.refused


def test_the_words_of_the_person_stay_as_they_are(start):
    session = start("s03_todo", [DONE, says("Well?"), says("I will.")])
    session.talk("go", "/todo feed the cat", "go on")
    assert "go on" in json.dumps(session.sent()[-1]) and session.sent()[0]["content"] == "go"


def test_an_item_of_the_person_is_one_that_the_model_is_reminded_of(start):
    session = start("s03_todo", [DONE, says("Well?"), WORK, WORK, WORK, says("Done.")])
    session.talk("go", "/todo feed the cat", "go on")
    assert "<reminder>" in session.results()[-1]["content"]


def test_a_full_list_costs_one_line_and_stays_as_it_is(start):
    session = start("s03_todo", [plan(*[(f"step {n}", "completed") for n in range(20)]), says("Well?"), says("Yes.")])
    seen = session.talk("go", "/todo one more", "/todo", "and now?")
    assert len(printed(seen, 2).splitlines()) == 1 and "20" in printed(seen, 2)
    assert "(20/20 completed)" in printed(seen, 3) and "one more" not in json.dumps(session.sent())
    assert not session.api.refused
