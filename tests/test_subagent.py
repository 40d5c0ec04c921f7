"""Subagents: the same loop on another list.

s05 keeps all of s04, so what is said here is asked of both.
"""

import functools
import json
import os
import re
import subprocess
import sys
import threading

import pytest

from conftest import LESSONS, ROOT, clean_environment, interrupt
from fake_api import Cut, FakeAPI, Status, Wait, as_json, calls, reply, says

POSIX = pytest.mark.skipif(
    os.name != "posix", reason="a Ctrl-C for this process alone, and pseudo-terminals"
)
READ = ["read_file", "glob", "grep"]
TOOLS = {
    "explore": READ,
    "plan": READ,
    "review": READ,
    "code": ["bash", "write_file", "edit_file", *READ],
}
TYPES = [*TOOLS, "fix"]
LOOK = ("glob", {"pattern": "*"})
PROMPT = "Find the door."

# What the model says, for the scripts.
LOOKING = calls(LOOK)
FOUND = says("Found.")
OPENED = says("Opened.")
DONE = says("Done.")
I_SEE = says("I see.")
STILL_HERE = says("Still here.")


def task(agent_type="explore", **more):
    """A call of the tool, for a script."""
    arguments = {"prompt": PROMPT, "agent_type": agent_type, **more}
    return "task", arguments


@pytest.fixture(params=LESSONS[3:])
def play(request, start):
    """``play(script)``: a session of each lesson that has subagents."""
    return functools.partial(start, request.param)


@pytest.fixture
def delegate(play):
    """``delegate(child, *given)``: the session, and the result of each of the parent's calls.

    child: the items that the child's requests get.  given: the calls in the parent's one reply.
    The session has gone on after them, and answered another prompt.
    """

    def begin(child, *given):
        asked = given or [task()]
        delegation = calls(*asked)
        session = play([delegation, *child, I_SEE, STILL_HERE])
        seen = session.talk("go", "and now?")
        assert "I see." in seen
        assert "Still here." in seen
        assert not session.api.refused
        results = session.sent()[2]["content"]
        return session, results

    return begin


@pytest.fixture
def delegate_all(delegate):
    """``delegate_all(cases, agent_type)``: {name: the result of a call}.

    cases: {name: what the child's requests get}.  One reply of the parent delegates them all, so
    it also shows that none of them disturbs the next.
    """

    def begin(cases, agent_type="explore"):
        items = []
        for child in cases.values():
            items += child
        _, results = delegate(items, *[task(agent_type)] * len(cases))
        return dict(zip(cases, results, strict=True))

    return begin


def users(text):
    return {"role": "user", "content": text}


def tool_names(request):
    return [tool["name"] for tool in request["tools"]]


def task_tool(request):
    [tool] = [tool for tool in request["tools"] if tool["name"] == "task"]
    return tool


def contents(results):
    """{name: what came back}, of what delegate_all gives."""
    return {name: result["content"] for name, result in results.items()}


def texts(results):
    return [result["content"] for result in results]


def roles(messages):
    return [message["role"] for message in messages]


def with_text(session, text):
    """Of each request: whether this text, some bytes, is in it."""
    return [text in raw for raw in session.api.raw]


def child_line(session):
    """The one line that the person sees of a child of the type explore."""
    [line] = re.findall(r"^\[explore\].*", session.seen, re.MULTILINE)
    return line


def without_messages(request):
    """All of a request but its messages, as text: the order of its keys counts."""
    return as_json({**request, "messages": []})


# ---- 1. An isolated child starts clean ---------------------------------------------------------


def test_an_isolated_child_starts_with_its_prompt_alone_and_the_tools_of_its_type(
    delegate,
):
    tasks = [task(agent_type) for agent_type in TOOLS]
    session, _ = delegate([FOUND] * len(TOOLS), *tasks)
    parent, *children = session.api.requests[:5]
    for child, names in zip(children, TOOLS.values(), strict=True):
        assert child["messages"] == [users(PROMPT)]
        assert sorted(tool_names(child)) == sorted(names)
        assert "Only your last message is seen" in child["system"]
    prompts = {request["system"] for request in [parent, *children]}
    assert len(prompts) == 5


def test_nothing_of_the_parent_is_in_any_request_of_a_child(play):
    say = ("bash", {"command": "echo xyzzy"})
    plan = ("todo", {"items": [{"text": "xyzzy", "status": "pending"}]})
    session = play(
        [
            calls(say, plan),
            calls(task("code", description="xyzzy"), text="xyzzy, let us delegate"),
            calls(("bash", {"command": "echo hi"}), LOOK),
            calls(("read_file", {"path": "none"})),
            FOUND,
            DONE,
        ]
    )
    session.talk("say xyzzy")
    in_parent = [True, True]
    in_child = [False, False, False]
    assert with_text(session, b"xyzzy") == [*in_parent, *in_child, True]
    assert not session.api.refused


@pytest.mark.parametrize("name, given", [task(), ("todo", {"items": []})])
def test_an_isolated_child_cannot_delegate_or_plan(delegate, name, given):
    session, [result] = delegate([calls((name, given)), says("Then I did it myself.")])
    assert f"there is no tool '{name}'" in session.results(2)[0]["content"]
    assert result["content"] == "Then I did it myself."


# ---- 2. Only its last words come back ----------------------------------------------------------


def test_a_delegation_is_one_call_and_one_result_in_the_parent(delegate):
    session, [result] = delegate(
        [LOOKING, calls(LOOK, LOOK), calls(LOOK, text="Hm."), FOUND]
    )
    messages = session.sent()
    assert roles(messages) == ["user", "assistant", "user", "assistant", "user"]
    [call] = messages[1]["content"]
    assert call["type"] == "tool_use"
    assert result["type"] == "tool_result"
    assert result["content"] == "Found."
    assert result["is_error"] is False


@pytest.fixture
def secret(environment):
    """What the file secret.txt says."""
    (environment / "secret.txt").write_text("xyzzy")
    return "xyzzy"


def test_no_step_of_a_child_is_in_a_later_request_of_the_parent(delegate, secret):
    session, _ = delegate(
        [
            calls(("read_file", {"path": "secret.txt"}), text="A secret?"),
            calls(("grep", {"pattern": secret}), text=f"It is {secret}."),
            FOUND,
        ]
    )
    before = [False, False]  # the parent's first request, and the child's
    in_child = [True, True]
    after = [False, False]
    assert with_text(session, secret.encode()) == [*before, *in_child, *after]


def test_the_person_sees_no_step_of_a_child_either(delegate, secret):
    reading = calls(("read_file", {"path": "secret.txt"}), text="Reading.")
    session, _ = delegate([reading, FOUND])
    assert secret not in session.seen
    assert "Reading." not in session.seen


def test_a_file_that_the_child_wrote_is_there_for_the_parent(play):
    session = play(
        [
            calls(task("code")),
            calls(("write_file", {"path": "new/door.txt", "content": "blue"})),
            says("Written."),
            calls(("read_file", {"path": "new/door.txt"})),
            says("Blue."),
        ]
    )
    session.talk("go")
    assert session.results()[0]["content"] == "blue"


# ---- 3. A fork knows what the parent knows -----------------------------------------------------

THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
PLAN = [{"text": "open the door", "status": "pending"}]


def test_a_fork_starts_with_the_parents_list_and_its_prefix_is_read_from_the_cache(
    play,
):
    words_and_call = calls(LOOK, text="Let me look.")["content"]
    look = reply([THOUGHT, *words_and_call], "tool_use")
    session = play([look, says("Nothing."), calls(task("fix")), OPENED, DONE])
    session.talk("look around", "now open the door")
    parent, fork = session.api.requests[2:4]
    *before, own = fork["messages"]
    assert before == parent["messages"]
    assert len(before) == 5
    assert own["content"].startswith(f"{PROMPT}\n\nOnly your last message is seen")
    assert without_messages(fork) == without_messages(parent)
    usage = session.api.usage[3]
    read = usage["cache_read_input_tokens"]
    assert read >= 0.9 * prompt_tokens(usage)
    assert session.results()[0]["content"] == "Opened."
    assert not session.api.refused


def prompt_tokens(usage):
    """What a request held, from the cache or not."""
    return sum(usage.values()) - usage["output_tokens"]


def test_a_fork_leaves_the_parents_list_as_it_is(delegate):
    session, [result] = delegate([calls(LOOK, text="xyzzy"), OPENED], task("fix"))
    assert result["content"] == "Opened."
    assert b"xyzzy" not in session.api.raw[-1]


def test_a_fork_that_delegates_is_told_to_do_it_itself_and_goes_on(delegate):
    session, [result] = delegate(
        [calls(task("fix"), task("explore")), OPENED], task("fix")
    )
    told = "you are a subagent and cannot delegate; do it yourself"
    assert texts(session.results(2)) == [told, told]
    assert result["content"] == "Opened."
    assert len(session.api.requests) == 5


def test_the_todo_of_a_fork_leaves_the_parents_plan_as_it_is(play):
    done = {"items": [{**PLAN[0], "status": "completed"}]}
    session = play(
        [
            calls(("todo", {"items": PLAN})),
            calls(task("fix")),
            calls(("todo", done)),
            OPENED,
            LOOKING,
            LOOKING,
            DONE,
        ]
    )
    seen = session.talk("go")
    assert session.results(3)[0]["content"] == "[x] open the door\n(1/1 completed)"
    # Three rounds after the parent's own todo it is still open.
    assert "<reminder>" in session.results()[0]["content"]
    assert "[x]" not in seen


# ---- 4. Several calls in one reply -------------------------------------------------------------


def test_tasks_mixed_with_other_tools_get_one_result_each_in_order(delegate):
    children = [LOOKING, says("First."), *[Status(500)] * 3, says("Third.")]
    session, results = delegate(
        children,
        task("explore"),
        ("bash", {"command": "echo second"}),
        task("wizard"),
        task("plan"),
        ("nope", {}),
        task("fix"),
    )
    asked = [call["id"] for call in session.sent()[1]["content"]]
    assert [result["tool_use_id"] for result in results] == asked
    expected = [  # words, and whether they are of an error
        ("First.", False),
        ("second", False),
        ("the types are", True),
        ("Internal server error", True),
        ("there is no tool", True),
        ("Third.", False),
    ]
    for result, (words, is_error) in zip(results, expected, strict=True):
        assert words in result["content"]
        assert result["is_error"] is is_error


# ---- 5. What comes back ------------------------------------------------------------------------

BLANK = reply([{"type": "text", "text": " \n"}])
SPOKEN = {  # name: (what the child's requests get, what comes back)
    "its only words": (
        [FOUND],
        "Found.",
    ),
    "words in two blocks": (
        [says("Found.", "It is blue.")],
        "Found.\nIt is blue.",
    ),
    "the last of its words": (
        [calls(LOOK, text="Hm."), FOUND],
        "Found.",
    ),
    "words before an empty turn": (
        [calls(LOOK, text="Found."), reply([])],
        "Found.",
    ),
    "words before a blank turn": (
        [calls(LOOK, text="Found."), BLANK],
        "Found.",
    ),
    "words before silent work": (
        [calls(LOOK, text="Found."), LOOKING, reply([THOUGHT])],
        "Found.",
    ),
    "nothing at all": (
        [reply([])],
        "(no summary)",
    ),
    "nothing after work": (
        [LOOKING, reply([])],
        "(no summary)",
    ),
    "nothing but a blank": (
        [BLANK],
        "(no summary)",
    ),
    "exactly the limit": (
        [says("x" * 20_000)],
        "x" * 20_000,
    ),
}


def test_the_last_words_come_back(delegate_all):
    children = {name: child for name, (child, _) in SPOKEN.items()}
    words = {name: words for name, (_, words) in SPOKEN.items()}
    results = delegate_all(children)
    assert contents(results) == words
    assert not any(result["is_error"] for result in results.values())


def test_a_long_answer_comes_back_cut_with_a_line_that_says_so(delegate):
    head = "a" * 10_000
    middle = "b" * 70_000
    tail = "c" * 10_000
    _, [result] = delegate([says(head + middle + tail)])
    notice = "[... 70,000 characters not shown ...]"
    assert result["content"] == f"{head}\n{notice}\n{tail}"


def test_after_30_turns_a_child_is_stopped_and_the_result_says_so(delegate):
    first = calls(LOOK, text="So far nothing.")
    session, [result] = delegate([first, *[LOOKING] * 29])
    assert result["content"] == "So far nothing.\n[stopped after 30 turns]"
    assert "[explore]: [stopped after 30 turns], 30 tools" in session.seen


def test_a_child_that_is_done_at_its_30th_turn_was_not_stopped(delegate):
    _, [result] = delegate([*[LOOKING] * 29, FOUND])
    assert result["content"] == "Found."


# ---- 6. What goes wrong ------------------------------------------------------------------------

ALL_TYPES = "the types are: " + ", ".join(TYPES)
ONE_OF_THEM = json.dumps({"type": "string", "enum": TYPES})
TYPE_IS_MISSING = f"the argument 'agent_type' is missing: {ONE_OF_THEM}"
BAD_CALLS = {  # name: (the input, words of the answer)
    "an unknown type": (
        {"prompt": PROMPT, "agent_type": "wizard"},
        ALL_TYPES,
    ),
    "a missing type": (
        {"prompt": PROMPT},
        TYPE_IS_MISSING,
    ),
    "null for a type": (
        {"prompt": PROMPT, "agent_type": None},
        TYPE_IS_MISSING,
    ),
    "a list for a type": (
        {"prompt": PROMPT, "agent_type": ["explore"]},
        "'agent_type' must be like {",
    ),
    "nothing": (
        {},
        "the argument 'prompt' is missing",
    ),
    "a missing prompt": (
        {"agent_type": "explore"},
        "the argument 'prompt' is missing",
    ),
    "an empty prompt": (
        {"prompt": "", "agent_type": "explore"},
        "prompt must be a text",
    ),
    "a blank prompt": (
        {"prompt": " \n\t", "agent_type": "fix"},
        "prompt must be a text",
    ),
    "a number for a prompt": (
        {"prompt": 7, "agent_type": "fix"},
        "'prompt' must be like {",
    ),
    "a list for a prompt": (
        {"prompt": [PROMPT], "agent_type": "code"},
        "'prompt' must be like {",
    ),
    "an argument too many": (
        {"prompt": PROMPT, "agent_type": "explore", "mode": "fork"},
        "'mode'",
    ),
}


def test_a_bad_call_is_refused_in_words_that_help_and_asks_nobody(delegate):
    bad_calls = [("task", given) for given, _ in BAD_CALLS.values()]
    session, results = delegate([], *bad_calls)
    for name, result in zip(BAD_CALLS, results, strict=True):
        _, words = BAD_CALLS[name]
        assert result["is_error"], name
        assert words in result["content"], name
    assert len(session.api.requests) == 3


def test_no_description_stops_a_child(delegate):
    odd = [None, "", "{0} %s", "\n", "word " * 500]
    tasks = [task(description=description) for description in odd]
    _, results = delegate([FOUND] * 6, task(), *tasks)
    assert texts(results) == ["Found."] * 6


@pytest.mark.parametrize("agent_type", ["explore", "fix"])
def test_an_error_of_the_api_that_passes_costs_nothing(delegate, agent_type):
    child = [Status(529), LOOKING, Status(500), Status(429), FOUND]
    session, [result] = delegate(child, task(agent_type))
    assert result["content"] == "Found."
    assert "rror" not in session.seen


# The SDK asks three times where another try may help.
ERRORS = {  # name: (what the child's requests get, words of the result)
    "400": (
        [Status(400, "Bad.")],
        "Bad.",
    ),
    "401": (
        [Status(401)],
        "invalid x-api-key",
    ),
    "403": (
        [Status(403)],
        "permission",
    ),
    "404": (
        [Status(404)],
        "Not found",
    ),
    "429": (
        [Status(429)] * 3,
        "rate limit",
    ),
    "500": (
        [Status(500)] * 3,
        "Internal server error",
    ),
    "529": (
        [Status(529)] * 3,
        "Overloaded",
    ),
    "529, later": (
        [calls(LOOK, text="Hm."), *[Status(529)] * 3],
        "Overloaded",
    ),
}


@pytest.mark.parametrize("agent_type", ["explore", "fix"])
def test_an_error_of_the_api_for_good_is_an_error_in_the_parent(
    delegate_all, agent_type
):
    children = {name: child for name, (child, _) in ERRORS.items()}
    results = delegate_all(children, agent_type)
    for name, (_, words) in ERRORS.items():
        assert results[name]["is_error"], name
        assert words in results[name]["content"], name


def test_a_dropped_connection_is_an_error_in_the_parent(play):
    session = play([calls(task()), Cut(), I_SEE, STILL_HERE])
    client = session.lesson.client
    # A retry would wait half a second.
    session.lesson.client = client.with_options(max_retries=0)
    assert "Still here." in session.talk("go", "and now?")
    [result] = session.sent()[2]["content"]
    assert result["is_error"]
    assert result["content"].startswith("Error: APIConnectionError: ")


def test_a_child_that_failed_is_not_called_working_at_its_end(delegate):
    session, _ = delegate([LOOKING, Status(400)])
    line = child_line(session)
    assert "1 tools" in line
    assert "working" not in line
    assert "done" not in line


STOPS = ["max_tokens", "refusal", "pause_turn", "stop_sequence", "something_new"]
CUT_OFF = STOPS[:2]


def test_a_reply_cut_in_the_child_runs_no_call_and_the_parent_is_told(
    delegate_all, environment
):
    write = ("write_file", {"path": "cut.txt", "content": "half"})
    content = calls(write, text="I was abou")["content"]
    children = {stop: [reply(content, stop)] for stop in CUT_OFF}
    results = delegate_all(children, "code")
    assert contents(results) == {stop: f"I was abou\n[{stop}]" for stop in CUT_OFF}
    assert not (environment / "cut.txt").exists()


def test_a_silent_stop_in_the_child_says_why(delegate_all):
    results = delegate_all({stop: [reply([], stop)] for stop in STOPS})
    assert contents(results) == {stop: f"(no summary)\n[{stop}]" for stop in STOPS}


def test_a_tool_that_fails_in_a_child_is_the_childs_to_mend(delegate):
    bad_calls = calls(("read_file", {"path": "../x"}), ("grep", {}))
    session, [result] = delegate([bad_calls, FOUND])
    assert [again["is_error"] for again in session.results(2)] == [True, True]
    assert result["content"] == "Found."
    assert result["is_error"] is False


def interrupted(session):
    """The results of a parent's reply whose child met a Ctrl-C.

    The session has answered another prompt.
    """
    assert "Still here." in session.talk("go", "and now?")
    assert not session.api.refused
    messages = session.sent()
    assert roles(messages) == ["user", "assistant", "user", "user"]
    return texts(messages[2]["content"])


@POSIX
@pytest.mark.parametrize("agent_type", ["code", "fix"])
def test_ctrl_c_in_a_tool_of_a_child_ends_the_turn_of_the_parent(play, agent_type):
    # Not at once: a Ctrl-C in the millisecond in which the command starts finds nothing printed.
    press = f"echo started; sleep 0.1; kill -INT {os.getpid()}; sleep 60"
    two_tasks = calls(task(agent_type), task())
    child = calls(("bash", {"command": press}))
    session = play([two_tasks, child, STILL_HERE])
    first, second = interrupted(session)
    assert first.startswith("Interrupted while it ran")
    assert second.startswith("Not run")
    assert "started" not in first
    assert len(session.api.requests) == 3


@POSIX
@pytest.mark.parametrize("agent_type", ["explore", "fix"])
@pytest.mark.parametrize("steps", [0, 2])
def test_ctrl_c_in_a_request_of_a_child_ends_the_turn_of_the_parent(
    play, agent_type, steps
):
    def script(request):
        if len(session.api.requests) == steps + 2:
            interrupt()
            return Wait(threading.Event(), says("Late."))
        return next(items)

    say = ("bash", {"command": "echo hi"})
    delegation = calls(say, task(agent_type), task())
    items = iter([delegation, *[LOOKING] * steps, STILL_HERE])
    session = play(script)
    done, first, second = interrupted(session)
    assert done == "hi\n"
    assert first.startswith("Interrupted while it ran")
    assert second.startswith("Not run")


# ---- 7. The registry ---------------------------------------------------------------------------


@pytest.fixture(params=LESSONS[3:])
def register(request, start, monkeypatch, tmp_path):
    """``register(entry, script)``: a session of a copy of the lesson with one more agent type.

    Its name is "audit".
    """

    def begin(entry, script=()):
        lesson = ROOT / request.param / "agent.py"
        code = lesson.read_text("utf-8")
        before, registry, after = code.partition("AGENT_TYPES = {")
        copy = tmp_path / request.param / "agent.py"
        copy.parent.mkdir()
        copy.write_text(f'{before}{registry} "audit": {entry!r},{after}', "utf-8")
        monkeypatch.setattr("conftest.ROOT", tmp_path)
        return start(request.param, script)

    return begin


AUDIT = {
    "description": "Counts the doors.",
    "tools": ["glob"],
    "prompt": "Count.",
}


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "clone"},
        {"mode": None},
        {"tools": ["glob", "telepathy"]},
        {"tools": ["task"]},
        {"tools": ["todo"]},
    ],
    ids=str,
)
def test_a_type_with_an_unknown_mode_or_tool_fails_at_import_and_is_named(
    register, change
):
    with pytest.raises(ValueError) as caught:
        register({**AUDIT, **change})
    for word in ("'audit'", "isolated", "fork"):
        assert word in str(caught.value)


def test_a_new_type_needs_no_other_edit(register):
    script = [calls(task("audit")), LOOKING, says("Two."), DONE]
    session = register(AUDIT, script)
    session.talk("go")
    parent, child = session.api.requests[:2]
    assert "- audit: Counts the doors." in task_tool(parent)["description"]
    assert sorted(types_told(parent)) == sorted(["audit", *TYPES])
    assert tool_names(child) == ["glob"]
    assert child["system"].startswith("Count.")
    assert session.results()[0]["content"] == "Two."
    assert not session.api.refused


def types_told(request):
    """The agent types that the schema of the tool allows."""
    return task_tool(request)["input_schema"]["properties"]["agent_type"]["enum"]


def test_the_model_is_told_every_type_and_what_must_be_given(delegate):
    session, _ = delegate([FOUND])
    request = session.api.requests[0]
    tool = task_tool(request)
    described = re.findall(r"^- (\w+): \S", tool["description"], re.MULTILINE)
    assert described == TYPES
    assert types_told(request) == TYPES
    assert tool["input_schema"]["required"] == ["prompt", "agent_type"]


# ---- 8. An answer as JSON ----------------------------------------------------------------------


def sample(schema):
    """A value that matches a schema, as the API's structured output would."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "array":
        return [sample(schema["items"])] * 2
    if schema["type"] == "object":
        return {name: sample(schema["properties"][name]) for name in schema["required"]}
    assert schema["type"] == "string"
    return "words"


def test_review_is_asked_for_json_that_matches_its_schema_and_it_comes_back_as_it_is(
    play,
):
    def script(request):
        number = len(session.api.requests)
        if number == 1:
            return calls(task("review"))
        if number == 2:
            schema = request["output_config"]["format"]["schema"]
            return says(json.dumps(sample(schema)))
        return DONE

    session = play(script)
    session.talk("go")
    [answer] = session.results()
    assert json.loads(answer["content"]) == {
        "verdict": "pass",
        "findings": ["words", "words"],
        "not_verified": ["words", "words"],
    }
    form = session.api.requests[1]["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"]["additionalProperties"] is False
    assert not session.api.refused


def test_a_server_that_ignores_structured_output_gives_its_text(delegate):
    _, [result] = delegate([says("Looks good to me.")], task("review"))
    assert result["content"] == "Looks good to me."
    assert result["is_error"] is False


def test_only_review_is_asked_for_json(delegate):
    tasks = [task(agent_type) for agent_type in TYPES]
    session, _ = delegate([FOUND] * 5, *tasks)
    first, *children, second, third = session.api.requests
    for child, agent_type in zip(children, TYPES, strict=True):
        assert ("output_config" in child) == (agent_type == "review")
    for parent in (first, second, third):
        assert "output_config" not in parent


# ---- 9. What the person sees -------------------------------------------------------------------


def test_in_a_pipe_a_child_has_one_line_at_its_end_with_the_tokens_of_usage(delegate):
    look = calls(LOOK, LOOK, text="Hm.")
    found = says("Found it, and it is blue.")
    tasks = [task(description="the door"), task("code")]
    session, _ = delegate([look, found, says("Other.")], *tasks)
    work, last = session.api.usage[1:3]
    read = prompt_tokens(work) + prompt_tokens(last)
    begins = r"\[explore\] the door: done, 2 tools, \d+\.\d s"
    ends = f", read {read:,} tokens, returned {last['output_tokens']:,}"
    assert re.fullmatch(begins + re.escape(ends), child_line(session))
    assert "\r" not in session.seen
    assert "\033" not in session.seen


def test_the_microscope_shows_a_delegation_as_one_call_and_one_result(play):
    child = [LOOKING, LOOKING, FOUND]
    session = play([calls(task()), *child, DONE])
    seen = session.talk("go", "/messages")
    rows = re.findall(r"  (\d) (user|assistant) +(\w+) ", seen)
    assert rows == [
        ("0", "user", "text"),
        ("1", "assistant", "tool_use"),
        ("2", "user", "tool_result"),
        ("3", "assistant", "text"),
    ]


CLEAR = "\033[K"  # what is left of a longer line


DESCRIPTIONS = {
    "explore": "the door",
    "plan": "some doors " * 9,
    "code": "\033[2Jthe\x9b5A\x07 window",
}


@pytest.fixture(scope="module")
def screen(tmp_path_factory):
    """What s04 wrote to a terminal of 60 columns, with a child for each of DESCRIPTIONS.

    One process for three tests: it takes a second to start.
    """
    tasks = [task(kind, description=words) for kind, words in DESCRIPTIONS.items()]
    child = [LOOKING, calls(LOOK, text="Hm."), FOUND]
    terminal, other_end = os.openpty()
    with FakeAPI([calls(*tasks), *child * 3]) as api:
        variables = clean_environment(
            ANTHROPIC_BASE_URL=api.url,
            NO_COLOR="1",
            COLUMNS="60",
            PYTHONUTF8="1",
        )
        with subprocess.Popen(
            [sys.executable, ROOT / LESSONS[3] / "agent.py"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=other_end,
            stderr=other_end,
            cwd=tmp_path_factory.mktemp("work"),
        ) as process:
            os.close(other_end)
            process.stdin.write(b"go\n")
            process.stdin.close()
            seen = read_all(terminal)
    os.close(terminal)
    assert process.returncode == 0
    assert not api.refused
    return seen.decode()


def read_all(terminal):
    """What comes until the other end is closed."""
    seen = b""
    while True:
        try:
            more = os.read(terminal, 10_000)
        except OSError:  # how Linux says that the other end is closed
            return seen
        if not more:
            return seen
        seen += more


def states(screen, text):
    """The states of the one row that holds the text: what is rewritten in place, then its end."""
    [row] = [row for row in screen.split("\r\n") if text in row]
    *live, end = [part.removeprefix(CLEAR) for part in row.split("\r") if text in part]
    return live, end


@POSIX
def test_on_a_terminal_a_child_has_one_line_rewritten_in_place(screen):
    live, end = states(screen, "[explore]")
    work = r"2 tools, \d+\.\d s, read [\d,]+ tokens, returned \d+"
    assert re.fullmatch(rf"\[explore\] the door: done, {work}", end)
    shape = r"\[explore\] the door: (?:working|done), (\d) tools, \d+\.\d s"
    counts = [re.fullmatch(shape + re.escape(CLEAR), line)[1] for line in live]
    assert counts == sorted(counts)
    assert {"1", "2"} <= set(counts)


@POSIX
def test_a_live_line_never_wraps(screen):
    live, _ = states(screen, "[plan]")
    assert "some doors" in live[0]
    assert max(len(line.removesuffix(CLEAR)) for line in live) == 59


@POSIX
def test_no_description_steers_the_terminal(screen):
    live, end = states(screen, "[code]")
    assert live
    for line in [*live, end]:
        assert "window" in line
        assert line.removesuffix(CLEAR).isprintable()


# ---- 10. The reminder --------------------------------------------------------------------------


def test_the_reminder_reaches_the_parent_only_and_a_child_does_not_hurry_it(play):
    session = play(
        [
            calls(("todo", {"items": PLAN})),
            calls(task()),
            *[LOOKING] * 4,
            FOUND,
            LOOKING,
            calls(task("fix")),
            *[LOOKING] * 4,
            OPENED,
            DONE,
        ]
    )
    session.talk("go")
    reminded = [n for n, raw in enumerate(session.api.raw) if b"<reminder>" in raw]
    assert reminded == [len(session.api.raw) - 1]
    assert session.results()[0]["content"].startswith("Opened.\n<reminder>")
