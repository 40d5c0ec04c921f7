"""Exercise 3 of s04_subagent: a budget of tokens for a child, and a word before it ends."""

from dataclasses import dataclass

import pytest

from fake_api import calls, reply, says

BUDGET = 3_000  # tokens that a child may read: less than three rounds with the file
GRASS = "grass " * 600  # about 900 tokens
FILE = ("read_file", {"path": "grass.txt"})
LOOK = ("glob", {"pattern": "*.txt"})
WRITE = ("bash", {"command": "echo ran > ran.txt"})

READ_TOKENS = [
    "input_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
]

# What a child replies.
READ = calls(LOOK, FILE, text="I read.")
READ_SILENTLY = calls(FILE)
THREE_ROUNDS = [READ] * 3
GO_ON = calls(WRITE, FILE, text="I want more.")
GREEN = says("Green.")

# What the parent says after its last child, and to the second prompt.
THE_END = [
    says("I see."),
    says("Still here."),
]

either_mode = pytest.mark.parametrize("agent_type", ["code", "fix"])


def task(agent_type="code"):
    """A reply of the parent that delegates."""
    arguments = {
        "prompt": "What colour is it?",
        "agent_type": agent_type,
        "description": "look",
    }
    return calls(("task", arguments))


@pytest.fixture
def talk(start, monkeypatch):
    """`talk(script)`: a session in a folder with a long file, after two prompts.

    budget: of a child; None for a variable that is not set.
    """

    def begin(script, budget=str(BUDGET)):
        monkeypatch.delenv("CHILD_BUDGET", raising=False)
        if budget is not None:
            monkeypatch.setenv("CHILD_BUDGET", budget)
        session = start("s04_subagent", [*script, *THE_END])
        file = session.folder / "grass.txt"
        file.write_text(GRASS)
        session.talk("go", "and now?")
        assert not session.api.refused
        assert "Still here." in session.seen
        return session

    return begin


def speaks_of_it(block):
    text = block.get("content") or block.get("text")
    return "budget" in str(text)


def told(session):
    """The numbers of the requests whose newest turn speaks of the budget."""
    numbers = []
    for number, request in enumerate(session.api.requests):
        newest = request["messages"][-1]["content"]
        if isinstance(newest, str):
            continue
        if any(speaks_of_it(block) for block in newest):
            numbers.append(number)
    return numbers


def read_until(session, number):
    """The tokens that the child had read before a request, as the server counted them."""
    total = 0
    for usage in session.api.usage[1:number]:
        for name in READ_TOKENS:
            total += usage[name]
    return total


@dataclass
class Answer:
    """What came back from a child."""

    words: str  # the first line
    reason: str  # the others
    is_error: bool


def answer(session, number):
    """The child's answer, as a request of the parent has it."""
    [result] = session.results(number)
    words, _, reason = result["content"].partition("\n")
    return Answer(words, reason, result["is_error"])


def line_of(session, agent_type):
    for line in session.seen.splitlines():
        if line.startswith(f"[{agent_type}]"):
            return line
    raise AssertionError(f"{agent_type} has no line")


# ---- A word in time ----------------------------------------------------------------------------


@either_mode
def test_over_its_budget_a_child_is_told_in_the_last_result_of_the_round(talk, agent_type):
    script = [task(agent_type), *THREE_ROUNDS, GREEN]
    session = talk(script)
    assert read_until(session, 3) < BUDGET
    assert read_until(session, 4) > BUDGET
    assert told(session) == [4]
    newest = session.sent(4)[-1]["content"]
    looked, read = newest  # two results and nothing beside them
    assert not speaks_of_it(looked)
    assert speaks_of_it(read)
    assert not read["is_error"]
    assert read["content"].startswith(GRASS), "what the tool returned is still there"


@either_mode
def test_a_child_that_listens_answers_as_ever(talk, agent_type):
    script = [task(agent_type), *THREE_ROUNDS, GREEN]
    session = talk(script)
    assert answer(session, 5) == Answer("Green.", "", False)
    assert ": done, 6 tools" in line_of(session, agent_type)


def test_a_child_that_answers_in_the_reply_that_is_over_is_not_told(talk):
    script = [task(), READ, READ, GREEN]
    session = talk(script)
    assert read_until(session, 4) > BUDGET
    assert told(session) == []
    assert answer(session, 4) == Answer("Green.", "", False)


# ---- One that does not listen ------------------------------------------------------------------


@either_mode
def test_what_it_calls_then_does_not_run_and_the_result_says_why(talk, agent_type):
    script = [task(agent_type), *THREE_ROUNDS, GO_ON]
    session = talk(script)
    assert len(session.api.requests) == 7, "no further request of the child"
    written = session.folder / "ran.txt"
    assert not written.exists(), "what it called last did not run"
    came_back = answer(session, 5)
    assert came_back.words == "I want more."
    assert "budget" in came_back.reason
    assert not came_back.is_error
    assert "budget" in line_of(session, agent_type), "the person sees why"


def test_the_last_words_of_a_child_may_be_older_than_its_last_reply(talk):
    silent = [READ_SILENTLY] * 3
    script = [task(), READ, *silent]
    session = talk(script)
    came_back = answer(session, 5)
    assert came_back.words == "I read."
    assert "budget" in came_back.reason


def test_a_child_that_never_spoke_has_no_summary(talk):
    silent = [READ_SILENTLY] * 4
    script = [task(), *silent]
    session = talk(script)
    came_back = answer(session, 5)
    assert came_back.words == "(no summary)"
    assert "budget" in came_back.reason


def test_an_answer_that_is_cut_off_says_that_it_was_cut_off(talk):
    block = {"type": "text", "text": "It is gr"}
    cut = reply([block], "max_tokens")
    script = [task(), *THREE_ROUNDS, cut]
    session = talk(script)
    assert answer(session, 5) == Answer("It is gr", "[max_tokens]", False)


# ---- Whose budget it is ------------------------------------------------------------------------


def test_the_parent_has_no_budget(talk):
    session = talk([READ] * 8)
    assert told(session) == []
    assert len(session.api.requests) == 10


def test_what_the_parent_read_is_not_the_childs(talk):
    parent = [READ] * 4
    script = [*parent, task(), READ, GREEN]
    session = talk(script)
    assert told(session) == []


def test_each_child_has_a_budget_of_its_own(talk):
    first = [task(), READ, READ, GREEN]
    second = [task(), *THREE_ROUNDS, GREEN]
    script = [*first, *second]
    session = talk(script)
    assert told(session) == [8], "the second child after three rounds, like any first"
    assert answer(session, 9) == Answer("Green.", "", False)


def test_a_second_child_is_stopped_like_the_first(talk):
    child = [task(), *THREE_ROUNDS, GO_ON]
    session = talk(child * 2)
    assert told(session) == [4, 5, 9, 10]
    assert len(session.api.requests) == 12
    written = session.folder / "ran.txt"
    assert not written.exists()


# ---- No budget ---------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["", None], ids=["empty", "not set"])
def test_without_a_budget_there_is_no_limit(talk, budget):
    child = [READ] * 6
    script = [task(), *child, GREEN]
    session = talk(script, budget)
    assert told(session) == []
    assert answer(session, 8) == Answer("Green.", "", False)
