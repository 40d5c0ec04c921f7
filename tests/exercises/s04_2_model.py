"""Exercise 2 of s04_subagent: a registry key `model`, so that looking costs less than thinking."""

import pytest

import conftest
from fake_api import Status, calls, says

TYPES = ["explore", "code", "fix", "review", "plan"]
LOOK = calls(("glob", {"pattern": "*"}))
ALL_LARGE = ["large"] * 7  # the five types, and the parent before and after them
NO_NAMES = [""] * 5


@pytest.fixture(autouse=True)
def no_small_model(monkeypatch):
    """Nothing that the learner has set reaches a test."""
    monkeypatch.delenv("MODEL_SMALL", raising=False)


@pytest.fixture
def register(start, monkeypatch, tmp_path):
    """`register(entry, script)`: a session of a copy of the lesson with one more type, "spare"."""

    def begin(entry, script=()):
        original = conftest.ROOT / "s04_subagent" / "agent.py"
        text = original.read_text(encoding="utf-8")
        before, registry, after = text.partition("AGENT_TYPES = {")
        copy = tmp_path / "s04_subagent" / "agent.py"
        copy.parent.mkdir()
        copy.write_text(
            f'{before}{registry} "spare": {entry!r},{after}',
            encoding="utf-8",
        )
        monkeypatch.setattr(conftest, "ROOT", tmp_path)
        return start("s04_subagent", script, MODEL="large")

    return begin


def task(agent_type):
    """A call of the tool, for a script."""
    arguments = {
        "prompt": "Look.",
        "agent_type": agent_type,
        "description": "look",
    }
    return ("task", arguments)


def explore(start, *answers):
    """A session in which a child of type explore gets these answers."""
    session = start(
        "s04_subagent",
        [
            calls(task("explore")),
            *answers,
            says("I see."),
            says("Still here."),
        ],
        MODEL="large",
        MODEL_SMALL="small",
    )
    session.talk("go", "and now?")
    return session


def run_all(start, **variables):
    """A session in which one reply calls a child of each type."""
    tasks = [task(agent_type) for agent_type in TYPES]
    script = [calls(*tasks)]
    script += [says("Seen.")] * 5
    script += [says("Done.")]
    session = start("s04_subagent", script, MODEL="large", **variables)
    session.talk("go")
    assert not session.api.refused
    return session


def models(session):
    """The model of each request, in order."""
    return [request["model"] for request in session.api.requests]


def end_of_line(session, agent_type):
    """What a child's line has behind the number of tokens that it returned."""
    for line in session.seen.splitlines():
        if line.startswith(f"[{agent_type}]"):
            _, found, rest = line.rpartition("returned ")
            assert found, line
            return rest.lstrip("0123456789,")
    raise AssertionError(f"{agent_type} has no line")


def ends_of_lines(session):
    return [end_of_line(session, agent_type) for agent_type in TYPES]


# ---- Which model is asked ----------------------------------------------------------------------


def test_explore_uses_the_small_model_and_nobody_else_does(start):
    session = run_all(start, MODEL_SMALL="small")
    parent, child, *others = models(session)
    assert child == "small"
    assert [parent, *others] == ["large"] * 6


def test_all_requests_of_the_child_name_it(start):
    session = explore(start, LOOK, LOOK, says("Seen."))
    assert models(session) == [
        "large",
        "small",
        "small",
        "small",
        "large",
        "large",
    ]


def test_without_a_small_model_there_is_one_model(start):
    session = run_all(start)
    assert models(session) == ALL_LARGE
    assert ends_of_lines(session) == NO_NAMES


def test_an_empty_small_model_is_none(start):
    session = run_all(start, MODEL_SMALL="")
    assert models(session) == ALL_LARGE
    assert ends_of_lines(session) == NO_NAMES


def test_after_a_child_that_failed_the_parent_has_its_own_model(start):
    session = explore(start, Status(400))
    assert models(session) == ["large", "small", "large", "large"]


# ---- What the person sees ----------------------------------------------------------------------


def test_the_line_of_explore_ends_with_its_model_and_no_other_line_does(start):
    session = run_all(start, MODEL_SMALL="small")
    of_explore, *others = ends_of_lines(session)
    assert "small" in of_explore
    assert others == [""] * 4


def test_the_line_of_a_child_that_failed_names_its_model_too(start):
    session = explore(start, Status(400))
    assert "small" in end_of_line(session, "explore")


def test_a_small_model_that_is_the_parents_is_not_named(start):
    session = run_all(start, MODEL_SMALL="large")
    assert models(session) == ALL_LARGE
    assert ends_of_lines(session) == NO_NAMES


# ---- The registry ------------------------------------------------------------------------------


def test_a_type_of_ones_own_may_name_a_model(register):
    entry = {
        "description": "A spare.",
        "tools": ["glob"],
        "prompt": "Look.",
        "model": "huge",
    }
    script = [
        calls(task("spare")),
        says("Seen."),
        says("Done."),
    ]
    session = register(entry, script)
    session.talk("go")
    assert models(session) == ["large", "huge", "large"]
    assert "huge" in end_of_line(session, "spare")


def test_a_fork_with_a_model_of_its_own_fails_at_import(register):
    """The cache of a prefix belongs to one model: such a fork would pay for the whole list."""
    entry = {
        "description": "A fork.",
        "mode": "fork",
        "model": "small",
    }
    with pytest.raises(ValueError, match="spare"):
        register(entry)
