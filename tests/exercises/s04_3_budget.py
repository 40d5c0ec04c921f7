"""Exercise 3 of s04_subagent: a budget of tokens for a child, and a word in time before it ends."""
from fake_api import calls, says

BUDGET = 3_000  # tokens that a child may read
GRASS = "grass " * 600  # about 900 tokens
READ = calls(("read_file", {"path": "grass.txt"}), text="I read.")
TASK = calls(("task", {"prompt": "What colour is it?", "agent_type": "code", "description": "the colour"}))


def talk(start, *script):
    """A session in which the child's third request takes it over its budget, and what the person saw."""
    session = start("s04_subagent", script, CHILD_BUDGET=str(BUDGET))
    (session.folder / "grass.txt").write_text(GRASS)
    seen = session.talk("go", "and now?")
    assert not session.api.refused
    return session, seen


def told(request):
    """Whether the newest result of a request speaks of the budget."""
    newest = request["messages"][-1]["content"]
    return isinstance(newest, list) and "budget" in newest[-1]["content"]


def read_until(session, number):
    """The tokens that the child has read before a request, as the server counted them."""
    return sum(count for usage in session.api.usage[1:number] for name, count in usage.items()
               if name.endswith("input_tokens"))


def test_over_its_budget_a_child_is_told_and_its_answer_comes_back(start):
    session, _ = talk(start, TASK, READ, READ, READ, says("Green."), says("I see."), says("Still here."))
    assert read_until(session, 3) < BUDGET < read_until(session, 4)
    assert [told(request) for request in session.api.requests] == [False, False, False, False, True, False, False]
    assert session.results(4)[-1]["content"].startswith(GRASS), "what the tool returned is still there"
    assert session.results(5)[0]["content"] == "Green."


def test_a_child_that_does_not_listen_is_stopped_and_the_result_says_why(start):
    more = calls(("bash", {"command": "echo ran > ran.txt"}), text="I want more.")
    session, seen = talk(start, TASK, READ, READ, READ, more, says("I see."), says("Still here."))
    assert len(session.api.requests) == 7, "no further request for the child"
    assert not (session.folder / "ran.txt").exists(), "what it called last did not run"
    [result] = session.results(5)
    assert result["content"].startswith("I want more.\n") and "budget" in result["content"]
    [line] = [line for line in seen.splitlines() if line.startswith("[code]")]
    assert "budget" in line, "the person sees why"


def test_the_parent_has_no_budget(start):
    session, seen = talk(start, *[READ] * 8, says("Green."), says("Still here."))
    assert "Green." in seen and not any(told(request) for request in session.api.requests)


def test_each_child_has_its_own_budget(start):
    session, _ = talk(start, TASK, READ, READ, says("Green."), TASK, READ, READ, says("Green."), says("I see."))
    assert not any(told(request) for request in session.api.requests)
