"""Exercise 2 of s01_agent_loop: the harness asks the person before a command runs."""
from fake_api import calls, says


def make(name):
    return "bash", {"command": f"echo made > {name}"}


def test_y_runs_the_command(start):
    session = start("s01_agent_loop", [calls(make("file")), says("Done.")])
    session.talk("go", "y", "and now?")
    assert (session.folder / "file").exists()
    assert not session.results(1)[0]["is_error"]
    assert session.sent()[-1]["content"] == "and now?" and not session.api.refused


def test_any_other_answer_stops_it_and_goes_to_the_model(start):
    session = start("s01_agent_loop", [calls(make("file")), says("I see.")])
    seen = session.talk("go", "no, call it notes.txt", "and now?")
    assert not (session.folder / "file").exists()
    [result] = session.results(1)
    assert result["is_error"] and "call it notes.txt" in result["content"]
    assert "I see." in seen, "the turn goes on: the model may try something else"
    assert session.sent()[-1]["content"] == "and now?" and not session.api.refused


def test_each_call_is_asked_for_and_answered_by_itself(start):
    session = start("s01_agent_loop", [calls(make("one"), make("two"), make("three")), says("Done.")])
    session.talk("go", "y", "n", "y")
    assert [(session.folder / name).exists() for name in ("one", "two", "three")] == [True, False, True]
    assert [result["is_error"] for result in session.results()] == [False, True, False]


def test_without_an_answer_nothing_runs(start):
    session = start("s01_agent_loop", [calls(make("file")), says("Done.")])
    session.talk("go")  # the input ends at the question
    assert session.api.requests and not (session.folder / "file").exists()
    session.talk("go", "")
    assert not (session.folder / "file").exists() and not session.api.refused
