"""The loop's one invariant, in every lesson.

After any fault at any point, the next request is one the API accepts.
"""

import io
import itertools
import os
import random
import runpy
import sys
import threading

import anthropic
import pytest

from conftest import LESSONS, ROOT, interrupt
from fake_api import Cut, Status, Wait, calls, reply, says

# s02 has the loop of s01: test_lessons holds that.
LOOPS = [lesson for lesson in LESSONS if not lesson.startswith("s02")]

posix = pytest.mark.skipif(os.name != "posix", reason="Ctrl-C is sent as a signal")
GO = {"role": "user", "content": "go"}
NOW = {"role": "user", "content": "and now?"}
ANSWERED = ["Still here.", "[end_turn]"]


def text(words):
    return {"type": "text", "text": words}


def call(name, arguments):
    return {"type": "tool_use", "name": name, "input": arguments}


def bash(command):
    return call("bash", {"command": command})


def runs(*commands, text=None):
    """A reply that calls bash with each of these commands."""
    asked = [("bash", {"command": command}) for command in commands]
    return calls(*asked, text=text)


@pytest.fixture(params=LOOPS)
def meet(request, start):
    """``meet(script, questions=1)``: a session of each lesson.

    In it the person asks, meets the script, and asks again.  Whatever the script does, the
    session goes on: the API refused nothing, and the last question is answered.
    """

    def meet(script, questions=1, **options):
        whole = itertools.chain(script, [says("Still here.")])
        session = start(request.param, whole)
        session.lesson.client = session.lesson.client.with_options(**options)
        session.talk(*["go"] * questions, "and now?")
        assert not session.api.refused
        assert session.sent()[-1] == NOW
        assert shown(session, questions + 1) == ANSWERED
        return session

    return meet


def shown(session, number=1):
    """The lines that the person saw after their first, second ... question."""
    return session.seen.split(" >> ")[number].splitlines()[:-1]


def marks(results):
    return [result["is_error"] for result in results]


def contents(results):
    return [result["content"].strip() for result in results]


def types_of(message):
    return [block["type"] for block in message["content"]]


# ---- Calls that cannot be run ------------------------------------------------------------------


def test_an_unknown_tool_is_answered_with_the_tools_there_are(meet):
    script = [
        calls(("fly", {"to": "the moon"})),
        says("Oh."),
    ]
    session = meet(script)
    [result] = session.results(1)
    assert result["is_error"]
    assert "no tool 'fly'" in result["content"]
    for tool in session.api.requests[0]["tools"]:
        assert tool["name"] in result["content"]
    assert shown(session)[0] == "fly {'to': 'the moon'}"


BAD_ARGUMENTS = [
    ({}, "the argument 'command' is missing"),
    ({"command": None}, "the argument 'command' is missing"),
    (
        {"command": "echo made > file", "speed": 9},
        "there is no argument 'speed'; bash takes: command",
    ),
    (
        {"command": "echo made > file", "authentication": "none"},
        "there is no argument 'authentication'",
    ),
    ({"command": 5}, "'command' must be like {\"type\": \"string\"}; got '5'"),
    ({"command": ["echo made > file"]}, "'command' must be like"),
]


def test_a_call_with_bad_arguments_is_answered_with_what_is_wrong_and_not_run(meet):
    asked = [("bash", arguments) for arguments, _ in BAD_ARGUMENTS]
    script = [
        calls(*asked),
        says("Oh."),
    ]
    session = meet(script)
    results = session.results(1)
    for (arguments, words), result in zip(BAD_ARGUMENTS, results, strict=True):
        assert result["is_error"], arguments
        if session.lesson.LESSON != "s01_agent_loop":  # from s02 on in our own words
            assert words in result["content"], arguments
    assert not os.listdir(session.folder)


def test_a_null_for_an_argument_that_may_be_left_out_is_its_default(start):
    asked = ("grep", {"pattern": "x", "path": None})
    script = [
        calls(asked),
        says("None."),
    ]
    session = start("s02_tools", script)
    session.talk("go")
    assert marks(session.results()) == [False]


def variations(tool):
    """Bad inputs for a tool.

    Each argument that it must have is missing, null and of three wrong types.
    """
    required = tool["input_schema"]["required"]
    good = dict.fromkeys(required, "x")
    for name in required:
        missing = dict(good)
        del missing[name]
        yield missing
        for value in (None, 5, {"x": 1}, [["x"]]):
            yield {**good, name: value}


@pytest.mark.parametrize("lesson", LOOPS)
def test_no_bad_input_of_any_tool_ends_the_session(start, lesson):
    def script(request):
        if len(request["messages"]) > 1:
            return says("Still here.")
        bad = []
        for tool in request["tools"]:
            for given in variations(tool):
                bad.append((tool["name"], given))
        return calls(*bad)

    session = start(lesson, script)
    session.talk("go", "and now?")
    assert not session.api.refused
    assert shown(session, 2) == ANSWERED
    results = session.results(1)
    assert len(results) >= 5
    assert all(marks(results))


def test_a_handler_that_raises_is_an_answer(meet):
    script = [
        runs("echo \0"),
        says("Oh."),
    ]
    session = meet(script)
    [result] = session.results(1)
    assert result["is_error"]
    assert result["content"].startswith("Error: ValueError: ")


def test_one_failing_call_leaves_the_others_alone(meet):
    asked = [bash("echo one"), call("fly", {}), bash("echo three")]
    script = [
        reply(asked, "tool_use"),
        says("Two of three."),
    ]
    session = meet(script)
    results = session.results(1)
    answered_ids = [result["tool_use_id"] for result in results]
    assert answered_ids == [block["id"] for block in session.sent(1)[1]["content"]]
    assert marks(results) == [False, True, False]
    first, _, third = contents(results)
    assert first == "one"
    assert third == "three"


# ---- Replies that end oddly --------------------------------------------------------------------

STOPS = [
    "max_tokens",
    "refusal",
]


def test_a_call_in_a_reply_that_was_cut_off_is_not_run(meet):
    content = [text("I make it."), bash("echo made > file")]
    session = meet([reply(content, stop) for stop in STOPS], questions=2)
    for number, stop in enumerate(STOPS, 1):
        [result] = session.sent(number)[-2]["content"]
        assert result["is_error"]
        assert result["content"] == f"Not run: the turn ended first ({stop})."
        assert shown(session, number) == ["I make it.", f"[{stop}]"]
    assert not os.listdir(session.folder)


def test_a_call_cut_off_before_its_input_is_not_run(meet):
    session = meet([reply([call("bash", {})], "max_tokens")])
    assert marks(session.sent(1)[2]["content"]) == [True]
    assert shown(session) == ["[max_tokens]"]


def test_what_was_said_before_the_token_limit_is_shown_and_kept(meet):
    content = [text("It begins with")]
    session = meet([reply(content, "max_tokens")])
    assert session.sent()[1] == {"role": "assistant", "content": content}
    assert shown(session) == ["It begins with", "[max_tokens]"]


THOUGHT = {
    "type": "thinking",
    "thinking": "Hm, ein schöner Gedanke 🙂\n",
    "signature": "c2ln+/=",
}
HIDDEN = {"type": "redacted_thinking", "data": "ZGF0YQ=="}
NOTHING = [
    reply([]),
    reply([], "refusal"),
    reply([text("")]),
    reply([text(" \n"), text("\t")]),
    reply([THOUGHT, HIDDEN], "max_tokens"),
    reply([], "tool_use"),
]


def test_nothing_empty_enters_history(meet):
    session = meet([runs("echo hi"), *NOTHING], questions=len(NOTHING))
    first, second, *others = [message["role"] for message in session.sent()]
    assert first == "user"
    assert second == "assistant"
    assert others == ["user"] * (len(NOTHING) + 1)
    for number, empty in enumerate(NOTHING, 1):
        assert shown(session, number)[-1] == f"[{empty['stop_reason']}]"


def test_an_empty_text_beside_a_call_does_not_enter_history(meet):
    script = [
        reply([text(""), bash("echo hi")], "tool_use"),
        says("Done."),
    ]
    session = meet(script)
    assert types_of(session.sent()[1]) == ["tool_use"]
    assert marks(session.results(1)) == [False]


def test_words_beside_a_call_are_shown_before_it_runs(meet):
    script = [
        runs("echo hi", text="I look."),
        says("Done."),
    ]
    session = meet(script)
    assert shown(session) == [
        "I look.",
        "bash {'command': 'echo hi'}",
        "hi",
        "Done.",
        "[end_turn]",
    ]


def test_thoughts_go_back_unchanged(meet):
    thinking = [
        THOUGHT,
        HIDDEN,
        {**bash("echo hi"), "id": "toolu_x"},
        {**THOUGHT, "thinking": ""},
        text("So."),
    ]
    script = [
        reply(thinking, "tool_use"),
        says("Done."),
    ]
    session = meet(script)
    assert session.sent()[1]["content"] == thinking
    assert "Gedanke" not in session.seen


def test_half_an_emoji_does_not_end_the_session(meet):
    """A reply may break off inside a surrogate pair.

    Half a pair is no character, and the API refuses it.
    """
    halves = [text("Here: \ud83d"), bash("echo \ud83d")]
    script = [
        reply(halves, "tool_use"),
        says("Done."),
    ]
    session = meet(script)
    assert session.sent()[1]["content"][0] == text("Here: ?")
    assert contents(session.results(1)) == ["?"]
    assert shown(session)[0] == "Here: ?"


# ---- Blocks that the API would not take back ---------------------------------------------------

NO_OBJECTS = [
    '{"command": "echo hi"',
    ["echo hi"],
    7,
    None,
    True,
]


def test_a_call_whose_input_is_no_object_is_answered_with_what_an_input_must_be(meet):
    broken = [call("bash", wrong) for wrong in NO_OBJECTS]
    script = [
        reply(broken, "tool_use"),
        says("Oh."),
    ]
    session = meet(script)
    results = session.results(1)
    assert len(results) == len(NO_OBJECTS)
    for result, wrong in zip(results, NO_OBJECTS, strict=True):
        assert result["is_error"]
        assert "must be a JSON object" in result["content"]
        assert repr(wrong) in result["content"]


IDS = [
    None,
    "",
    "with a space",
    5,
    "call_1",
    "call_1",
]


def test_a_call_with_a_bad_id_is_run_under_a_good_one(meet):
    odd = [{**bash("echo hi"), "id": call_id} for call_id in IDS]
    script = [
        reply(odd, "tool_use"),
        says("Done."),
    ]
    session = meet(script)
    results = session.results(1)
    assert [result["content"] for result in results] == ["hi\n"] * len(IDS)
    assert len({result["tool_use_id"] for result in results}) == len(IDS)
    assert results[4]["tool_use_id"] == "call_1"  # a good one stays


def test_an_id_of_an_earlier_turn_is_not_used_again(meet):
    again = {**bash("echo hi"), "id": "call_1"}
    turn = [reply([again], "tool_use"), says("Done.")]
    session = meet(turn + turn, questions=2)
    assert session.results(3)[0]["content"] == "hi\n"


NAMES = [
    None,
    "",
    " ",
    "two words",
    "n" * 300,
    5,
]


def test_a_call_with_a_bad_name_is_answered_with_the_tools_there_are(meet):
    nameless = [call(name, {}) for name in NAMES]
    without = {"type": "tool_use", "input": {}}
    script = [
        reply([*nameless, without], "tool_use"),
        says("Oh."),
    ]
    session = meet(script)
    for result in session.results(1):
        assert result["is_error"]
        assert "the tools are: bash" in result["content"]


UNKNOWN = {"type": "hologram", "light": 1}
TEXTLESS = {"type": "text"}
UNSIGNED = {"type": "thinking", "thinking": "Hm."}
THOUGHTLESS = {"type": "thinking", "signature": "c2ln"}


def test_a_block_that_cannot_go_back_is_left_out(meet):
    odd = [
        UNKNOWN,
        TEXTLESS,
        {"type": "text", "text": None},
        {"type": "text", "text": 5},
        {"type": "redacted_thinking", "data": 3},
        {"type": ["text"], "text": "Hm."},
        "no block at all",
        UNSIGNED,
        THOUGHTLESS,
        text("So."),
        bash("echo hi"),
        UNKNOWN,
    ]
    script = [
        reply(odd, "tool_use"),
        says("Done."),
    ]
    session = meet(script)
    assert types_of(session.sent(1)[1]) == ["text", "tool_use"]
    assert session.results(1)[0]["content"] == "hi\n"


def test_a_field_that_the_api_does_not_know_does_not_go_back(meet):
    odd = [{**text("So."), "mood": 1}, {**bash("echo hi"), "index": 0}]
    script = [
        reply(odd, "tool_use"),
        says("Done."),
    ]
    session = meet(script)
    said, call = session.sent(1)[1]["content"]
    assert said == text("So.")
    assert sorted(call) == ["id", "input", "name", "type"]


def test_a_number_that_json_does_not_know_goes_back_as_text(meet):
    odd = [float("nan"), float("inf"), -float("inf")]
    script = [
        calls(("bash", {"command": "echo hi", "speed": odd})),
        says("Oh."),
    ]
    session = meet(script)
    [call] = session.sent(1)[1]["content"]
    assert call["input"]["speed"] == ["NaN", "Infinity", "-Infinity"]
    [result] = session.results(1)
    assert result["is_error"]


def test_a_thought_that_was_cut_off_after_words_is_left_out(meet):
    session = meet([reply([text("So."), THOUGHT], "max_tokens")])
    assert session.sent()[1]["content"] == [text("So.")]


@pytest.mark.parametrize(
    "stop", ["end_turn", "stop", "stop_sequence", "pause_turn", "never_heard_of"]
)
def test_a_whole_call_is_run_whatever_the_reply_says_of_its_end(meet, stop):
    script = [
        reply([text("I look."), bash("echo hi")], stop),
        says("Done."),
    ]
    session = meet(script)
    assert session.results(1)[0]["content"] == "hi\n"
    assert shown(session)[-2:] == ["Done.", "[end_turn]"]


# ---- Requests that fail ------------------------------------------------------------------------

# How often the SDK tries, which knows that a bad key will not get better; the words shown.
FAILURES = {
    401: (1, "invalid x-api-key"),
    429: (3, "This request would exceed your organization's rate limit."),
    500: (3, "Internal server error"),
    529: (3, "Overloaded"),
}


def test_a_failure_that_passes_is_not_noticed(meet):
    script = [
        Status(429),
        says("Fine."),
        Status(500),
        says("Fine."),
        Status(529),
        says("Fine."),
    ]
    session = meet(script, questions=3)
    for number in (1, 2, 3):
        assert shown(session, number) == ["Fine.", "[end_turn]"]


def test_a_failure_that_lasts_costs_one_line(meet):
    script = []
    for code, (tries, _) in FAILURES.items():
        script += [Status(code)] * tries
    session = meet(script, questions=4)
    for number, (_, words) in enumerate(FAILURES.values(), 1):
        [line] = shown(session, number)
        assert line.endswith(f"Error: {words}")
    assert session.sent() == [GO, GO, GO, GO, NOW]
    assert len(session.api.requests) == 11


MIDDLE = {"400": Status(400, "no, thank you"), "401": Status(401), "a cut": Cut()}


@pytest.mark.parametrize("failure", MIDDLE.values(), ids=MIDDLE)
def test_a_failure_in_the_middle_of_a_turn_keeps_what_was_done(meet, failure):
    script = [
        runs("echo done"),
        failure,
    ]
    session = meet(script, max_retries=0)
    assert session.sent()[:3] == session.sent(1)
    assert contents(session.results(1)) == ["done"]
    _, _, error = shown(session)
    assert "Error: " in error


def test_a_cut_connection_costs_one_line(meet):
    session = meet([Cut()], max_retries=0)
    [line] = shown(session)
    assert line.startswith("APIConnectionError: ")


@pytest.mark.parametrize("lesson", LOOPS)
def test_without_a_key_the_person_is_told_what_to_do(start, monkeypatch, lesson):
    session = start(lesson, [])
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    session.lesson.client = anthropic.Anthropic(base_url=session.api.url)
    session.talk("go", "and now?")
    assert not session.api.requests
    assert shown(session, 1) == shown(session, 2)
    [line] = shown(session)
    assert "ANTHROPIC_API_KEY" in line
    assert ".env" in line
    assert f"python tests/offline.py {lesson}" in line


@pytest.mark.parametrize("lesson", LESSONS)
def test_an_error_at_the_prompt_that_speaks_of_length_takes_nothing_back(
    start, monkeypatch, lesson
):
    """As a learner's own command at the prompt may raise one, with nothing in the list."""

    def fails(messages):
        raise OSError("File name too long: prompt is too long")

    session = start(lesson, [says("Hello.")])
    monkeypatch.setattr(session.lesson, "show_messages", fails)
    seen = session.talk("/messages", "hello", "/messages", "still there?")
    assert seen.count("OSError: File name too long") == 2
    first, _, last = session.sent()
    assert first["content"] == "hello"
    assert last["content"] == "still there?"


# s05 compresses first: test_compression.py.
@pytest.mark.parametrize("lesson", LESSONS[:4])
@pytest.mark.parametrize(
    "refusal, kept",
    [
        (Status(400, "prompt is too long: 9 tokens > 8 maximum"), False),
        (Status(413), False),
        (Status(400, "no, thank you"), False),
        (Status(401, "who are you?"), True),
    ],
)
def test_words_that_the_api_does_not_take_are_taken_back(start, lesson, refusal, kept):
    script = [
        refusal,
        says("Hello."),
    ]
    session = start(lesson, script)
    session.talk("a long story", "hello")
    words = [message["content"] for message in session.sent()]
    if kept:
        assert words == ["a long story", "hello"]
    else:
        assert words == ["hello"]


# ---- Ctrl-C ------------------------------------------------------------------------------------


def pressed_while_waiting():
    interrupt()
    yield Wait(threading.Event(), says("too late"))


@posix
def test_ctrl_c_in_a_request_leads_back_to_the_prompt(meet):
    session = meet(pressed_while_waiting())
    assert shown(session) == ["[interrupted]"]
    assert session.sent() == [GO, NOW]


@posix
def test_ctrl_c_in_a_later_request_keeps_what_was_done(meet):
    session = meet(itertools.chain([runs("echo done")], pressed_while_waiting()))
    assert session.results(1)[0]["content"] == "done\n"
    assert session.sent()[:3] == session.sent(1)


@posix
def test_ctrl_c_in_a_tool_answers_every_call(meet):
    press = f"echo two; sleep 0.1; kill -INT {os.getpid()}; sleep 20"
    session = meet([runs("echo one", press, "echo three > file")])
    results = session.sent(1)[2]["content"]
    assert marks(results) == [False, True, True]
    first, second, third = [result["content"] for result in results]
    assert first == "one\n"
    assert second.startswith("Interrupted while it ran: it may have had effects.")
    assert second.endswith("two\n")
    assert third.startswith("Not run")
    assert not os.listdir(session.folder)
    assert len(session.api.requests) == 2  # none between Ctrl-C and the second question


class Pressed(io.RawIOBase):
    """The input of a person who presses Ctrl-C instead of typing."""

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, buffer):
        interrupt()
        return 0


@posix
@pytest.mark.parametrize("lesson", LOOPS)
def test_ctrl_c_at_the_prompt_leaves_without_a_word(monkeypatch, capfd, lesson):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Pressed()))
    path = ROOT / lesson / "agent.py"
    # An exit status other than 0 would be raised.
    runpy.run_path(str(path), run_name="__main__")
    assert capfd.readouterr() == (f"{lesson[:3]} >> \n", "")


# ---- The whole of it ---------------------------------------------------------------------------


def test_every_request_asks_for_the_cache(meet):
    script = [
        runs("echo hi"),
        says("Done."),
    ]
    session = meet(script)
    asked = [request["cache_control"] for request in session.api.requests]
    assert asked == [{"type": "ephemeral"}] * 3


@pytest.mark.parametrize("lesson", LESSONS[::2])
def test_a_session_of_40_turns_reads_its_history_from_the_cache(start, lesson):
    def script(request):
        is_question = isinstance(request["messages"][-1]["content"], str)
        if is_question:
            return runs("echo 1; echo 2", text="I look.")
        return says("So it says.\n" * 9)

    session = start(lesson, script)
    session.talk(*["What does it say?"] * 20)
    assert not session.api.refused
    assert len(session.api.usage) == 40
    read = 0
    whole = 0
    for usage in session.api.usage:
        read += usage["cache_read_input_tokens"]
        whole += sum(usage.values()) - usage["output_tokens"]
    assert read > 0.9 * whole


FAULTS = [
    Status(400),
    Status(401),
    Status(529),
    Cut(),
    says("Fine."),
    calls(("fly", {})),
    calls(("bash", {})),
    runs("echo hi", "exit 3", text="I look."),
    reply([text("half \ud83d"), bash("echo hi")], "max_tokens"),
    reply([text("I"), bash("echo hi")], "refusal"),
    reply([THOUGHT, bash("echo hi")], "tool_use"),
    reply([THOUGHT, text(""), text("So.")]),
    *NOTHING,
]


@pytest.mark.parametrize("lesson", LOOPS)
def test_no_sequence_of_faults_spoils_the_history(start, lesson):
    faults = random.Random(lesson).choices(FAULTS, k=30)
    session = start(lesson, faults)
    session.lesson.client = session.lesson.client.with_options(max_retries=0)
    session.talk(*["go"] * 40)
    assert not session.api.refused
    assert len(session.api.requests) >= 40
    assert shown(session, 40) == ["(the script has ended)", "[end_turn]"]
