"""Exercise 3 of s05_context_compression: a tool that searches what this agent has forgotten."""
import pathlib
import re

from fake_api import calls, says

LESSON = "s05_context_compression"
SUMMARY = says("## Session intent\nNone of the facts.")
FACT = "The spare key is under the blue pot."
CORN = "The corn is yellow."
COMPACT = calls(("compact", {}))
CORN_WORDS = f"{CORN} " + "corn " * 600  # about 800 tokens
READ = calls(("glob", {"pattern": "*"}), text=CORN_WORDS)


def model(*steps):
    """A script of ``steps``; whoever asks for a summary gets one."""
    left = iter(steps)

    def script(request):
        last = request["messages"][-1]["content"]
        if isinstance(last, str) and "## Next steps" in last:
            return SUMMARY
        return next(left)

    return script


def recall(*patterns):
    return calls(*[("recall", {"pattern": pattern}) for pattern in patterns])


def task(agent_type):
    arguments = {"prompt": "Look at the corn.", "agent_type": agent_type}
    return calls(("task", arguments))


def tools_of(request):
    return [tool["name"] for tool in request["tools"]]


def put_decoys():
    """Files with the words that are looked for, none of them this session's history."""
    other = pathlib.Path(".agent", "20200101-000000-1", "001-history.txt")
    other.parent.mkdir(parents=True)
    other.write_text("role: user\ncontent: a blue pot of another day\n\n")
    pathlib.Path("notes.txt").write_text("a blue pot in a file\n")


def is_no_decoy(result):
    content = result["content"]
    return "another day" not in content and "in a file" not in content


def test_a_forgotten_fact_is_found_without_a_path(start):
    script = model(
        says("Noted."), COMPACT, recall("blue p.t", "red pot"), says("There.")
    )
    session = start(LESSON, script)
    session.talk(FACT, "Where is the spare key?")
    found, missing = session.results()
    assert FACT not in session.sent()[0]["content"]
    assert FACT in found["content"]
    assert not found["is_error"]
    assert FACT not in missing["content"]
    assert missing["content"] and not missing["is_error"]
    assert not session.api.refused


def test_the_summary_tells_the_model_of_it(start):
    session = start(LESSON, model(says("Noted."), COMPACT, says("There.")))
    session.talk(FACT, "Where is the spare key?")
    assert "recall" in session.sent()[0]["content"]


def test_only_this_sessions_history_is_searched(start):
    put_decoys()
    session = start(
        LESSON,
        model(says("Noted."), COMPACT, recall("blue pot"), says("There.")),
    )
    session.talk(FACT, "Where is the spare key?")
    [found] = session.results()
    assert FACT in found["content"]
    assert is_no_decoy(found)


def test_a_fact_that_was_forgotten_two_summaries_ago_is_found(start):
    script = model(
        says("Noted."),
        COMPACT,
        says("Yes."),
        COMPACT,
        recall("blue pot"),
        says("So."),
    )
    session = start(LESSON, script)
    session.talk(FACT, "Are you there?", "Where is the spare key?")
    [found] = session.results()
    assert session.seen.count("[summarised: ") == 2
    assert FACT in found["content"]


def test_before_anything_was_forgotten_it_says_so_and_searches_nothing(start):
    put_decoys()
    script = model(
        recall("blue pot"),
        says("Here."),
        COMPACT,
        recall("green pot"),
        says("No."),
    )
    session = start(LESSON, script)
    session.talk(FACT, "And in another one?")
    [before] = session.results(1)
    [nothing_found] = session.results()
    assert before["content"] and not before["is_error"]
    assert FACT not in before["content"]
    assert is_no_decoy(before)
    assert not nothing_found["is_error"]
    is_same = before["content"] == nothing_found["content"]
    assert not is_same, "nothing forgotten is not nothing found"


def test_a_pattern_that_is_none_is_an_error_in_words(start):
    session = start(
        LESSON, model(says("Noted."), COMPACT, recall("(blue"), says("Oh."))
    )
    session.talk(FACT, "Where is the spare key?")
    [result] = session.results()
    assert result["is_error"]
    assert "there is no tool" not in result["content"]


def test_the_type_code_has_it_and_the_types_that_only_read_have_not(start):
    children = [
        task("code"),
        says("Ok."),
        task("explore"),
        says("Ok."),
        task("review"),
        says("{}"),
    ]
    session = start(LESSON, model(*children, says("So.")))
    session.talk("Look at the corn.")
    parent, code, _, explore, _, review, _ = session.api.requests
    assert "recall" in tools_of(parent)
    assert "recall" in tools_of(code)
    assert "recall" not in tools_of(explore) + tools_of(review)


def test_a_child_finds_what_it_forgot_itself_and_the_parent_its_own_again(
    start,
):
    in_child = [
        *[READ] * 9,
        recall("corn is yellow", "blue pot"),
        says("Done."),
    ]
    in_parent = [recall("blue pot", "corn is yellow"), says("So.")]
    script = model(says("Noted."), COMPACT, task("code"), *in_child, *in_parent)
    session = start(LESSON, script, CONTEXT_WINDOW="8000")
    session.talk(FACT, "What colour is it?")
    assert re.search(r"\[code\].*summarised: ", session.seen)
    own, parents = session.results(-3)
    assert CORN in own["content"]
    assert FACT not in parents["content"]
    assert not parents["is_error"]
    own, childs = session.results()
    assert FACT in own["content"]
    assert CORN not in childs["content"]
    assert not session.api.refused


def test_a_child_that_has_forgotten_nothing_is_told_so(start):
    put_decoys()
    script = model(
        says("Noted."),
        COMPACT,
        task("code"),
        recall("blue pot"),
        says("No."),
        says("So."),
    )
    session = start(LESSON, script)
    session.talk(FACT, "What colour is the corn?")
    [result] = session.results(-2)
    assert result["content"] and not result["is_error"]
    assert FACT not in result["content"]
    assert is_no_decoy(result)


def test_a_child_without_it_is_not_told_of_it(start):
    script = model(
        says("Noted."), task("explore"), *[READ] * 9, says("Done."), says("So.")
    )
    session = start(LESSON, script, CONTEXT_WINDOW="8000")
    session.talk(FACT, "What colour is the corn?")
    firsts = [
        request["messages"][0]["content"] for request in session.api.requests
    ]
    summed_up = [
        first for first in firsts if first.startswith("## Session intent")
    ]
    assert summed_up, "the child's list was summed up"
    assert not any("recall" in first for first in summed_up)
