"""Exercise 3 of s05_context_compression: a tool that searches what was forgotten, each agent in its own history."""
import pathlib
import re

from fake_api import calls, says

SUMMARY = says("## Session intent\nNone of the facts.")
FACT = "The spare key is under the blue pot."
COMPACT = calls(("compact", {}))


def model(*steps):
    """A script of ``steps``; whoever asks for a summary gets one."""
    left = iter(steps)

    def script(request):
        last = request["messages"][-1]["content"]
        return SUMMARY if isinstance(last, str) and "## Next steps" in last else next(left)

    return script


def recall(*patterns):
    return calls(*[("recall", {"pattern": pattern}) for pattern in patterns])


def test_a_forgotten_fact_is_found_without_a_path(start):
    session = start("s05_context_compression", model(
        says("Noted."), COMPACT, recall("blue p.t", "red pot"), says("Under the blue pot.")))
    session.talk(FACT, "Where is the spare key?")
    found, missing = session.results()
    summary = session.sent()[0]["content"]
    assert FACT not in summary and "recall" in summary, "the model is told how to get it back"
    assert FACT in found["content"] and not found["is_error"]
    assert FACT not in missing["content"] and not missing["is_error"]
    assert not session.api.refused


def test_only_this_sessions_history_is_searched(start):
    other = pathlib.Path(".agent", "20200101-000000-1", "001-history.txt")
    other.parent.mkdir(parents=True)
    other.write_text("role: user\ncontent: a blue pot of another day\n\n")
    pathlib.Path("notes.txt").write_text("a blue pot in a file\n")
    session = start("s05_context_compression", model(says("Noted."), COMPACT, recall("blue pot"), says("There.")))
    session.talk(FACT, "Where is the spare key?")
    [found] = session.results()
    assert FACT in found["content"]
    assert "another day" not in found["content"] and "in a file" not in found["content"]


def test_before_anything_was_forgotten_it_says_so(start):
    session = start("s05_context_compression", model(recall("blue pot"), says("It is still here.")))
    session.talk(FACT)
    [result] = session.results()
    assert result["content"] and not result["is_error"] and FACT not in result["content"]


def test_a_pattern_that_is_none_is_an_error_in_words(start):
    session = start("s05_context_compression", model(says("Noted."), COMPACT, recall("(blue"), says("Oh.")))
    session.talk(FACT, "Where is the spare key?")
    [result] = session.results()
    assert result["is_error"] and "there is no tool" not in result["content"]


def test_a_child_of_type_code_finds_what_it_forgot_itself_and_nothing_else(start):
    read = calls(("glob", {"pattern": "*"}), text="The corn is yellow. " + "corn " * 600)  # about 800 tokens
    task = calls(("task", {"prompt": "Look at the corn.", "agent_type": "code"}))
    session = start("s05_context_compression", model(
        says("Noted."), COMPACT, task, *[read] * 9, recall("corn is yellow", "blue pot"), says("Yellow."), says("So.")),
        CONTEXT_WINDOW="8000")
    session.talk(FACT, "What colour is the corn?")
    assert re.search(r"\[code\].*summarised: ", session.seen)
    own, parents = session.results(-2)
    assert "The corn is yellow." in own["content"]
    assert FACT not in parents["content"] and not parents["is_error"]
    assert not session.api.refused
