"""Lesson s05: what is cut is on disk first, and the list that is left goes on working."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass

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
WINDOW = 20_000  # tokens
LIMIT = 17_000  # 0.85 of the window
GOAL = 'Count the sheep of *every* farm: <all> & "each", even 100 % of them.'
LOOK = ("glob", {"pattern": "*.none"})  # a call that costs next to nothing

# ---- What the tests say, and where they look ---------------------------------------------------


COMPACT = calls(("compact", {}))
OK = says("ok")
NOTED = says("Noted.")
YES = says("Yes.")
CHILD_IS_DONE = says("The child is done.")
DONE = says("Done.")


def wants_summary(request):
    last = request["messages"][-1]["content"]
    return isinstance(last, str) and all(section in last for section in SECTIONS)


def model(*steps, summary=SUMMARY):
    """A script of ``steps``, each a reply or a function from the request to one.

    summary: the step that is played when a summary is asked for.
    """
    left = iter(steps)

    def script(request):
        if wants_summary(request):
            step = summary
        else:
            step = next(left, THE_END)
        if callable(step):
            return step(request)
        return step

    return script


def in_turn(*replies):
    """A step that gives these replies, one each time."""
    left = iter(replies)

    def step(request):
        return next(left)

    return step


@pytest.fixture
def play(start):
    """``play(step, ..., summary=a step, window=tokens, ...)``: a session of the lesson."""

    def begin(*steps, summary=SUMMARY, **settings):
        return start(LESSON, model(*steps, summary=summary), **settings)

    return begin


def text(number, size=3_000):
    """A text of so many characters that starts like no other."""
    return f"mark-{number} ".ljust(size, "x")


def wordy(number, size=3_000):
    """A step with words, which trimming leaves as they are; only a summary helps."""
    return calls(LOOK, text=text(number, size))


def wordy_steps(count, name=""):
    return [wordy(f"{name}{number}") for number in range(count)]


def write(number):
    return "write_file", {"path": f"{number}.txt", "content": text(number)}


def read(path, **span):
    return "read_file", {"path": path, **span}


def edit(number):
    texts = {"old_text": text(number), "new_text": text(-number)}
    return "edit_file", {"path": f"{number}.txt", **texts}


def task(agent_type, prompt="Look around."):
    arguments = {
        "prompt": prompt,
        "agent_type": agent_type,
        "description": "look",
    }
    return calls(("task", arguments))


def python(code):
    """A step that runs this code in a shell."""
    script = pathlib.Path(f"run{len(os.listdir())}.py")
    script.write_text(code, encoding="utf-8")
    return calls(("bash", {"command": f'"{sys.executable}" {script}'}))


def path_in(content):
    """The path that a pointer names."""
    return PATH.search(content)[0]


def stored(content):
    """The file that a pointer leads to, with the line endings that it has."""
    return pathlib.Path(path_in(content)).read_bytes().decode()


def result_in(message):
    """The text of the first result in a message."""
    return message["content"][0]["content"]


def first_result(session):
    """The text of the first result in the last request."""
    return session.results()[0]["content"]


def dialogue(session):
    """The lists that were sent, without those that asked for a summary."""
    sent = []
    for request in session.api.requests:
        if not wants_summary(request):
            sent.append(request["messages"])
    return sent


def summary_requests(session):
    """The numbers of the requests that asked for a summary."""
    requests = enumerate(session.api.requests)
    return [number for number, request in requests if wants_summary(request)]


def cuts(session):
    """For each compression, the whole list that it met and the one that it made of it."""
    found = []
    sent = dialogue(session)
    for before, after in zip(sent, sent[1:]):
        if after[: len(before)] != before:
            whole = before + after[-2:]
            found.append((whole, after))
    return found


@dataclass
class Event:
    """A line about compression."""

    what: str  # "trimmed" or "summarised"
    before: int  # tokens
    after: int  # tokens
    path: str


def events(seen):
    found = []
    for what, before, after, path in EVENT.findall(seen):
        found.append(Event(what, number_in(before), number_in(after), path))
    return found


def number_in(text):
    """The number in a text such as "1,234"."""
    return int(text.replace(",", ""))


def kinds(seen):
    """What was done at each compression."""
    return [event.what for event in events(seen)]


def without_messages(request):
    """All of a request but its messages, as text: the order of its keys counts."""
    return as_json({**request, "messages": []})


def total(usage):
    return sum(usage.values())


def prompt_tokens(usage):
    """What a request held, from the cache or not."""
    return total(usage) - usage["output_tokens"]


def leaves(value):
    """All strings in a JSON value, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    found = []
    if isinstance(value, list):
        for part in value:
            found += leaves(part)
    return found


def marked(strings):
    """Those of them that say which they are."""
    return [string for string in strings if string.startswith("mark-")]


def newest_tenth(messages):
    """Where the newest 10 % of the window begin; a result counts with its call."""
    sizes = [tokens(as_json(message)) for message in messages]
    start = 0
    while sum(sizes[start:]) > WINDOW / 10:
        start += 1
    if messages[start]["role"] == "user":
        start -= 1
    return start


def only_too_long(session):
    """Whether the API refused something, and nothing but for its size."""
    complaints = {complaint.partition(":")[0] for complaint in session.api.refused}
    return complaints == {"prompt is too long"}


# ---- Offload -----------------------------------------------------------------------------------

LINES = [f"line {number} of the log, written by Zoë 🐑\r\n" for number in range(60_000)]
PRINT_LINES = """import sys
for number in range(60_000):
    sys.stdout.buffer.write(f"line {number} of the log, written by Zoë 🐑\\r\\n".encode())
"""


@pytest.fixture
def offloading(play):
    """A session with an offloaded result in the files."""
    session = play(python(PRINT_LINES), OK)
    session.talk("print it")
    return session


def test_a_result_of_two_megabytes_leaves_head_tail_size_and_path(offloading):
    session = offloading
    [result] = session.results()
    whole = "".join(LINES)
    assert stored(result["content"]) == whole
    assert len(whole) > 2_000_000
    assert LINES[0] in result["content"]
    assert LINES[-1] in result["content"]
    assert len(result["content"]) < 5_000
    assert f"{len(whole.encode()):,} bytes" in result["content"]
    assert not result["is_error"]
    assert not session.api.refused


def test_the_model_reaches_the_middle_of_an_offloaded_result(play):
    def look(request):
        path = path_in(result_in(request["messages"][-1]))
        search = ("grep", {"pattern": "line 41234 ", "path": path})
        return calls(read(path, offset=30_001, limit=2), search)

    session = play(python(PRINT_LINES), look, OK)
    session.talk("print it")
    by_line, by_pattern = session.results()
    assert "".join(LINES[30_000:30_002]) in by_line["content"]
    assert LINES[30_002] not in by_line["content"]
    assert LINES[41_234].strip() in by_pattern["content"]
    assert not session.api.refused


def test_output_is_no_longer_cut_at_50_000_characters(play):
    session = play(python("print('y' * 70_000)"), OK)
    session.talk("print it")
    assert first_result(session).strip() == "y" * 70_000


def test_what_a_killed_command_has_printed_is_kept_whole(play):
    session = play(python("while True: print('n' * 99)"), OK)
    session.lesson.PRINT_LIMIT = 500_000
    session.talk("print it for ever")
    [result] = session.results()
    printed = stored(result["content"]).split()
    assert result["is_error"]
    assert len(printed) > 5_000
    whole_lines = printed[:-1]
    assert set(whole_lines) == {"n" * 99}


@pytest.mark.skipif(os.name != "posix", reason="kill is a POSIX command")
def test_what_a_command_printed_before_ctrl_c_is_kept_whole(play):
    command = f"seq 100000; kill -INT {os.getpid()}; sleep 60"
    count = calls(("bash", {"command": command}))
    session = play(count, OK)
    session.talk("count", "go on")
    [result] = session.sent()[2]["content"]
    assert result["content"].startswith("Interrupted")
    lines = [f"{number}\n" for number in range(1, 100_001)]
    assert stored(result["content"]) == "".join(lines)
    assert not session.api.refused


@pytest.mark.parametrize(
    "window, letter",
    [(3_000, "a"), (10_000, "漢")],
    ids=["3000", "10000 of Chinese"],
)
def test_a_small_window_offloads_a_result_once_and_whole(play, window, letter):
    line = letter * 9 + "\n"
    code = f"import sys; sys.stdout.buffer.write({line!r}.encode() * 4_000)"
    session = play(python(code), OK, window=window)
    session.talk("print it")
    assert stored(first_result(session)) == line * 4_000
    assert not session.api.refused


def test_a_huge_message_of_the_person_is_offloaded_too(play):
    session = play(says("Read."), YES, window=WINDOW)
    assert "Yes." in session.talk("z" * 100_000, "still there?")
    assert stored(session.sent()[0]["content"]) == "z" * 100_000
    assert not session.api.refused


def test_a_file_on_disk_is_never_overwritten(play):
    def delete(request):
        first = path_in(result_in(request["messages"][2]))
        return python(f"import os; os.remove({first!r})")

    one = python("print('1' * 100_000)")
    two = python("print('2' * 100_000)")
    three = python("print('3' * 100_000)")
    session = play(one, two, delete, three, OK)
    session.talk("print three times")
    messages = session.sent()
    assert stored(result_in(messages[4])).strip() == "2" * 100_000
    assert stored(result_in(messages[8])).strip() == "3" * 100_000


def test_a_folder_that_cannot_be_made_costs_no_output(play):
    pathlib.Path(".agent").write_text("The person's own file.")
    session = play(python(PRINT_LINES), OK, YES)
    assert "Yes." in session.talk("print it", "still there?")
    assert LINES[0] in result_in(session.sent()[2])
    assert pathlib.Path(".agent").read_text() == "The person's own file."


# ---- Trim --------------------------------------------------------------------------------------


@pytest.fixture
def trimming(play):
    """A session of large inputs and results that was trimmed once.

    Itself, the list before and the list after.
    """
    steps = []
    for number in range(1, 9):
        steps.append(calls(write(number)))
        steps.append(calls(read(f"{number}.txt"), edit(number)))
    session = play(*steps, window=WINDOW)
    session.talk(GOAL)
    [(before, after)] = cuts(session)
    assert kinds(session.seen) == ["trimmed"]
    assert not session.api.refused
    return session, before, after


@dataclass
class Change:
    """What trimming put in place of what."""

    index: int  # of the message
    call_id: str
    old: str
    new: str


def changes(before, after):
    found = []
    for index, (old_message, new_message) in enumerate(zip(before, after)):
        for was, now in zip(old_message["content"], new_message["content"]):
            if was == now:
                continue
            call_id = was.get("id", was.get("tool_use_id"))
            for old, new in zip(leaves(was), leaves(now)):
                if old != new:
                    found.append(Change(index, call_id, old, new))
    return found


def test_trimming_waits_for_the_limit_and_then_frees_half_of_it(trimming):
    session, before, after = trimming
    at = dialogue(session).index(after)
    sizes = [total(usage) for usage in session.api.usage[:at]]
    *calm, last = sizes
    assert max(calm) <= LIMIT < last + tokens(as_json(before[-1]))
    assert total(session.api.usage[at]) < LIMIT / 2


def test_trimming_changes_large_inputs_and_results_outside_the_newest_tenth(trimming):
    _, before, after = trimming
    changed = {(change.index, change.old) for change in changes(before, after)}
    old = set()
    new = set()
    for index, message in enumerate(before):
        large = {(index, leaf) for leaf in leaves(message) if len(leaf) > 1_000}
        if index < newest_tenth(before):
            old |= large
        else:
            new |= large
    assert changed == old
    assert new
    assert len(changed) > 10


def test_trimming_keeps_ids_names_pairs_and_order(trimming):
    def shape(message):
        """All of it but the contents of results and of arguments."""
        blocks = []
        for block in message["content"]:
            arguments = list(block.get("input", {}))
            blocks.append({**block, "content": 0, "input": arguments})
        return message["role"], blocks

    _, before, after = trimming
    assert before[0] == after[0]
    for old, new in zip(before[1:], after[1:], strict=True):
        assert shape(old) == shape(new)


def test_every_pointer_leads_to_the_original(trimming):
    _, before, after = trimming
    for change in changes(before, after):
        _, _, under_id = stored(change.new).partition(f"id: {change.call_id}\n")
        assert change.old in under_id
        assert change.call_id in change.new
        assert len(change.new) < 200


def test_the_model_finds_a_trimmed_result_by_its_pointer(trimming):
    session, before, after = trimming
    change = changes(before, after)[0]
    begin = change.old[:20]
    found = session.lesson.grep(begin, path_in(change.new))
    assert f"content: {begin}" in found


# ---- Summarise ---------------------------------------------------------------------------------

ITEMS = [
    {"text": "visit the farms", "status": "completed"},
    {"text": "count the sheep", "status": "in_progress"},
    {"text": "add it up", "status": "pending"},
]
PLAN = ("todo", {"items": ITEMS})


@pytest.fixture
def summarising(play):
    """A session of words that was summed up once: itself, the list before and the list after."""
    session = play(calls(PLAN), *wordy_steps(22), window=WINDOW)
    session.talk(GOAL)
    [(before, after)] = cuts(session)
    assert kinds(session.seen) == ["summarised"]
    assert not session.api.refused
    return session, before, after


def test_the_summary_request_is_the_list_itself_and_one_instruction(summarising):
    session, before, _ = summarising
    [number] = summary_requests(session)
    last, asked = session.api.requests[number - 1 : number + 1]
    assert as_json(asked["messages"][:-1]) == as_json(before)
    assert without_messages(asked) == without_messages(last)


def test_the_summary_request_reads_the_cache(summarising):
    session, _, _ = summarising
    [number] = summary_requests(session)
    usage = session.api.usage[number]
    assert usage["cache_read_input_tokens"] > 0.9 * prompt_tokens(usage)


def test_after_a_summary_the_list_is_one_message_and_the_newest_tail(summarising):
    _, before, after = summarising
    first, *tail = after
    for part in (*SECTIONS, GOAL, "[>] count the sheep", "[ ] add it up"):
        assert part in first["content"]
    assert first["role"] == "user"
    assert before[0]["content"] in stored(first["content"])
    assert tail == before[newest_tenth(before) :]
    assert tail[0]["role"] == "assistant"


def test_the_history_holds_everything_once_and_in_order_also_after_three_compressions(
    play,
):
    steps = []
    for number in range(16):
        path = f"{number}-read.txt"
        pathlib.Path(path).write_text(text(f"{number}-read"))
        steps.append(wordy(f"{number}-words"))
        steps.append(calls(write(number)))
        steps.append(calls(read(path)))
    answer = says("mark-answer")
    session = play(*steps[:20], answer, *steps[20:], window=8_000)
    session.talk("mark-first: read it all", "mark-second: go on")
    assert kinds(session.seen).count("summarised") >= 3
    assert not session.api.refused
    said = []
    for messages in dialogue(session):
        said += marked(leaves(messages))
    left = leaves(dialogue(session)[-1])
    gone = [leaf for leaf in dict.fromkeys(said) if leaf not in left]
    history = stored(left[1])
    places = [history.find(leaf) for leaf in gone]
    assert places == sorted(places)
    assert -1 not in places
    assert len(gone) > 30
    for leaf in gone:
        if leaf.endswith("x"):
            assert history.count(leaf) == 1


# ---- Two evaluations: the fact is found again, the task goes on --------------------------------


@pytest.mark.parametrize(
    "tool, arguments",
    [
        ("grep", {"pattern": "spare key"}),
        ("read_file", {"limit": 20}),
    ],
    ids=["grep", "read_file"],
)
def test_a_fact_that_was_summed_up_is_found_again_on_disk(play, tool, arguments):
    def search(request):
        assert "blue pot" not in as_json(request["messages"])
        summary = request["messages"][0]["content"]
        path = PATH.findall(summary)[-1]
        return calls((tool, {**arguments, "path": path}))

    def answer(request):
        if "under the blue pot" in as_json(request["messages"][-1]):
            return says("It is there.")
        return says("I do not know.")

    words = wordy_steps(6)
    session = play(
        *words,
        NOTED,
        *words,
        search,
        answer,
        window=WINDOW,
        COMPRESS_AT="0.15",
    )
    fact = "The spare key is under the blue pot. Look round."
    assert "It is there." in session.talk(fact, "Where is it?")
    assert not session.api.refused


def test_a_task_under_way_goes_on_to_its_end(start):
    """The model here remembers nothing.

    It finds goal and next step in the request before it, or asks back.
    """

    def plan(done):
        statuses = ["completed"] * done + ["pending"] * (12 - done)
        items = []
        for number, status in enumerate(statuses, start=1):
            items.append({"text": f"step {number} of the move", "status": status})
        return "todo", {"items": items}

    def mover(request):
        if wants_summary(request):
            return SUMMARY
        seen = "\n".join(leaves(request["messages"]))
        boards = re.findall(r"((?:\[[ x]\] step \d+ of the move\n)+)", seen)
        is_lost = len(request["messages"]) > 1 and not boards
        if GOAL not in seen or is_lost:
            return says("What was I to do?")
        if not boards:
            return calls(write(-1), plan(0), text="On I go. " * 60)
        done = boards[-1].count("[x]")
        if done == 12:
            return says("All is moved.")
        return calls(write(done), plan(done + 1), text="On I go. " * 60)

    session = start(LESSON, mover, window=WINDOW, COMPRESS_AT="0.1")
    assert "All is moved." in session.talk(GOAL)
    assert len(dialogue(session)) == 14
    assert len(cuts(session)) >= 3
    assert not session.api.refused


# ---- Overflow ----------------------------------------------------------------------------------

TOO_LONG = "prompt is too long: 9 tokens > 8 maximum"
SMALL = 6_000  # tokens that the server takes while the lesson believes in more


READ_LARGE = calls(read("large.txt"))  # a step of a large result
BATCH = [read("large.txt")] * 20


@pytest.fixture
def overflowing(play):
    """``overflowing(step, ...)``: a session that the server stops at SMALL.

    It has a large file to read.
    """
    pathlib.Path("large.txt").write_text(text(0))
    return functools.partial(play, window=SMALL, CONTEXT_WINDOW="100000")


OVERFLOWS = {
    "parent": [*[READ_LARGE] * 12, DONE],
    "child": [
        task("explore"),
        *[READ_LARGE] * 12,
        CHILD_IS_DONE,
        DONE,
    ],
    "child with words": [
        task("code"),
        *wordy_steps(12),
        CHILD_IS_DONE,
        DONE,
    ],
    "fork": [
        *[READ_LARGE] * 2,
        task("fix"),
        *[READ_LARGE] * 12,
        CHILD_IS_DONE,
        DONE,
    ],
    "also the summary": [*wordy_steps(12), DONE],
    "one batch": [calls(*BATCH), DONE],
    "compact in a batch": [calls(*BATCH, ("compact", {})), DONE],
}


@pytest.mark.parametrize("steps", OVERFLOWS.values(), ids=OVERFLOWS)
def test_a_prompt_that_is_too_long_is_compressed_and_sent_once_more(overflowing, steps):
    session = overflowing(*steps, YES)
    seen = session.talk(GOAL, "still there?")
    assert "Done." in seen
    assert "Yes." in seen
    assert only_too_long(session)


def test_an_overflow_in_a_child_leaves_the_parents_list_alone(overflowing):
    session = overflowing(*OVERFLOWS["child"])
    session.talk(GOAL)
    roles = [message["role"] for message in session.sent()]
    assert roles == ["user", "assistant", "user"]
    assert first_result(session) == "The child is done."
    assert only_too_long(session)


HALF = says("Half an ans")["content"]
MAX_TOKENS = (
    "input length and `max_tokens` exceed context limit: 190000 + 16000 > 200000"
)
LLAMA = "the request exceeds the available context size, try increasing it"
PROXY = "This model's maximum context length is 8192 tokens."
REFUSALS = {
    "api": Status(400, TOO_LONG),
    "413": Status(413),
    "max_tokens": Status(400, MAX_TOKENS),
    "llama.cpp": Status(400, LLAMA),
    "proxy": Status(400, PROXY),
    "stop reason": reply(HALF, "model_context_window_exceeded"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_what_says_too_long_is_compressed_and_sent_once_more(play, refusal):
    session = play(
        *wordy_steps(5),
        refusal,
        DONE,
        YES,
    )
    seen = session.talk(GOAL, "still there?")
    assert kinds(seen) == ["summarised"]
    assert "Done." in seen
    assert "Yes." in seen
    assert "Half" not in seen
    assert len(cuts(session)) == 1
    assert not session.api.refused


def test_when_nothing_helps_there_is_one_line_and_the_prompt(play):
    refusal = Status(400, TOO_LONG)
    steps = [
        wordy(1),
        wordy(2),
        refusal,
        refusal,
        YES,
    ]
    session = play(*steps, summary=refusal)
    seen = session.talk(GOAL, "still there?").splitlines()
    tried, line, answer, stop, _ = seen[-5:]
    assert "not summarised, nothing lost" in tried
    assert TOO_LONG in line
    assert "Yes." in answer
    assert stop == "[end_turn]"
    assert session.sent()[:5] == dialogue(session)[2]
    assert not session.api.refused


def test_a_reply_that_the_window_cuts_twice_is_shown_and_kept(play):
    cut = reply(HALF, "model_context_window_exceeded")
    session = play(
        wordy(1),
        wordy(2),
        cut,
        cut,
        YES,
    )
    seen = session.talk(GOAL, "still there?").splitlines()
    assert seen[-5:-2] == [
        "Half an ans",
        "[model_context_window_exceeded]",
        "s05 >> Yes.",
    ]
    assert session.sent()[-2]["content"] == cut["content"]
    assert not session.api.refused


def test_an_overflow_that_stays_ends_the_child_and_not_the_parent(play):
    refusal = Status(400, TOO_LONG)
    session = play(
        task("explore"),
        refusal,
        refusal,
        DONE,
        summary=refusal,
    )
    assert "Done." in session.talk(GOAL)
    [result] = session.results()
    assert result["is_error"]
    assert "too long" in result["content"]
    assert not session.api.refused


def test_a_long_reply_with_a_call_does_not_end_the_session(overflowing):
    chat = []
    questions = []
    for number in range(9):
        chat += [says(f"mark-{number}"), YES]
        questions.append(f"What do you say to this? {text(number, 1_000)}")
    session = overflowing(wordy("long", 16_000), *chat)
    seen = session.talk(*questions)
    assert "too long" not in seen
    assert only_too_long(session)


def test_many_small_results_in_one_batch_do_not_end_the_session(play):
    pathlib.Path("small.txt").write_text(text(0, 1_000))
    batch = [read("small.txt")] * 40
    session = play(calls(*batch), DONE, YES, window=8_000)
    assert "Yes." in session.talk(GOAL, "still there?")
    assert only_too_long(session)


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
def test_a_summary_that_fails_loses_nothing_and_is_said(play, bad):
    steps = [*wordy_steps(5), COMPACT, DONE, wordy(5), COMPACT, YES]
    session = play(*steps, summary=in_turn(*bad, SUMMARY))
    seen = session.talk(GOAL, "still there?")
    assert seen.count("not summarised, nothing lost: ") == 1
    assert "Done." in seen
    assert "Yes." in seen
    [(before, after)] = cuts(session)
    texts = [text(number) for number in range(6)]
    assert marked(leaves(before)) == texts
    history = stored(after[0]["content"])
    for each in texts:
        assert history.count(each) == 1
    assert not pathlib.Path("99.txt").exists()
    assert not session.api.refused


def test_a_summary_that_fails_leaves_the_size_as_it_was(overflowing):
    summaries = in_turn(calls(LOOK), SUMMARY, SUMMARY)
    session = overflowing(*wordy_steps(12), YES, summary=summaries)
    session.talk(GOAL, "still there?")
    first = events(session.seen)[0]
    # The whole list, and not the half that the failed summary was about.
    assert first.before > 5_500


@pytest.mark.skipif(os.name != "posix", reason="interrupt() sends a signal")
def test_ctrl_c_in_a_summary_leaves_the_list_as_it_was(play):
    def pressed(request):
        interrupt()
        return Wait(threading.Event(), SUMMARY)

    session = play(
        *wordy_steps(5),
        COMPACT,
        YES,
        summary=pressed,
    )
    seen = session.talk(GOAL, "still there?")
    assert "[interrupted]" in seen
    assert "Yes." in seen
    assert not cuts(session)
    assert not session.api.refused


# ---- Summaries that cannot help ----------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"COMPRESS_AT": "0.003"},
        {"CONTEXT_WINDOW": "8000", "COMPRESS_AT": "0.08"},
    ],
    ids=str,
)
def test_summaries_that_cannot_help_are_not_paid_at_every_step(play, settings):
    steps = [wordy(number, 400) for number in range(12)]
    session = play(*steps, DONE, **settings)
    seen = session.talk(GOAL)
    assert "Done." in seen
    assert len(summary_requests(session)) <= 3
    assert seen.count("raise CONTEXT_WINDOW or COMPRESS_AT") == 1


def test_a_window_too_small_for_the_tools_is_said_at_the_start(play):
    session = play(says("Hello."), CONTEXT_WINDOW="700")
    first, *_ = session.talk("hello").splitlines()
    assert "raise CONTEXT_WINDOW or COMPRESS_AT" in first
    assert "the tools alone" in first


def test_words_that_were_offloaded_and_then_refused_are_taken_back(play):
    too_long = Status(400, TOO_LONG)
    session = play(
        NOTED,
        too_long,
        too_long,
        YES,
        summary=too_long,
        window=WINDOW,
    )
    session.talk("one", "z" * 100_000, "two")
    users = [message for message in session.sent() if message["role"] == "user"]
    assert [message["content"] for message in users] == ["one", "two"]


# ---- The limits --------------------------------------------------------------------------------


def test_the_window_comes_from_the_environment_before_the_models_api(play):
    session = play(OK, window=50_000, CONTEXT_WINDOW="30000")
    session.talk("hello")
    assert session.lesson.context_window() == 30_000
    assert not session.api.model_requests


def test_the_window_comes_from_the_models_api_and_is_asked_for_once(play):
    session = play(
        calls(LOOK),
        OK,
        window=50_000,
        MODEL="a-model",
    )
    session.talk("hello")
    assert session.lesson.context_window() == 50_000
    assert session.api.model_requests == ["/v1/models/a-model"]


def test_a_server_without_a_models_api_has_200_000(play):
    session = play(calls(LOOK), OK, models=False)
    assert "ok" in session.talk("hello")
    assert session.lesson.context_window() == 200_000


def test_a_server_that_is_not_there_has_200_000_and_costs_a_line(play):
    session = play(OK)
    answering = session.lesson.client
    session.lesson.client = anthropic.Anthropic(
        base_url="http://127.0.0.1:9",
        api_key="test",
        max_retries=0,
    )
    assert "APIConnectionError: " in session.talk("hello").splitlines()[0]
    session.lesson.client = answering
    assert "ok" in session.talk("hello")
    assert session.lesson.context_window() == 200_000


@pytest.mark.parametrize("window", [0, -5, "abc", None], ids=str)
def test_a_server_that_tells_nonsense_has_200_000(play, window):
    session = play(OK)
    answer = session.lesson.client.models.retrieve

    def nonsense(model, **more):
        told = answer(model, **more)
        told.max_input_tokens = window
        return told

    session.lesson.client.models.retrieve = nonsense
    assert "ok" in session.talk("hello")
    assert session.lesson.context_window() == 200_000


def test_a_list_is_compressed_also_if_the_server_counts_nothing(play, monkeypatch):
    session = play(*wordy_steps(22), OK, window=WINDOW)
    answer = session.api.answer

    def uncounted(*given):
        body = answer(*given)
        return {name: value for name, value in body.items() if name != "usage"}

    monkeypatch.setattr(session.api, "answer", uncounted)
    seen = session.talk(GOAL)
    assert [event.what for event in events(seen)] == ["summarised"]
    assert not session.api.refused


def test_a_summary_comes_also_from_a_server_that_stops_with_stop(play):
    summary = reply(SUMMARY["content"], "stop")
    session = play(*wordy_steps(22), OK, summary=summary, window=WINDOW)
    seen = session.talk(GOAL)
    assert [event.what for event in events(seen)] == ["summarised"]


def test_an_input_nested_hundreds_deep_is_compressed_like_any_other(play):
    nested = {"end": 1}
    for _ in range(450):
        nested = {"a": nested}
    session = play(calls(("bash", nested)), *wordy_steps(22), OK, window=WINDOW)
    seen = session.talk(GOAL)
    assert [event.what for event in events(seen)] == ["summarised"]
    assert "RecursionError" not in seen


def test_compact_with_nothing_old_is_said_and_costs_no_request(play):
    session = play(COMPACT, DONE)
    seen = session.talk(GOAL)
    assert "[not summarised: nothing in the list is old enough]" in seen
    assert "nothing lost" not in seen
    assert summary_requests(session) == []


def test_a_list_that_stays_over_the_limit_is_said_once_with_what_to_change(play):
    bad = Status(400, "Bad luck")
    session = play(*wordy_steps(24), DONE, summary=bad, CONTEXT_WINDOW=str(WINDOW))
    seen = session.talk(GOAL)
    assert re.search(r"\[still [\d,]+ tokens, over the limit of 17,000: raise ", seen)
    assert seen.count("raise CONTEXT_WINDOW or COMPRESS_AT") == 1


def test_a_history_that_cannot_be_written_is_said_once_and_not_at_every_step(play):
    pathlib.Path(".agent").write_text("The person's own file.")
    session = play(*wordy_steps(23), DONE, CONTEXT_WINDOW=str(WINDOW))
    seen = session.talk(GOAL)
    assert "Done." in seen
    assert seen.count("[not compressed, as nothing can be written: ") == 1


SHARES = [
    ("", 0.85),
    ("0.1", 0.1),
    (".5", 0.5),
    ("1", 1),
]


@pytest.mark.parametrize("given, share", SHARES)
def test_compression_is_at_any_share_of_the_window_up_to_all(monkeypatch, given, share):
    monkeypatch.setenv("COMPRESS_AT", given)
    assert load(LESSON).COMPRESS_AT == share


NO_WINDOWS = [
    "many",
    "-1",
    "200k",
    "1e6",
    "8,000",
    "²",
]
NO_SHARES = [
    "often",
    "0",
    "-0.1",
    "1.5",
    "85%",
    "nan",
    "0,5",
]


@pytest.mark.parametrize("value", NO_WINDOWS)
def test_a_window_that_is_nonsense_is_one_clear_line_at_the_start(monkeypatch, value):
    monkeypatch.setenv("CONTEXT_WINDOW", value)
    assert f"CONTEXT_WINDOW={value}" in last_line()


@pytest.mark.parametrize("value", NO_SHARES)
def test_a_share_that_is_nonsense_is_one_clear_line_at_the_start(monkeypatch, value):
    monkeypatch.setenv("COMPRESS_AT", value)
    assert f"COMPRESS_AT={value}" in last_line()


def last_line():
    """The one line that the lesson says as it stops at its start."""
    with pytest.raises(SystemExit) as stop:
        load(LESSON)
    line = stop.value.code  # Python prints such a text and leaves with status 1
    assert "\n" not in line
    return line


# ---- compact -----------------------------------------------------------------------------------


def test_compact_in_a_batch_is_answered_with_the_others_before_the_summary(play):
    batch = calls(write(1), ("compact", {}), read("1.txt"))
    session = play(*wordy_steps(12), batch, DONE, window=WINDOW)
    assert "Done." in session.talk(GOAL)
    number = summary_requests(session)[0]
    *summed_up, _ = session.sent(number)
    asked, answered = summed_up[-2:]
    for call, result in zip(asked["content"], answered["content"], strict=True):
        assert result["tool_use_id"] == call["id"]
        assert not result["is_error"]
    first, *tail = session.sent()
    assert GOAL in first["content"]
    assert tail == summed_up[-len(tail) :]
    assert not session.api.refused


def test_compact_shortens_the_list_also_far_below_the_limit(play):
    session = play(*wordy_steps(9), COMPACT, DONE)
    [event] = events(session.talk(GOAL))
    assert event.after < event.before
    assert len(session.sent()) < 20


def test_a_turn_after_compact_does_not_compress_again(play):
    session = play(
        wordy(1),
        wordy(1.5),
        COMPACT,
        wordy(2),
        wordy(3),
        DONE,
    )
    seen = session.talk(GOAL, "more", "and more")
    assert len(events(seen)) == 1


def test_a_child_that_has_no_compact_cannot_ask_for_it(play):
    session = play(task("explore"), COMPACT, CHILD_IS_DONE, DONE)
    assert "Done." in session.talk(GOAL)
    assert summary_requests(session) == []


# ---- Children ----------------------------------------------------------------------------------


def summed_up(session):
    """The messages that stand for what was summed up, in the parent and in children."""
    firsts = [after[0]["content"] for _, after in cuts(session)]
    return [first for first in firsts if "## History" in first]


def test_a_child_compresses_its_own_list_into_its_own_file(play):
    steps = [
        *wordy_steps(9, "parent-"),
        task("explore"),
        *wordy_steps(9, "child-"),
        CHILD_IS_DONE,
        DONE,
    ]
    session = play(*steps, window=8_000)
    session.talk(GOAL)
    files = [stored(first) for first in summed_up(session)]
    parent, child = dict.fromkeys(files)
    assert "mark-child-0" in child
    assert "mark-parent" not in child
    assert "mark-parent-0" in parent
    assert "mark-child" not in parent
    assert not session.api.refused


def test_a_compressed_child_is_told_its_prompt_and_not_the_parents_plan(play):
    steps = [
        calls(PLAN),
        task("code", "Look into every corner."),
        *wordy_steps(9),
        DONE,
    ]
    session = play(*steps, window=8_000)
    session.talk(GOAL)
    first = summed_up(session)[0]
    assert "Look into every corner." in first
    assert "count the sheep" not in first
    assert GOAL not in first


def test_a_child_with_a_structured_answer_sums_up_in_words(play):
    steps = [
        task("review"),
        *wordy_steps(9),
        says('{"verdict": "pass"}'),
        DONE,
    ]
    session = play(*steps, window=8_000)
    session.talk(GOAL)
    summary_count = 0
    for request in session.api.requests:
        if "Check the work" not in request["system"]:
            continue
        assert ("output_config" in request) == (not wants_summary(request))
        if wants_summary(request):
            summary_count += 1
    assert summary_count > 0
    assert first_result(session) == '{"verdict": "pass"}'
    assert not session.api.refused


def test_a_fork_compresses_a_copy(play):
    written = [calls(write(number)) for number in range(9)]
    looked = [calls(read(f"{number}.txt")) for number in range(9)]
    steps = [*written, task("fix"), *looked, CHILD_IS_DONE, DONE]
    session = play(*steps, window=WINDOW, COMPRESS_AT="0.5")
    session.talk(GOAL)
    assert kinds(session.seen) == ["trimmed"]
    assert session.sent()[:19] == dialogue(session)[9]
    assert not session.api.refused


# ---- The folder and the lines ------------------------------------------------------------------


def test_search_finds_saved_text_only_when_asked_for(offloading):
    glob = offloading.lesson.HANDLERS["glob"]
    grep = offloading.lesson.HANDLERS["grep"]
    assert ".agent" not in glob("*")
    assert ".agent" not in glob("**/*")
    assert ".agent" not in grep("line 41234 ")
    assert PATH.search(glob(".agent/**/*"))
    assert PATH.search(grep("line 41234 ", ".agent"))


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_git_does_not_see_the_folder(offloading):
    status = ["git", "status", "--porcelain", "--untracked-files=all"]
    subprocess.run(["git", "init"], capture_output=True, check=True)
    assert subprocess.check_output(status, text=True) == "?? run0.py\n"


def test_a_folder_deleted_on_the_way_is_made_again(play):
    clear = python("import shutil; shutil.rmtree('.agent')")
    steps = [
        *wordy_steps(9),
        clear,
        *wordy_steps(9),
        DONE,
        YES,
    ]
    session = play(*steps, window=8_000)
    seen = session.talk(GOAL, "still there?")
    assert "not summarised" not in seen
    assert "Yes." in seen
    assert not session.api.refused


@pytest.mark.parametrize("what", ["trimming", "summarising"])
def test_each_compression_is_one_line_with_tokens_and_path(request, what):
    session, _, shorter = request.getfixturevalue(what)
    [event] = events(session.seen)
    assert event.before > LIMIT > event.after
    sent = [request["messages"] for request in session.api.requests]
    usage = session.api.usage[sent.index(shorter)]
    assert abs(event.after - prompt_tokens(usage)) < 0.1 * event.after
    assert session.seen.count(event.path) == 1
    assert pathlib.Path(event.path).exists()


def test_an_offload_shows_its_tokens_size_and_path(offloading):
    line, gist = [line for line in offloading.seen.splitlines() if ".agent" in line]
    size = pathlib.Path(path_in(line)).stat().st_size
    assert f"offloaded: {size // 4:,} -> " in line
    assert f"{size:,} bytes" in line
    assert gist.startswith(line[:90])  # the result of the call begins with it


def test_a_childs_compression_names_the_child(play):
    steps = [
        task("explore"),
        *wordy_steps(9),
        CHILD_IS_DONE,
        DONE,
    ]
    session = play(*steps, window=8_000)
    lines = session.talk(GOAL).splitlines()
    [line] = [line for line in lines if EVENT.search(line)]
    assert line.startswith("[explore] look")


def test_words_too_long_for_a_window_that_nobody_knew_are_taken_back(play):
    """As with a local server: the lesson counts on 200,000 tokens, and the server has 8,000."""
    session = play(*[NOTED] * 9, window=8_000, models=False)
    seen = session.talk("one", "two", "x" * 64_000, "three")
    assert "too long" in seen
    assert seen.splitlines()[-3].endswith("Noted.")
    assert "xxx" not in str(session.sent()[1:])
