"""Subagents: the same loop on another list. s05 keeps all of s04, so what is said here is asked of both."""

import functools
import itertools
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


def task(agent_type="explore", prompt=PROMPT, **more):
    """A call of the tool, for a script."""
    return "task", {"prompt": prompt, "agent_type": agent_type, **more}


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
        session = play(
            [calls(*given or [task()]), *child, says("I see."), says("Still here.")]
        )
        assert (
            "I see." in (seen := session.talk("go", "and now?"))
            and "Still here." in seen
        )
        assert not session.api.refused
        return session, session.sent()[2]["content"]

    return begin


@pytest.fixture
def delegate_all(delegate):
    """``delegate_all(cases)``: name: what came back.  cases: name: what the child's requests get.

    One reply of the parent delegates them all, so it also shows that none of them disturbs the next.
    """

    def begin(cases, *types):
        _, results = delegate(
            itertools.chain(*cases.values()),
            *map(task, types or ["explore"] * len(cases)),
        )
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
    return {name: result["content"] for name, result in results.items()}


def without_messages(request):
    """All of a request but its messages, as text: the order of its keys counts."""
    return as_json({**request, "messages": []})


# ---- 1. An isolated child starts clean ---------------------------------------------------------


def test_an_isolated_child_starts_with_its_prompt_alone_and_the_tools_of_its_type(
    delegate,
):
    session, _ = delegate([says("Found.")] * len(TOOLS), *map(task, TOOLS))
    parent, *children = session.api.requests[:5]
    for child, names in zip(children, TOOLS.values(), strict=True):
        assert child["messages"] == [users(PROMPT)]
        assert sorted(tool_names(child)) == sorted(names)
        assert "Only your last message is seen" in child["system"]
    assert len({request["system"] for request in [parent, *children]}) == 5


def test_nothing_of_the_parent_is_in_any_request_of_a_child(play):
    session = play(
        [
            calls(
                ("bash", {"command": "echo xyzzy"}),
                ("todo", {"items": [{"text": "xyzzy", "status": "pending"}]}),
            ),
            calls(task("code", description="xyzzy"), text="xyzzy, let us delegate"),
            calls(("bash", {"command": "echo hi"}), LOOK),
            calls(("read_file", {"path": "none"})),
            says("Found."),
            says("Done."),
        ]
    )
    session.talk("say xyzzy")
    assert [b"xyzzy" in raw for raw in session.api.raw] == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    assert not session.api.refused


@pytest.mark.parametrize("name, given", [task(), ("todo", {"items": []})])
def test_an_isolated_child_cannot_delegate_or_plan(delegate, name, given):
    session, [result] = delegate([calls((name, given)), says("Then I did it myself.")])
    assert f"there is no tool '{name}'" in session.results(2)[0]["content"]
    assert result["content"] == "Then I did it myself."


# ---- 2. Only its last words come back ----------------------------------------------------------


def test_a_delegation_is_one_call_and_one_result_in_the_parent(delegate):
    session, [result] = delegate(
        [calls(LOOK), calls(LOOK, LOOK), calls(LOOK, text="Hm."), says("Found.")]
    )
    assert [message["role"] for message in session.sent()] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [block["type"] for block in session.sent()[1]["content"]] == ["tool_use"]
    assert (result["type"], result["content"], result["is_error"]) == (
        "tool_result",
        "Found.",
        False,
    )


def test_no_step_of_a_child_is_in_a_later_request_of_the_parent(delegate, environment):
    (environment / "secret.txt").write_text("xyzzy")
    session, _ = delegate(
        [
            calls(("read_file", {"path": "secret.txt"}), text="A secret?"),
            calls(("grep", {"pattern": "xyzzy"}), text="It is xyzzy."),
            says("Found."),
        ]
    )
    assert [b"xyzzy" in raw for raw in session.api.raw] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]


def test_the_person_sees_no_step_of_a_child_either(delegate, environment):
    (environment / "secret.txt").write_text("xyzzy")
    session, _ = delegate(
        [calls(("read_file", {"path": "secret.txt"}), text="Reading."), says("Found.")]
    )
    assert "xyzzy" not in session.seen and "Reading." not in session.seen


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
    look = reply([THOUGHT, *calls(LOOK, text="Let me look.")["content"]], "tool_use")
    session = play(
        [look, says("Nothing."), calls(task("fix")), says("Opened."), says("Done.")]
    )
    session.talk("look around", "now open the door")
    parent, fork = session.api.requests[2:4]
    *before, own = fork["messages"]
    assert before == parent["messages"] and len(before) == 5
    assert own["content"].startswith(f"{PROMPT}\n\nOnly your last message is seen")
    assert without_messages(fork) == without_messages(parent)
    usage = session.api.usage[3]
    read = usage["cache_read_input_tokens"]
    assert read >= 0.9 * (
        read + usage["cache_creation_input_tokens"] + usage["input_tokens"]
    )
    assert session.results()[0]["content"] == "Opened." and not session.api.refused


def test_a_fork_leaves_the_parents_list_as_it_is(delegate):
    session, [result] = delegate(
        [calls(LOOK, text="xyzzy"), says("Opened.")], task("fix")
    )
    assert result["content"] == "Opened."
    assert b"xyzzy" not in session.api.raw[-1]


def test_a_fork_that_delegates_is_told_to_do_it_itself_and_goes_on(delegate):
    session, [result] = delegate(
        [calls(task("fix"), task("explore")), says("Opened.")], task("fix")
    )
    assert [again["content"] for again in session.results(2)] == [
        "you are a subagent and cannot delegate; do it yourself"
    ] * 2
    assert result["content"] == "Opened." and len(session.api.requests) == 5


def test_the_todo_of_a_fork_leaves_the_parents_plan_as_it_is(play):
    done = {"items": [{**PLAN[0], "status": "completed"}]}
    session = play(
        [
            calls(("todo", {"items": PLAN})),
            calls(task("fix")),
            calls(("todo", done)),
            says("Opened."),
            calls(LOOK),
            calls(LOOK),
            says("Done."),
        ]
    )
    seen = session.talk("go")
    assert session.results(3)[0]["content"] == "[x] open the door\n(1/1 completed)"
    assert (
        "<reminder>" in session.results()[0]["content"]
    )  # three rounds after the parent's own todo it is still open
    assert "[x]" not in seen


# ---- 4. Several calls in one reply -------------------------------------------------------------


def test_tasks_mixed_with_other_tools_get_one_result_each_in_order(delegate):
    session, results = delegate(
        [calls(LOOK), says("First."), *[Status(500)] * 3, says("Third.")],
        task("explore"),
        ("bash", {"command": "echo second"}),
        task("wizard"),
        task("plan"),
        ("nope", {}),
        task("fix"),
    )
    assert [result["tool_use_id"] for result in results] == [
        call["id"] for call in session.sent()[1]["content"]
    ]
    words = [
        "First.",
        "second",
        "the types are",
        "Internal server error",
        "there is no tool",
        "Third.",
    ]
    assert [
        word in result["content"] for word, result in zip(words, results, strict=True)
    ] == [True] * 6
    assert [result["is_error"] for result in results] == [
        False,
        False,
        True,
        True,
        True,
        False,
    ]


# ---- 5. What comes back ------------------------------------------------------------------------

BLANK = reply([{"type": "text", "text": " \n"}])
SPOKEN = {
    "its only words": ([says("Found.")], "Found."),
    "words in two blocks": ([says("Found.", "It is blue.")], "Found.\nIt is blue."),
    "the last of its words": ([calls(LOOK, text="Hm."), says("Found.")], "Found."),
    "words before an empty turn": ([calls(LOOK, text="Found."), reply([])], "Found."),
    "words before a blank turn": ([calls(LOOK, text="Found."), BLANK], "Found."),
    "words before silent work": (
        [calls(LOOK, text="Found."), calls(LOOK), reply([THOUGHT])],
        "Found.",
    ),
    "nothing at all": ([reply([])], "(no summary)"),
    "nothing after work": ([calls(LOOK), reply([])], "(no summary)"),
    "nothing but a blank": ([BLANK], "(no summary)"),
    "exactly the limit": ([says("x" * 20_000)], "x" * 20_000),
}


def test_the_last_words_come_back(delegate_all):
    results = delegate_all({name: child for name, (child, _) in SPOKEN.items()})
    assert contents(results) == {name: words for name, (_, words) in SPOKEN.items()}
    assert not any(result["is_error"] for result in results.values())


def test_a_long_answer_comes_back_cut_with_a_line_that_says_so(delegate):
    _, [result] = delegate([says("a" * 10_000 + "b" * 70_000 + "c" * 10_000)])
    assert (
        result["content"]
        == "a" * 10_000 + "\n[... 70,000 characters not shown ...]\n" + "c" * 10_000
    )


def test_after_30_turns_a_child_is_stopped_and_the_result_says_so(delegate):
    session, [result] = delegate(
        [calls(LOOK, text="So far nothing.")] + [calls(LOOK)] * 29
    )
    assert result["content"] == "So far nothing.\n[stopped after 30 turns]"
    assert "[explore]: [stopped after 30 turns], 30 tools" in session.seen


def test_a_child_that_is_done_at_its_30th_turn_was_not_stopped(delegate):
    _, [result] = delegate([calls(LOOK)] * 29 + [says("Found.")])
    assert result["content"] == "Found."


# ---- 6. What goes wrong ------------------------------------------------------------------------

ALL_TYPES = "the types are: " + ", ".join(TYPES)
TYPE_IS_MISSING = "the argument 'agent_type' is missing: " + json.dumps(
    {"type": "string", "enum": TYPES}
)
BAD_CALLS = {
    "an unknown type": ({"prompt": PROMPT, "agent_type": "wizard"}, ALL_TYPES),
    "a missing type": ({"prompt": PROMPT}, TYPE_IS_MISSING),
    "null for a type": ({"prompt": PROMPT, "agent_type": None}, TYPE_IS_MISSING),
    "a list for a type": (
        {"prompt": PROMPT, "agent_type": ["explore"]},
        "'agent_type' must be like {",
    ),
    "nothing": ({}, "the argument 'prompt' is missing"),
    "a missing prompt": ({"agent_type": "explore"}, "the argument 'prompt' is missing"),
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
    session, results = delegate(
        [], *(("task", given) for given, _ in BAD_CALLS.values())
    )
    for result, (name, (_, words)) in zip(results, BAD_CALLS.items(), strict=True):
        assert result["is_error"] and words in result["content"], name
    assert len(session.api.requests) == 3


def test_no_description_stops_a_child(delegate):
    odd = [None, "", "{0} %s", "\n", "word " * 500]
    _, results = delegate(
        [says("Found.")] * 6,
        task(),
        *(task(description=description) for description in odd),
    )
    assert [result["content"] for result in results] == ["Found."] * 6


@pytest.mark.parametrize("agent_type", ["explore", "fix"])
def test_an_error_of_the_api_that_passes_costs_nothing(delegate, agent_type):
    session, [result] = delegate(
        [Status(529), calls(LOOK), Status(500), Status(429), says("Found.")],
        task(agent_type),
    )
    assert result["content"] == "Found." and "rror" not in session.seen


ERRORS = {  # the SDK asks three times where another try may help
    "400": ([Status(400, "Bad.")], "Bad."),
    "401": ([Status(401)], "invalid x-api-key"),
    "403": ([Status(403)], "permission"),
    "404": ([Status(404)], "Not found"),
    "429": ([Status(429)] * 3, "rate limit"),
    "500": ([Status(500)] * 3, "Internal server error"),
    "529": ([Status(529)] * 3, "Overloaded"),
    "529, later": ([calls(LOOK, text="Hm."), *[Status(529)] * 3], "Overloaded"),
}


@pytest.mark.parametrize("agent_type", ["explore", "fix"])
def test_an_error_of_the_api_for_good_is_an_error_in_the_parent(
    delegate_all, agent_type
):
    results = delegate_all(
        {name: child for name, (child, _) in ERRORS.items()},
        *[agent_type] * len(ERRORS),
    )
    for name, (_, words) in ERRORS.items():
        assert results[name]["is_error"] and words in results[name]["content"], name


def test_a_dropped_connection_is_an_error_in_the_parent(play):
    session = play([calls(task()), Cut(), says("I see."), says("Still here.")])
    session.lesson.client = session.lesson.client.with_options(
        max_retries=0
    )  # a retry would wait half a second
    assert "Still here." in session.talk("go", "and now?")
    [result] = session.sent()[2]["content"]
    assert result["is_error"] and result["content"].startswith(
        "Error: APIConnectionError: "
    )


def test_a_child_that_failed_is_not_called_working_at_its_end(delegate):
    session, _ = delegate([calls(LOOK), Status(400)])
    [line] = re.findall(r"^\[explore\].*", session.seen, re.M)
    assert "1 tools" in line and "working" not in line and "done" not in line


STOPS = ["max_tokens", "refusal", "pause_turn", "stop_sequence", "something_new"]
CUT_OFF = STOPS[:2]


def test_a_reply_cut_in_the_child_runs_no_call_and_the_parent_is_told(
    delegate_all, environment
):
    write = calls(
        ("write_file", {"path": "cut.txt", "content": "half"}), text="I was abou"
    )["content"]
    results = delegate_all(
        {stop: [reply(write, stop)] for stop in CUT_OFF}, *["code"] * len(CUT_OFF)
    )
    assert contents(results) == {stop: f"I was abou\n[{stop}]" for stop in CUT_OFF}
    assert not (environment / "cut.txt").exists()


def test_a_silent_stop_in_the_child_says_why(delegate_all):
    results = delegate_all({stop: [reply([], stop)] for stop in STOPS})
    assert contents(results) == {stop: f"(no summary)\n[{stop}]" for stop in STOPS}


def test_a_tool_that_fails_in_a_child_is_the_childs_to_mend(delegate):
    session, [result] = delegate(
        [calls(("read_file", {"path": "../x"}), ("grep", {})), says("Found.")]
    )
    assert [again["is_error"] for again in session.results(2)] == [True, True]
    assert (result["content"], result["is_error"]) == ("Found.", False)


def interrupted(session):
    """The results of a parent's reply whose child met a Ctrl-C; the session has answered another prompt."""
    assert "Still here." in session.talk("go", "and now?") and not session.api.refused
    assert [message["role"] for message in session.sent()] == [
        "user",
        "assistant",
        "user",
        "user",
    ]
    return [result["content"] for result in session.sent()[2]["content"]]


@POSIX
@pytest.mark.parametrize("agent_type", ["code", "fix"])
def test_ctrl_c_in_a_tool_of_a_child_ends_the_turn_of_the_parent(play, agent_type):
    # Not at once: a Ctrl-C in the millisecond in which the command starts finds nothing printed.
    press = {"command": f"echo started; sleep 0.1; kill -INT {os.getpid()}; sleep 60"}
    session = play(
        [calls(task(agent_type), task()), calls(("bash", press)), says("Still here.")]
    )
    first, second = interrupted(session)
    assert first.startswith("Interrupted while it ran") and second.startswith("Not run")
    assert "started" not in first and len(session.api.requests) == 3


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

    items = iter(
        [
            calls(("bash", {"command": "echo hi"}), task(agent_type), task()),
            *[calls(LOOK)] * steps,
            says("Still here."),
        ]
    )
    session = play(script)
    done, first, second = interrupted(session)
    assert (
        done == "hi\n"
        and first.startswith("Interrupted while it ran")
        and second.startswith("Not run")
    )


# ---- 7. The registry ---------------------------------------------------------------------------


@pytest.fixture(params=LESSONS[3:])
def register(request, start, monkeypatch, tmp_path):
    """``register(entry, script)``: a session of a copy of the lesson with one more agent type, "audit"."""

    def begin(entry, script=()):
        copy = tmp_path / request.param / "agent.py"
        copy.parent.mkdir()
        before, registry, after = (
            (ROOT / copy.relative_to(tmp_path))
            .read_text("utf-8")
            .partition("AGENT_TYPES = {")
        )
        copy.write_text(f'{before}{registry} "audit": {entry!r},{after}', "utf-8")
        monkeypatch.setattr("conftest.ROOT", tmp_path)
        return start(request.param, script)

    return begin


AUDIT = {"description": "Counts the doors.", "tools": ["glob"], "prompt": "Count."}


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
    assert all(word in str(caught.value) for word in ("'audit'", "isolated", "fork"))


def test_a_new_type_needs_no_other_edit(register):
    session = register(
        AUDIT, [calls(task("audit")), calls(LOOK), says("Two."), says("Done.")]
    )
    session.talk("go")
    parent, child = session.api.requests[:2]
    tool = task_tool(parent)
    assert "- audit: Counts the doors." in tool["description"]
    assert sorted(tool["input_schema"]["properties"]["agent_type"]["enum"]) == sorted(
        ["audit", *TYPES]
    )
    assert tool_names(child) == ["glob"] and child["system"].startswith("Count.")
    assert session.results()[0]["content"] == "Two." and not session.api.refused


def test_the_model_is_told_every_type_and_what_must_be_given(delegate):
    session, _ = delegate([says("Found.")])
    tool = task_tool(session.api.requests[0])
    assert re.findall(r"^- (\w+): \S", tool["description"], re.M) == TYPES
    assert tool["input_schema"]["properties"]["agent_type"]["enum"] == TYPES
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
    return {"string": "words"}[schema["type"]]


def test_review_is_asked_for_json_that_matches_its_schema_and_it_comes_back_as_it_is(
    play,
):
    def script(request):
        if len(session.api.requests) != 2:
            return (
                calls(task("review"))
                if len(session.api.requests) == 1
                else says("Done.")
            )
        return says(json.dumps(sample(request["output_config"]["format"]["schema"])))

    session = play(script)
    session.talk("go")
    [answer] = session.results()
    assert json.loads(answer["content"]) == {
        "verdict": "pass",
        "findings": ["words", "words"],
        "not_verified": ["words", "words"],
    }
    form = session.api.requests[1]["output_config"]["format"]
    assert (
        form["type"] == "json_schema"
        and form["schema"]["additionalProperties"] is False
    )
    assert not session.api.refused


def test_a_server_that_ignores_structured_output_gives_its_text(delegate):
    _, [result] = delegate([says("Looks good to me.")], task("review"))
    assert (result["content"], result["is_error"]) == ("Looks good to me.", False)


def test_only_review_is_asked_for_json(delegate):
    session, _ = delegate([says("Found.")] * 5, *map(task, TYPES))
    asked = ["output_config" in request for request in session.api.requests]
    assert asked == [False, *(name == "review" for name in TYPES), False, False]


# ---- 9. What the person sees -------------------------------------------------------------------


def test_in_a_pipe_a_child_has_one_line_at_its_end_with_the_tokens_of_usage(delegate):
    session, _ = delegate(
        [
            calls(LOOK, LOOK, text="Hm."),
            says("Found it, and it is blue."),
            says("Other."),
        ],
        task(description="the door"),
        task("code"),
    )
    work, last = session.api.usage[1:3]
    read = sum(
        count
        for usage in (work, last)
        for name, count in usage.items()
        if name != "output_tokens"
    )
    ends = f", read {read:,} tokens, returned {last['output_tokens']:,}"
    [line] = re.findall(r"^\[explore\].*", session.seen, re.M)
    assert re.fullmatch(
        r"\[explore\] the door: done, 2 tools, \d+\.\d s" + re.escape(ends), line
    )
    assert "\r" not in session.seen and "\033" not in session.seen


def test_the_microscope_shows_a_delegation_as_one_call_and_one_result(play):
    session = play(
        [calls(task()), calls(LOOK), calls(LOOK), says("Found."), says("Done.")]
    )
    rows = re.findall(
        r"  (\d) (user|assistant) +(\w+) ", session.talk("go", "/messages")
    )
    assert rows == [
        ("0", "user", "text"),
        ("1", "assistant", "tool_use"),
        ("2", "user", "tool_result"),
        ("3", "assistant", "text"),
    ]


CLEAR = "\033[K"  # what is left of a longer line


@pytest.fixture(scope="module")
def terminal(tmp_path_factory):
    """What s04 wrote to a terminal of 60 columns: a function from some text to the parts of the one row that holds it.

    One process for three tests: it takes a second to start.
    """
    children = {
        "explore": "the door",
        "plan": "some doors " * 9,
        "code": "\033[2Jthe\x9b5A\x07 window",
    }
    script = [
        calls(*(task(kind, description=words) for kind, words in children.items()))
    ]
    script += [calls(LOOK), calls(LOOK, text="Hm."), says("Found.")] * 3
    screen, its_end = os.openpty()
    with FakeAPI(script) as api:
        variables = clean_environment(
            ANTHROPIC_BASE_URL=api.url, NO_COLOR="1", COLUMNS="60", PYTHONUTF8="1"
        )
        with subprocess.Popen(
            [sys.executable, ROOT / LESSONS[3] / "agent.py"],
            env=variables,
            stdin=subprocess.PIPE,
            stdout=its_end,
            stderr=its_end,
            cwd=tmp_path_factory.mktemp("work"),
        ) as process:
            os.close(its_end)
            process.stdin.write(b"go\n")
            process.stdin.close()
            seen = b"".join(iter(lambda: read(screen), b"")).decode()
    os.close(screen)
    assert process.returncode == 0 and not api.refused

    def parts(text):
        [row] = [row for row in seen.split("\r\n") if text in row]
        return [part.removeprefix(CLEAR) for part in row.split("\r") if text in part]

    return parts


def read(screen):
    try:
        return os.read(screen, 10_000)
    except OSError:  # how Linux says that the other end is closed
        return b""


@POSIX
def test_on_a_terminal_a_child_has_one_line_rewritten_in_place(terminal):
    *live, end = terminal("[explore]")
    assert re.fullmatch(
        r"\[explore\] the door: done, 2 tools, \d+\.\d s, read [\d,]+ tokens, returned \d+",
        end,
    )
    shape = (
        r"\[explore\] the door: (?:working|done), (\d) tools, \d+\.\d s"
        + re.escape(CLEAR)
    )
    counts = [re.fullmatch(shape, line)[1] for line in live]
    assert counts == sorted(counts) and {"1", "2"} <= set(counts)


@POSIX
def test_a_live_line_never_wraps(terminal):
    *live, end = terminal("[plan]")
    assert (
        "some doors" in live[0]
        and max(len(line.removesuffix(CLEAR)) for line in live) == 59
    )


@POSIX
def test_no_description_steers_the_terminal(terminal):
    *live, end = terminal("[code]")
    assert live and all("window" in line for line in [*live, end])
    assert all(line.removesuffix(CLEAR).isprintable() for line in [*live, end])


# ---- 10. The reminder --------------------------------------------------------------------------


def test_the_reminder_reaches_the_parent_only_and_a_child_does_not_hurry_it(play):
    session = play(
        [
            calls(("todo", {"items": PLAN})),
            calls(task()),
            *[calls(LOOK)] * 4,
            says("Found."),
            calls(LOOK),
            calls(task("fix")),
            *[calls(LOOK)] * 4,
            says("Opened."),
            says("Done."),
        ]
    )
    session.talk("go")
    reminded = [n for n, raw in enumerate(session.api.raw) if b"<reminder>" in raw]
    assert reminded == [len(session.api.raw) - 1]
    assert session.results()[0]["content"].startswith("Opened.\n<reminder>")
