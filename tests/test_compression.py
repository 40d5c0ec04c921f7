"""Lesson s05: what is cut is on disk first, and the list that is left goes on working."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import anthropic
import pytest

from conftest import LESSONS, interrupt, load
from fake_api import THE_END, Status, Wait, as_json, calls, reply, says, tokens

LESSON = LESSONS[-1]
SECTIONS = ["## Session intent", "## Summary", "## Artifacts", "## Next steps"]
SUMMARY = says("\n".join(f"{section}\nOf this, something." for section in SECTIONS))
EVENT = re.compile(
    r"(trimmed|summarised): ([\d,]+) -> ([\d,]+) tokens; (\.agent/\S+\.txt) has all\]"
)
PATH = re.compile(r"\.agent/[\w./-]+\.txt")
WINDOW, LIMIT = 20_000, 17_000  # tokens; the limit is 0.85 of the window
GOAL = 'Count the sheep of *every* farm: <all> & "each", even 100 % of them.'
LOOK = ("glob", {"pattern": "*.none"})  # a call that costs next to nothing

# ---- What the tests say, and where they look ---------------------------------------------------


def wants_summary(request):
    last = request["messages"][-1]["content"]
    return isinstance(last, str) and all(section in last for section in SECTIONS)


def model(*steps, summary=SUMMARY):
    """A script of `steps`, replies or functions from the request to one; `summary` is played when one is asked for."""
    left = iter(steps)

    def script(request):
        step = summary if wants_summary(request) else next(left, THE_END)
        return step(request) if callable(step) else step

    return script


def text(number, size=3_000):
    """A text of so many characters that starts like no other."""
    return f"mark-{number} ".ljust(size, "x")


def wordy(number, size=3_000):
    """A step with words, which trimming leaves as they are; only a summary helps."""
    return calls(LOOK, text=text(number, size))


def write(number):
    return "write_file", {"path": f"{number}.txt", "content": text(number)}


def read(path, **span):
    return "read_file", {"path": path, **span}


def edit(number):
    return "edit_file", {
        "path": f"{number}.txt",
        "old_text": text(number),
        "new_text": text(-number),
    }


def task(agent_type, prompt="Look around."):
    return calls(
        ("task", {"prompt": prompt, "agent_type": agent_type, "description": "look"})
    )


def python(code):
    """A step that runs this code in a shell."""
    script = pathlib.Path(f"run{len(os.listdir())}.py")
    script.write_text(code, encoding="utf-8")
    return calls(("bash", {"command": f'"{sys.executable}" {script}'}))


def stored(content):
    """The file that a pointer leads to, with the line endings that it has."""
    return pathlib.Path(PATH.search(content)[0]).read_bytes().decode()


def dialogue(session):
    """The lists that were sent, without those that asked for a summary."""
    return [
        request["messages"]
        for request in session.api.requests
        if not wants_summary(request)
    ]


def cuts(session):
    """For each compression, the whole list that it met and the one that it made of it."""
    sent = dialogue(session)
    return [
        (before + after[-2:], after)
        for before, after in zip(sent, sent[1:])
        if after[: len(before)] != before
    ]


def events(seen):
    """The lines about compression: (what, tokens before, tokens after, path)."""
    return [
        (what, int(before.replace(",", "")), int(after.replace(",", "")), path)
        for what, before, after, path in EVENT.findall(seen)
    ]


def total(usage):
    return sum(usage.values())


def leaves(value):
    """All strings in a JSON value, in order."""
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else []
    )
    return (
        [value]
        if isinstance(value, str)
        else [leaf for part in parts for leaf in leaves(part)]
    )


def newest_tenth(messages):
    """Where the newest 10 % of the window begin; a result counts with its call."""
    sizes = [tokens(as_json(message)) for message in messages]
    start = next(
        index for index in range(len(messages)) if sum(sizes[index:]) <= WINDOW / 10
    )
    return start - (messages[start]["role"] == "user")


def only_too_long(session):
    """Whether the API refused something, and nothing but for its size."""
    return {complaint.partition(":")[0] for complaint in session.api.refused} == {
        "prompt is too long"
    }


# ---- Offload -----------------------------------------------------------------------------------

LINES = [f"line {number} of the log, written by Zoë 🐑\r\n" for number in range(60_000)]
PRINT_LINES = """import sys
for number in range(60_000):
    sys.stdout.buffer.write(f"line {number} of the log, written by Zoë 🐑\\r\\n".encode())
"""


def test_a_result_of_two_megabytes_leaves_head_tail_size_and_path(start):
    session = start(LESSON, model(python(PRINT_LINES), says("ok")))
    session.talk("print it")
    (result,) = session.results()
    whole = "".join(LINES)
    assert stored(result["content"]) == whole and len(whole) > 2_000_000
    assert (
        LINES[0] in result["content"]
        and LINES[-1] in result["content"]
        and len(result["content"]) < 5_000
    )
    assert f"{len(whole.encode()):,} bytes" in result["content"]
    assert not result["is_error"] and not session.api.refused


def test_the_model_reaches_the_middle_of_an_offloaded_result(start):
    def look(request):
        path = PATH.search(request["messages"][-1]["content"][0]["content"])[0]
        return calls(
            read(path, offset=30_001, limit=2),
            ("grep", {"pattern": "line 41234 ", "path": path}),
        )

    session = start(LESSON, model(python(PRINT_LINES), look, says("ok")))
    session.talk("print it")
    by_line, by_pattern = session.results()
    assert (
        "".join(LINES[30_000:30_002]) in by_line["content"]
        and LINES[30_002] not in by_line["content"]
    )
    assert LINES[41_234].strip() in by_pattern["content"]
    assert not session.api.refused


def test_output_is_no_longer_cut_at_50_000_characters(start):
    session = start(LESSON, model(python("print('y' * 70_000)"), says("ok")))
    session.talk("print it")
    assert session.results()[0]["content"].strip() == "y" * 70_000


def test_what_a_killed_command_has_printed_is_kept_whole(start):
    session = start(LESSON, model(python("while True: print('n' * 99)"), says("ok")))
    session.lesson.PRINT_LIMIT = 500_000
    session.talk("print it for ever")
    (result,) = session.results()
    printed = stored(result["content"]).split()
    assert result["is_error"] and len(printed) > 5_000 and {*printed[:-1]} == {"n" * 99}


@pytest.mark.skipif(os.name != "posix", reason="kill is a POSIX command")
def test_what_a_command_printed_before_ctrl_c_is_kept_whole(start):
    count = calls(
        ("bash", {"command": f"seq 100000; kill -INT {os.getpid()}; sleep 60"})
    )
    session = start(LESSON, model(count, says("ok")))
    session.talk("count", "go on")
    (result,) = session.sent()[2]["content"]
    assert result["content"].startswith("Interrupted")
    assert stored(result["content"]) == "".join(
        f"{number}\n" for number in range(1, 100_001)
    )
    assert not session.api.refused


@pytest.mark.parametrize(
    "window, letter", [(3_000, "a"), (10_000, "漢")], ids=["3000", "10000 of Chinese"]
)
def test_a_small_window_offloads_a_result_once_and_whole(start, window, letter):
    line = letter * 9 + "\n"
    code = f"import sys; sys.stdout.buffer.write({line!r}.encode() * 4_000)"
    session = start(LESSON, model(python(code), says("ok")), window=window)
    session.talk("print it")
    assert stored(session.results()[0]["content"]) == line * 4_000
    assert not session.api.refused


def test_a_huge_message_of_the_person_is_offloaded_too(start):
    session = start(LESSON, model(says("Read."), says("Yes.")), window=WINDOW)
    assert "Yes." in session.talk("z" * 100_000, "still there?")
    assert stored(session.sent()[0]["content"]) == "z" * 100_000
    assert not session.api.refused


def test_a_file_on_disk_is_never_overwritten(start):
    def delete(request):
        first = PATH.search(request["messages"][2]["content"][0]["content"])[0]
        return python(f"import os; os.remove({first!r})")

    one, two, three = (python(f"print('{number}' * 100_000)") for number in (1, 2, 3))
    session = start(LESSON, model(one, two, delete, three, says("ok")))
    session.talk("print three times")
    kept = [
        stored(session.sent()[at]["content"][0]["content"]).strip() for at in (4, 8)
    ]
    assert kept == ["2" * 100_000, "3" * 100_000]


def test_a_folder_that_cannot_be_made_costs_no_output(start):
    pathlib.Path(".agent").write_text("The person's own file.")
    session = start(LESSON, model(python(PRINT_LINES), says("ok"), says("Yes.")))
    assert "Yes." in session.talk("print it", "still there?")
    assert LINES[0] in session.sent()[2]["content"][0]["content"]
    assert pathlib.Path(".agent").read_text() == "The person's own file."


# ---- Trim --------------------------------------------------------------------------------------


@pytest.fixture
def trimming(start):
    """A session of large inputs and results that was trimmed once: itself, the list before and the list after."""
    steps = [
        step
        for n in range(1, 9)
        for step in (calls(write(n)), calls(read(f"{n}.txt"), edit(n)))
    ]
    session = start(LESSON, model(*steps), window=WINDOW)
    session.talk(GOAL)
    (cut,) = cuts(session)
    assert [what for what, *_ in events(session.seen)] == [
        "trimmed"
    ] and not session.api.refused
    return session, *cut


def changes(before, after):
    """What trimming put in place of what: (index of the message, call id, old text, new text)."""
    for index, (old, new) in enumerate(zip(before, after)):
        for was, now in zip(old["content"], new["content"]):
            if was != now:
                pairs = zip(leaves(was), leaves(now))
                name = was.get("id", was.get("tool_use_id"))
                yield from (
                    (index, name, *pair) for pair in pairs if pair[0] != pair[1]
                )


def test_trimming_waits_for_the_limit_and_then_frees_half_of_it(trimming):
    session, before, after = trimming
    at = dialogue(session).index(after)
    *calm, last = [total(usage) for usage in session.api.usage[:at]]
    assert max(calm) <= LIMIT < last + tokens(as_json(before[-1]))
    assert total(session.api.usage[at]) < LIMIT / 2


def test_trimming_changes_large_inputs_and_results_outside_the_newest_tenth(trimming):
    _, before, after = trimming
    changed = {(index, old) for index, _, old, _ in changes(before, after)}
    large = {
        (index, leaf)
        for index, message in enumerate(before)
        for leaf in leaves(message)
        if len(leaf) > 1_000
    }
    assert changed == {
        (index, leaf) for index, leaf in large if index < newest_tenth(before)
    }
    assert changed != large and len(changed) > 10


def test_trimming_keeps_ids_names_pairs_and_order(trimming):
    def shape(message):
        blocks = [
            {**block, "content": 0, "input": [*block.get("input", {})]}
            for block in message["content"]
        ]
        return message["role"], blocks

    _, before, after = trimming
    assert before[0] == after[0] and [*map(shape, before[1:])] == [
        *map(shape, after[1:])
    ]


def test_every_pointer_leads_to_the_original(trimming):
    _, before, after = trimming
    for _, name, old, new in changes(before, after):
        assert old in stored(new).partition(f"id: {name}\n")[2]
        assert name in new and len(new) < 200


def test_the_model_finds_a_trimmed_result_by_its_pointer(trimming):
    session, before, after = trimming
    _, _, old, new = next(changes(before, after))
    assert f"content: {old[:20]}" in session.lesson.grep(old[:20], PATH.search(new)[0])


# ---- Summarise ---------------------------------------------------------------------------------

PLAN = (
    "todo",
    {
        "items": [
            {"text": "visit the farms", "status": "completed"},
            {"text": "count the sheep", "status": "in_progress"},
            {"text": "add it up", "status": "pending"},
        ]
    },
)


@pytest.fixture
def summarising(start):
    """A session of words that was summed up once: itself, the list before and the list after."""
    session = start(
        LESSON, model(calls(PLAN), *[wordy(n) for n in range(22)]), window=WINDOW
    )
    session.talk(GOAL)
    (cut,) = cuts(session)
    assert [what for what, *_ in events(session.seen)] == [
        "summarised"
    ] and not session.api.refused
    return session, *cut


def test_the_summary_request_is_the_list_itself_and_one_instruction(summarising):
    session, before, _ = summarising
    at = next(
        number
        for number, request in enumerate(session.api.requests)
        if wants_summary(request)
    )
    asked, last = session.api.requests[at], session.api.requests[at - 1]
    assert as_json(asked["messages"][:-1]) == as_json(before)
    assert as_json({**asked, "messages": []}) == as_json({**last, "messages": []})


def test_the_summary_request_reads_the_cache(summarising):
    session, *_ = summarising
    at = next(
        number
        for number, request in enumerate(session.api.requests)
        if wants_summary(request)
    )
    usage = session.api.usage[at]
    assert usage["cache_read_input_tokens"] > 0.9 * (
        total(usage) - usage["output_tokens"]
    )


def test_after_a_summary_the_list_is_one_message_and_the_newest_tail(summarising):
    _, before, (first, *tail) = summarising
    for part in (*SECTIONS, GOAL, "[>] count the sheep", "[ ] add it up"):
        assert part in first["content"]
    assert first["role"] == "user" and before[0]["content"] in stored(first["content"])
    assert tail == before[newest_tenth(before) :] and tail[0]["role"] == "assistant"


def test_the_history_holds_everything_once_and_in_order_also_after_three_compressions(
    start,
):
    steps = []
    for n in range(16):
        pathlib.Path(f"{n}-read.txt").write_text(text(f"{n}-read"))
        steps += [wordy(f"{n}-words"), calls(write(n)), calls(read(f"{n}-read.txt"))]
    session = start(
        LESSON, model(*steps[:20], says("mark-answer"), *steps[20:]), window=8_000
    )
    session.talk("mark-first: read it all", "mark-second: go on")
    assert [what for what, *_ in events(session.seen)].count(
        "summarised"
    ) >= 3 and not session.api.refused
    said = dict.fromkeys(
        leaf
        for sent in dialogue(session)
        for leaf in leaves(sent)
        if leaf.startswith("mark-")
    )
    left = leaves(dialogue(session)[-1])
    gone, history = [leaf for leaf in said if leaf not in left], stored(left[1])
    places = [history.find(leaf) for leaf in gone]
    assert places == sorted(places) and -1 not in places and len(gone) > 30
    assert all(history.count(leaf) == 1 for leaf in gone if leaf.endswith("x"))


# ---- Two evaluations: the fact is found again, the task goes on --------------------------------


@pytest.mark.parametrize(
    "look",
    [
        lambda path: ("grep", {"pattern": "spare key", "path": path}),
        lambda path: read(path, limit=20),
    ],
    ids=["grep", "read_file"],
)
def test_a_fact_that_was_summed_up_is_found_again_on_disk(start, look):
    def search(request):
        assert "blue pot" not in as_json(request["messages"])
        return calls(look(PATH.findall(request["messages"][0]["content"])[-1]))

    def answer(request):
        return says(
            "It is there."
            if "under the blue pot" in as_json(request["messages"][-1])
            else "I do not know."
        )

    words = [wordy(n) for n in range(6)]
    session = start(
        LESSON,
        model(*words, says("Noted."), *words, search, answer),
        window=WINDOW,
        COMPRESS_AT="0.15",
    )
    assert "It is there." in session.talk(
        "The spare key is under the blue pot. Look round.", "Where is it?"
    )
    assert not session.api.refused


def test_a_task_under_way_goes_on_to_its_end(start):
    """The model here remembers nothing: it finds goal and next step in the request before it, or asks back."""

    def plan(done):
        steps = [
            {
                "text": f"step {n} of the move",
                "status": "completed" if n <= done else "pending",
            }
            for n in range(1, 13)
        ]
        return "todo", {"items": steps}

    def mover(request):
        if wants_summary(request):
            return SUMMARY
        seen = "\n".join(leaves(request["messages"]))
        boards = re.findall(r"((?:\[[ x]\] step \d+ of the move\n)+)", seen)
        if GOAL not in seen or len(request["messages"]) > 1 and not boards:
            return says("What was I to do?")
        done = boards[-1].count("[x]") if boards else -1
        return (
            says("All is moved.")
            if done == 12
            else calls(write(done), plan(done + 1), text="On I go. " * 60)
        )

    session = start(LESSON, mover, window=WINDOW, COMPRESS_AT="0.1")
    assert "All is moved." in session.talk(GOAL)
    assert len(dialogue(session)) == 14 and len(cuts(session)) >= 3
    assert not session.api.refused


# ---- Overflow ----------------------------------------------------------------------------------

TOO_LONG = "prompt is too long: 9 tokens > 8 maximum"
SMALL = 6_000  # tokens that the server takes while the lesson believes in more


def heavy(count, last="Done."):
    """Steps of large results, and last words."""
    return [*[calls(read("large.txt"))] * count, says(last)]


@pytest.fixture
def overflowing(start):
    """``overflowing(steps)``: a session that the server stops at SMALL, with a large file to read."""
    pathlib.Path("large.txt").write_text(text(0))
    return lambda *steps: start(
        LESSON, model(*steps), window=SMALL, CONTEXT_WINDOW="100000"
    )


@pytest.mark.parametrize(
    "steps",
    [
        heavy(12),
        [task("explore"), *heavy(12, "The child is done."), says("Done.")],
        [
            task("code"),
            *[wordy(n) for n in range(12)],
            says("The child is done."),
            says("Done."),
        ],
        [*heavy(2)[:-1], task("fix"), *heavy(12, "The child is done."), says("Done.")],
        [wordy(n) for n in range(12)] + [says("Done.")],
        [calls(*[read("large.txt")] * 20), says("Done.")],
        [calls(*[read("large.txt")] * 20, ("compact", {})), says("Done.")],
    ],
    ids=[
        "parent",
        "child",
        "child with words",
        "fork",
        "also the summary",
        "one batch",
        "compact in a batch",
    ],
)
def test_a_prompt_that_is_too_long_is_compressed_and_sent_once_more(overflowing, steps):
    session = overflowing(*steps, says("Yes."))
    seen = session.talk(GOAL, "still there?")
    assert "Done." in seen and "Yes." in seen
    assert only_too_long(session)


def test_an_overflow_in_a_child_leaves_the_parents_list_alone(overflowing):
    session = overflowing(
        task("explore"), *heavy(12, "The child is done."), says("Done.")
    )
    session.talk(GOAL)
    assert [message["role"] for message in session.sent()] == [
        "user",
        "assistant",
        "user",
    ]
    assert session.results()[0]["content"] == "The child is done." and only_too_long(
        session
    )


@pytest.mark.parametrize(
    "refusal",
    [
        Status(400, TOO_LONG),
        Status(413),
        Status(
            400,
            "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000",
        ),
        Status(
            400, "the request exceeds the available context size, try increasing it"
        ),
        Status(400, "This model's maximum context length is 8192 tokens."),
        reply(says("Half an ans")["content"], "model_context_window_exceeded"),
    ],
    ids=["api", "413", "max_tokens", "llama.cpp", "proxy", "stop reason"],
)
def test_what_says_too_long_is_compressed_and_sent_once_more(start, refusal):
    session = start(
        LESSON,
        model(*[wordy(n) for n in range(5)], refusal, says("Done."), says("Yes.")),
    )
    seen = session.talk(GOAL, "still there?")
    assert [what for what, *_ in events(seen)] == ["summarised"]
    assert "Done." in seen and "Yes." in seen and "Half" not in seen
    assert len(cuts(session)) == 1 and not session.api.refused


def test_when_nothing_helps_there_is_one_line_and_the_prompt(start):
    refusal = Status(400, TOO_LONG)
    steps = model(wordy(1), wordy(2), refusal, refusal, says("Yes."), summary=refusal)
    session = start(LESSON, steps)
    seen = session.talk(GOAL, "still there?").splitlines()
    tried, line, answer, stop, _ = seen[-5:]
    assert "not summarised, nothing lost" in tried and TOO_LONG in line
    assert "Yes." in answer and stop == "[end_turn]"
    assert session.sent()[:5] == dialogue(session)[2] and not session.api.refused


def test_a_reply_that_the_window_cuts_twice_is_shown_and_kept(start):
    cut = reply(says("Half an ans")["content"], "model_context_window_exceeded")
    session = start(LESSON, model(wordy(1), wordy(2), cut, cut, says("Yes.")))
    seen = session.talk(GOAL, "still there?").splitlines()
    assert seen[-5:-2] == [
        "Half an ans",
        "[model_context_window_exceeded]",
        "s05 >> Yes.",
    ]
    assert session.sent()[-2]["content"] == cut["content"] and not session.api.refused


def test_an_overflow_that_stays_ends_the_child_and_not_the_parent(start):
    refusal = Status(400, TOO_LONG)
    session = start(
        LESSON, model(task("explore"), refusal, refusal, says("Done."), summary=refusal)
    )
    assert "Done." in session.talk(GOAL)
    (result,) = session.results()
    assert (
        result["is_error"]
        and "too long" in result["content"]
        and not session.api.refused
    )


def test_a_long_reply_with_a_call_does_not_end_the_session(overflowing):
    chat = [step for n in range(9) for step in (says(f"mark-{n}"), says("Yes."))]
    session = overflowing(wordy("long", 16_000), *chat)
    seen = session.talk(
        *[f"What do you say to this? {text(n, 1_000)}" for n in range(9)]
    )
    assert "too long" not in seen and only_too_long(session)


def test_many_small_results_in_one_batch_do_not_end_the_session(start):
    pathlib.Path("small.txt").write_text(text(0, 1_000))
    session = start(
        LESSON,
        model(calls(*[read("small.txt")] * 40), says("Done."), says("Yes.")),
        window=8_000,
    )
    assert "Yes." in session.talk(GOAL, "still there?") and only_too_long(session)


# ---- A summary that fails loses nothing --------------------------------------------------------

NO_SUMMARIES = {  # what comes instead, as often as it is asked for
    "an error": [Status(400, "Bad luck")],
    "overloaded": [Status(529)] * 3,
    "nothing": [reply([])],
    "blank": [says(" \n")],
    "a tool call": [calls(write(99), text="First I write.")],
    "cut off": [reply(SUMMARY["content"], "max_tokens")],
    "refused": [reply([], "refusal")],
    "too long": [Status(400, TOO_LONG)],
    "window exceeded": [reply(SUMMARY["content"], "model_context_window_exceeded")],
    "longer than the list": [says("word " * 9_000)],
}


@pytest.mark.parametrize("bad", NO_SUMMARIES.values(), ids=NO_SUMMARIES)
def test_a_summary_that_fails_loses_nothing_and_is_said(start, bad):
    summaries = iter([*bad, SUMMARY])
    words, compact = [wordy(n) for n in range(5)], calls(("compact", {}))
    steps = [*words, compact, says("Done."), wordy(5), compact, says("Yes.")]
    session = start(LESSON, model(*steps, summary=lambda request: next(summaries)))
    seen = session.talk(GOAL, "still there?")
    assert (
        seen.count("not summarised, nothing lost: ") == 1
        and "Done." in seen
        and "Yes." in seen
    )
    ((before, (first, *_)),) = cuts(session)
    assert [leaf for leaf in leaves(before) if leaf.startswith("mark-")] == [
        text(n) for n in range(6)
    ]
    assert all(stored(first["content"]).count(text(n)) == 1 for n in range(6))
    assert not pathlib.Path("99.txt").exists() and not session.api.refused


def test_a_summary_that_fails_leaves_the_size_as_it_was(start):
    summaries = iter([calls(LOOK), SUMMARY, SUMMARY])
    steps = model(
        *[wordy(n) for n in range(12)],
        says("Yes."),
        summary=lambda request: next(summaries),
    )
    session = start(LESSON, steps, window=SMALL, CONTEXT_WINDOW="100000")
    session.talk(GOAL, "still there?")
    ((_, before, *_), *_) = events(session.seen)
    assert (
        before > 5_500
    )  # the whole list, and not the half that the failed summary was about


@pytest.mark.skipif(os.name != "posix", reason="interrupt() sends a signal")
def test_ctrl_c_in_a_summary_leaves_the_list_as_it_was(start):
    def pressed(request):
        interrupt()
        return Wait(threading.Event(), SUMMARY)

    session = start(
        LESSON,
        model(
            *[wordy(n) for n in range(5)],
            calls(("compact", {})),
            says("Yes."),
            summary=pressed,
        ),
    )
    seen = session.talk(GOAL, "still there?")
    assert "[interrupted]" in seen and "Yes." in seen
    assert not cuts(session) and not session.api.refused


# ---- Summaries that cannot help ----------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"COMPRESS_AT": "0.003"}, {"CONTEXT_WINDOW": "8000", "COMPRESS_AT": "0.08"}],
    ids=str,
)
def test_summaries_that_cannot_help_are_not_paid_at_every_step(start, settings):
    steps = [calls(LOOK, text=text(n, 400)) for n in range(12)]
    session = start(LESSON, model(*steps, says("Done.")), **settings)
    seen = session.talk(GOAL)
    summaries = sum(map(wants_summary, session.api.requests))
    assert "Done." in seen
    assert summaries <= 3
    assert seen.count("raise CONTEXT_WINDOW or COMPRESS_AT") == 1


def test_a_window_too_small_for_the_tools_is_said_at_the_start(start):
    session = start(LESSON, model(says("Hello.")), CONTEXT_WINDOW="700")
    first, *_ = session.talk("hello").splitlines()
    assert "raise CONTEXT_WINDOW or COMPRESS_AT" in first and "the tools alone" in first


def test_words_that_were_offloaded_and_then_refused_are_taken_back(start):
    too_long = Status(400, TOO_LONG)
    session = start(
        LESSON,
        model(says("Noted."), too_long, too_long, says("Yes."), summary=too_long),
        window=WINDOW,
    )
    session.talk("one", "z" * 100_000, "two")
    assert [
        message["content"] for message in session.sent() if message["role"] == "user"
    ] == ["one", "two"]


# ---- The limits --------------------------------------------------------------------------------


def test_the_window_comes_from_the_environment_before_the_models_api(start):
    session = start(LESSON, model(says("ok")), window=50_000, CONTEXT_WINDOW="30000")
    session.talk("hello")
    assert session.lesson.context_window() == 30_000 and not session.api.model_requests


def test_the_window_comes_from_the_models_api_and_is_asked_for_once(start):
    session = start(
        LESSON, model(calls(LOOK), says("ok")), window=50_000, MODEL="a-model"
    )
    session.talk("hello")
    assert session.lesson.context_window() == 50_000
    assert session.api.model_requests == ["/v1/models/a-model"]


def test_a_server_without_a_models_api_has_200_000(start):
    session = start(LESSON, model(calls(LOOK), says("ok")), models=False)
    assert "ok" in session.talk("hello") and session.lesson.context_window() == 200_000


def test_a_server_that_is_not_there_has_200_000_and_costs_a_line(start):
    session = start(LESSON, model(says("ok")))
    answering = session.lesson.client
    session.lesson.client = anthropic.Anthropic(
        base_url="http://127.0.0.1:9", api_key="test", max_retries=0
    )
    assert "APIConnectionError: " in session.talk("hello").splitlines()[0]
    session.lesson.client = answering
    assert "ok" in session.talk("hello") and session.lesson.context_window() == 200_000


@pytest.mark.parametrize(
    "given, share", [("", 0.85), ("0.1", 0.1), (".5", 0.5), ("1", 1)]
)
def test_compression_is_at_any_share_of_the_window_up_to_all(monkeypatch, given, share):
    monkeypatch.setenv("COMPRESS_AT", given)
    assert load(LESSON).COMPRESS_AT == share


@pytest.mark.parametrize(
    "name, value",
    [
        *[
            ("CONTEXT_WINDOW", value)
            for value in ("many", "-1", "200k", "1e6", "8,000", "²")
        ],
        *[
            ("COMPRESS_AT", value)
            for value in ("often", "0", "-0.1", "1.5", "85%", "nan", "0,5")
        ],
    ],
)
def test_nonsense_in_the_settings_is_one_clear_line_at_the_start(
    monkeypatch, name, value
):
    monkeypatch.setenv(name, value)
    with pytest.raises(
        SystemExit
    ) as stop:  # Python prints its text and leaves with status 1
        load(LESSON)
    assert f"{name}={value}" in stop.value.code and "\n" not in stop.value.code


# ---- compact -----------------------------------------------------------------------------------


def test_compact_in_a_batch_is_answered_with_the_others_before_the_summary(start):
    steps = [
        *[wordy(n) for n in range(12)],
        calls(write(1), ("compact", {}), read("1.txt")),
        says("Done."),
    ]
    session = start(LESSON, model(*steps), window=WINDOW)
    assert "Done." in session.talk(GOAL)
    summary = next(
        request["messages"]
        for request in session.api.requests
        if wants_summary(request)
    )
    _, asked, answered, _ = summary[-4:]
    assert [result["tool_use_id"] for result in answered["content"]] == [
        call["id"] for call in asked["content"]
    ]
    assert not any(result["is_error"] for result in answered["content"])
    first, *tail = session.sent()
    assert GOAL in first["content"] and tail == summary[-len(tail) - 1 : -1]
    assert not session.api.refused


def test_compact_shortens_the_list_also_far_below_the_limit(start):
    session = start(
        LESSON,
        model(*[wordy(n) for n in range(9)], calls(("compact", {})), says("Done.")),
    )
    ((_, before, after, _),) = events(session.talk(GOAL))
    assert after < before and len(session.sent()) < 20


def test_a_turn_after_compact_does_not_compress_again(start):
    session = start(
        LESSON,
        model(
            wordy(1),
            wordy(1.5),
            calls(("compact", {})),
            wordy(2),
            wordy(3),
            says("Done."),
        ),
    )
    assert len(events(session.talk(GOAL, "more", "and more"))) == 1


def test_a_child_that_has_no_compact_cannot_ask_for_it(start):
    session = start(
        LESSON,
        model(
            task("explore"),
            calls(("compact", {})),
            says("The child is done."),
            says("Done."),
        ),
    )
    assert "Done." in session.talk(GOAL) and not any(
        map(wants_summary, session.api.requests)
    )


# ---- Children ----------------------------------------------------------------------------------


def summed_up(session):
    """The messages that stand for what was summed up, in the parent and in children."""
    return [
        after[0]["content"]
        for _, after in cuts(session)
        if "## History" in after[0]["content"]
    ]


def test_a_child_compresses_its_own_list_into_its_own_file(start):
    steps = [
        *[wordy(f"parent-{n}") for n in range(9)],
        task("explore"),
        *[wordy(f"child-{n}") for n in range(9)],
        says("The child is done."),
        says("Done."),
    ]
    session = start(LESSON, model(*steps), window=8_000)
    session.talk(GOAL)
    parent, child = dict.fromkeys(map(stored, summed_up(session)))
    assert "mark-child-0" in child and "mark-parent" not in child
    assert "mark-parent-0" in parent and "mark-child" not in parent
    assert not session.api.refused


def test_a_compressed_child_is_told_its_prompt_and_not_the_parents_plan(start):
    steps = [
        calls(PLAN),
        task("code", "Look into every corner."),
        *[wordy(n) for n in range(9)],
        says("Done."),
    ]
    session = start(LESSON, model(*steps), window=8_000)
    session.talk(GOAL)
    first, *_ = summed_up(session)
    assert (
        "Look into every corner." in first
        and "count the sheep" not in first
        and GOAL not in first
    )


def test_a_child_with_a_structured_answer_sums_up_in_words(start):
    steps = [
        task("review"),
        *[wordy(n) for n in range(9)],
        says('{"verdict": "pass"}'),
        says("Done."),
    ]
    session = start(LESSON, model(*steps), window=8_000)
    session.talk(GOAL)
    child = [
        request
        for request in session.api.requests
        if "Check the work" in request["system"]
    ]
    assert ["output_config" in request for request in child] == [
        not wants_summary(request) for request in child
    ]
    assert (
        any(map(wants_summary, child))
        and session.results()[0]["content"] == '{"verdict": "pass"}'
    )
    assert not session.api.refused


def test_a_fork_compresses_a_copy(start):
    written, looked = (
        [calls(write(n)) for n in range(9)],
        [calls(read(f"{n}.txt")) for n in range(9)],
    )
    steps = [*written, task("fix"), *looked, says("The child is done."), says("Done.")]
    session = start(LESSON, model(*steps), window=WINDOW, COMPRESS_AT="0.5")
    session.talk(GOAL)
    assert [what for what, *_ in events(session.seen)] == ["trimmed"]
    assert session.sent()[:19] == dialogue(session)[9] and not session.api.refused


# ---- The folder and the lines ------------------------------------------------------------------


@pytest.fixture
def offloading(start):
    """A session with an offloaded result in the files."""
    session = start(LESSON, model(python(PRINT_LINES), says("ok")))
    session.talk("print it")
    return session


def test_search_finds_saved_text_only_when_asked_for(offloading):
    tools = offloading.lesson.HANDLERS
    assert ".agent" not in tools["glob"]("*") + tools["glob"]("**/*") + tools["grep"](
        "line 41234 "
    )
    assert PATH.search(tools["glob"](".agent/**/*")) and PATH.search(
        tools["grep"]("line 41234 ", ".agent")
    )


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_does_not_see_the_folder(offloading):
    def git(*words):
        return subprocess.run(
            ["git", *words], capture_output=True, text=True, check=True
        ).stdout

    git("init")
    assert git("status", "--porcelain", "--untracked-files=all") == "?? run0.py\n"


def test_a_folder_deleted_on_the_way_is_made_again(start):
    clear = python("import shutil; shutil.rmtree('.agent')")
    steps = [
        *[wordy(n) for n in range(9)],
        clear,
        *[wordy(n) for n in range(9)],
        says("Done."),
        says("Yes."),
    ]
    session = start(LESSON, model(*steps), window=8_000)
    seen = session.talk(GOAL, "still there?")
    assert "not summarised" not in seen and "Yes." in seen and not session.api.refused


@pytest.mark.parametrize("what", ["trimming", "summarising"])
def test_each_compression_is_one_line_with_tokens_and_path(request, what):
    session, *_ = request.getfixturevalue(what)
    ((_, before, after, path),) = events(session.seen)
    at = dialogue(session).index(cuts(session)[0][1])
    assert before > LIMIT > after
    sent = session.api.usage[at + (what == "summarising")]
    assert abs(after - total(sent) + sent["output_tokens"]) < 0.1 * after
    assert session.seen.count(path) == 1 and pathlib.Path(path).exists()


def test_an_offload_shows_its_tokens_size_and_path(offloading):
    line, gist = [line for line in offloading.seen.splitlines() if ".agent" in line]
    size = pathlib.Path(PATH.search(line)[0]).stat().st_size
    assert f"offloaded: {size // 4:,} -> " in line and f"{size:,} bytes" in line
    assert gist.startswith(line[:90])  # the result of the call begins with it


def test_a_childs_compression_names_the_child(start):
    steps = [
        task("explore"),
        *[wordy(n) for n in range(9)],
        says("The child is done."),
        says("Done."),
    ]
    session = start(LESSON, model(*steps), window=8_000)
    (line,) = [line for line in session.talk(GOAL).splitlines() if EVENT.search(line)]
    assert line.startswith("[explore] look")


def test_words_too_long_for_a_window_that_nobody_knew_are_taken_back(start):
    """As with a local server: the lesson counts on 200,000 tokens, and the server has 8,000."""
    session = start(LESSON, model(*[says("Noted.")] * 9), window=8_000, models=False)
    seen = session.talk("one", "two", "x" * 64_000, "three")
    assert "too long" in seen and seen.splitlines()[-3].endswith("Noted.")
    assert "xxx" not in str(session.sent()[1:])
