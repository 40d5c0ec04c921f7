"""Exercise 2 of s01_agent_loop: the harness asks the person before a call runs."""

import builtins
import os

import pytest

from fake_api import calls, says

CTRL_C = "<ctrl-c>"  # typed by a test: the person presses Ctrl-C
TYPING = "<typing>"  # printed when the script waits for the person


@pytest.fixture
def ask(start, monkeypatch):
    """`ask(call, ...)`: a session in which the model asks for these calls, then says "I see."."""
    read_line = builtins.input

    def type_a_line(prompt=""):
        line = read_line(f"{prompt}{TYPING}")
        if line == CTRL_C:
            raise KeyboardInterrupt
        return line

    monkeypatch.setattr(builtins, "input", type_a_line)

    def begin(*tools):
        script = [
            calls(*tools),
            says("I see."),
            says("Bye."),
        ]
        return start("s01_agent_loop", script)

    return begin


def make(name):
    return "bash", {"command": f"echo {name} is made && echo made > {name}"}


FILE = make("file")
ONE = make("one")
TWO = make("two")
THREE = make("three")


def made(session):
    """The names of the files that were made."""
    return sorted(os.listdir(session.folder))


def answers(session):
    """The answers to the calls, as the last request had them."""
    assert session.api.refused == []
    *_, last = session.sent()
    assert last["content"] == "and now?", "the session goes on after the turn"
    question, reply, results, *_ = session.sent()
    return results["content"]


def requests(session):
    return len(session.api.requests)


def is_denied(result):
    """Whether the answer is an error, and says nothing of effects, as nothing ran."""
    words = result["content"]
    assert "is made" not in words
    assert "may have had effects" not in words
    return result["is_error"] and words.strip()


# ---- What the person answers -----------------------------------------------------------------


def test_y_runs_the_call(ask):
    session = ask(FILE)
    session.talk("go", "y", "and now?")
    [result] = answers(session)
    assert made(session) == ["file"]
    assert not result["is_error"]
    assert result["content"].strip() == "file is made"


NO = [
    "n",
    "no, call it notes.txt",
    "yes, but call it notes.txt",
]


@pytest.mark.parametrize("words", NO)
def test_any_other_answer_stops_it_and_goes_to_the_model(ask, words):
    session = ask(FILE)
    session.talk("go", words, "and now?")
    [result] = answers(session)
    assert made(session) == []
    assert is_denied(result)
    assert words in result["content"]
    assert requests(session) == 3, "the turn goes on: the model may try something else"


def test_just_enter_means_no(ask):
    session = ask(FILE)
    session.talk("go", "", "and now?")
    [result] = answers(session)
    assert made(session) == []
    assert is_denied(result)
    assert requests(session) == 3, "the turn goes on"


def test_the_end_of_the_input_at_the_question_runs_nothing(ask):
    session = ask(FILE)
    session.talk("go")
    assert session.api.requests != []
    assert made(session) == []


# ---- When it is asked ------------------------------------------------------------------------


def test_the_person_sees_the_call_before_they_answer(ask):
    session = ask(FILE)
    seen = session.talk("go", "y", "and now?")
    _, before_the_question, *_ = seen.split(TYPING)
    assert "echo made > file" in before_the_question
    assert made(session) == ["file"]


def test_each_call_is_asked_about_by_itself_when_its_turn_has_come(ask):
    session = ask(ONE, TWO, THREE)
    seen = session.talk("go", "y", "n", "y", "and now?")
    first, second, third = answers(session)
    assert made(session) == ["one", "three"]
    assert not first["is_error"]
    assert is_denied(second)
    assert not third["is_error"]
    _, _, before_the_second_question, *_ = seen.split(TYPING)
    assert "one is made" in before_the_second_question
    assert "echo made > two" in before_the_second_question


# ---- Ctrl-C ----------------------------------------------------------------------------------


def test_ctrl_c_at_the_question_stops_the_turn_and_nothing_ran(ask):
    session = ask(ONE, TWO, THREE)
    try:
        seen = session.talk("go", "y", CTRL_C, "and now?")
    except KeyboardInterrupt:
        pytest.fail("no second question: Ctrl-C came at the prompt")
    first, second, third = answers(session)
    assert made(session) == ["one"]
    assert first["content"].strip() == "one is made"
    assert is_denied(second)
    assert is_denied(third)
    assert requests(session) == 2, "the turn is over: only the next question is sent"
    assert "[interrupted]" in seen


def test_ctrl_c_while_a_call_runs_says_that_it_may_have_had_effects(ask):
    def stopped_by_ctrl_c(command):
        raise KeyboardInterrupt

    session = ask(ONE, TWO)
    session.lesson.HANDLERS["bash"] = stopped_by_ctrl_c
    session.talk("go", "y", "and now?")
    first, second = answers(session)
    assert "may have had effects" in first["content"]
    assert is_denied(second)
