"""Random sessions of every loop: the API refuses nothing but what is too long, and nothing is lost.

A session is made of its seed: what the person types, what the model answers, what fails, where
Ctrl-C is pressed.  The suite plays a few hundred; this plays 10,000:

    SESSIONS=10000 .venv/bin/python -m pytest -q tests/test_fuzz.py

A session that fails is named by its lesson and seed.  In reading order: what there is to say, a
session's chance, the API without a wire, the test.
"""

import functools
import json
import os
import random
import re
import shutil

import anthropic
import httpx2
import pytest
from anthropic.types import Message

from conftest import LESSONS
from fake_api import Handler, Status, as_json, calls, reply, says

LOOPS = [LESSONS[0], *LESSONS[2:]]  # s02 has the loop of s01
SESSIONS = int(os.environ.get("SESSIONS") or 400)
SHARE = SESSIONS // len(LOOPS)  # sessions of each lesson
CHUNK = 100  # sessions in a test

# ---- What there is to say ----------------------------------------------------------------------

LAST = "still there?"  # what the person types at the end, when no more faults come
WELL = says("All is well.")
SUMMARY = says("## Session intent\n## Summary\n## Artifacts\n## Next steps\n")
TOO_LONG = "prompt is too long"
FAULTS = [Status(400, f"{TOO_LONG}: 9 tokens > 8 maximum")]
for code in (400, 401, 413, 429, 500, 529):
    FAULTS.append(Status(code))
STOPS = [
    "end_turn",
    "max_tokens",
    "refusal",
    "pause_turn",
    "tool_use",
    "model_context_window_exceeded",
    "a_new_reason",
]
TYPES = ["explore", "code", "review", "fix", "fix", "nobody"]
PATHS = ["a.txt", "b/c.txt", "missing.txt", "../outside.txt"]
STATUSES = ["pending", "in_progress", "completed", "nonsense"]
FILLERS = ["word ", "漢字 ", "a\n", "\\\"'\t"]
HALF_AN_EMOJI = "\ud83d"

# What a call should not have.
ODD_IDS = [
    None,
    "toolu_twice",
    "toolu_0001",
    "no id!",
    "",
    7,
    "x" * 100,
]
ODD_NAMES = [
    None,
    "",
    "no name!",
    "x" * 300,
    7,
]
ODD_INPUTS = [
    None,
    [],
    "a.txt",
    7,
    '{"path": "a.t',
    [{"path": "a.txt"}],
    {"": None},
]
# What a reply should not have.
ODD_BLOCKS = [
    {},
    {"type": "text"},
    {"type": "text", "text": None},
    {"type": "text", "text": ""},
    {"type": "text", "text": " \n"},
    {"type": "text", "text": HALF_AN_EMOJI},
    {"type": "thinking", "thinking": "Hm."},
    {"type": "redacted_thinking", "data": ""},
    {"type": "tool_use"},
    {"type": "tool_use", "name": "glob"},
    {
        "type": "tool_result",
        "tool_use_id": "toolu_0001",
        "content": "Mine.",
    },
    {
        "type": "server_tool_use",
        "id": "srvtoolu_1",
        "name": "web_search",
        "input": {},
    },
    {"type": "hologram", "data": "?"},
]

# The functions around which Ctrl-C is pressed, where a lesson has them.
MOMENTS = [
    "ask_model",
    "valid_reply",
    "add_turn",
    "words_of",
    "run_tool",
    "checked_arguments",
    "remind",
    "run_child",
    "note",
    "take_up",
    "measure",
    "compress",
    "make_room",
    "record",
    "offload",
    "trim",
    "summarise",
    "shrink",
    "have_patience",
]


# ---- A session's chance ------------------------------------------------------------------------


class Chance:
    """One session's person, model and faults."""

    def __init__(self, name, seed):
        self.seed = seed
        self.random = random.Random(f"{name} {seed}")
        self.mark_count = 0
        self.reply_count = 0
        self.is_calm = False  # nothing goes wrong any more

    def happens(self, share):
        return not self.is_calm and self.random.random() < share

    def one_of(self, *choices):
        return self.random.choice(choices)

    def text(self, most=9_000):
        """Words that start as no others do."""
        self.mark_count += 1
        size = min(most, self.one_of(0, 50, 900, 1_100, 3_000, 9_000))
        filler = self.random.choice(FILLERS)
        return f"mark-{self.seed}-{self.mark_count}. " + filler * (size // 5)

    def line(self):
        """What the person types."""
        return " ".join(self.text().split())

    def bash(self, command):
        """In place of the tool, which would take most of the time here."""
        if command is None or self.happens(0.1):
            raise TimeoutError(f"killed after 120 s.  It printed:\n{self.text()}")
        return self.one_of("", self.text())

    # What the model says.

    def arguments(self):
        """The (name, input) of a call, good or bad."""
        path = self.random.choice(PATHS)
        span = {"offset": self.random.randint(-1, 3), "limit": None}
        edit = {"old_text": "mark", "new_text": self.text()}
        step = {"text": self.text(500), "status": self.random.choice(STATUSES)}
        work = {
            "prompt": f"CHILD {self.text()}",
            "agent_type": self.random.choice(TYPES),
        }
        return self.one_of(
            ("bash", {"command": "make"}),
            ("bash", {"command": "make test"}),
            ("bash", {"command": None}),
            ("write_file", {"path": path, "content": self.text()}),
            ("write_file", {"path": path, "content": self.text()}),
            ("read_file", {"path": path}),
            ("read_file", {"path": path, **span}),
            ("edit_file", {"path": path, **edit}),
            ("grep", {"pattern": self.one_of("mark", "(", ".")}),
            ("glob", {"pattern": "**/*"}),
            ("todo", {"items": [step]}),
            ("compact", {}),
            ("task", work),
            ("no_such_tool", {"x": self.text()}),
        )

    def call(self):
        """A block that calls a tool; some are malformed."""
        [block] = calls(self.arguments())["content"]
        if self.happens(0.05):
            block["id"] = self.random.choice(ODD_IDS)
        if self.happens(0.05):
            block["name"] = self.random.choice(ODD_NAMES)
        if self.happens(0.05):
            block["input"] = self.random.choice(ODD_INPUTS)
        return block

    def thought(self):
        signature = str(self.random.random())
        return {"type": "thinking", "thinking": "Hm.", "signature": signature}

    def reply(self):
        """What the model says, which may be odd, or nothing."""
        text = self.one_of("", " \n", self.text(), self.text())
        thoughts = [self.thought()]
        words = says(text)["content"]
        some_calls = [self.call() for _ in range(self.random.randint(1, 4))]
        odd_blocks = self.random.sample(ODD_BLOCKS, 2)
        odd = self.one_of([], words, some_calls, thoughts, words + some_calls)
        return self.one_of(
            reply(some_calls, "tool_use"),
            reply(words + some_calls, "tool_use"),
            reply(words),
            reply(thoughts + words + some_calls, "tool_use"),
            reply(odd_blocks + some_calls, "tool_use"),
            reply(odd, self.random.choice(STOPS)),
            reply(odd + odd_blocks, self.random.choice(STOPS)),
        )

    def script(self, request):
        """What the API answers."""
        self.reply_count += 1
        if self.happens(0.12):
            return self.random.choice(FAULTS)
        is_for_summary = (
            "## Session intent" in str(request["messages"][-1]["content"])[:200]
        )
        if is_for_summary and not self.happens(0.2):
            return SUMMARY
        if self.reply_count < 9 and not self.is_calm:
            return self.reply()
        return WELL

    # Where Ctrl-C is pressed.

    def with_ctrl_c(self, function, share):
        """``function``, with Ctrl-C pressed now and then before it has done its work or after."""

        @functools.wraps(function)
        def run(*words, **named):
            if self.happens(share):
                raise KeyboardInterrupt
            result = function(*words, **named)
            if self.happens(share):
                raise KeyboardInterrupt
            return result

        return run

    def until_last(self, agent_loop):
        """``agent_loop``, before whose last turn everything calms down."""

        def run(messages, *agent):
            if messages[-1]["content"] == LAST:
                self.is_calm = True
            agent_loop(messages, *agent)

        return run


# ---- The API without a wire --------------------------------------------------------------------


class Direct(Handler):
    """The fake API without SDK and wire, which would take most of the time here."""

    def __init__(self, server):
        self.server = server

    def create(self, **request):
        raw = json.dumps(request).encode()
        body, item = self.server.receive(raw, None)
        self.play(body, item)
        return self.reply

    def send(self, code, body, headers={}):
        if code == 200:
            self.reply = Message.construct(**body)
            return
        request = httpx2.Request("POST", self.server.url)
        response = httpx2.Response(code, request=request)
        words = body["error"]["message"]
        raise anthropic.APIStatusError(words, response=response, body=body)


# ---- The test ----------------------------------------------------------------------------------


def prepare(session, chance, patch):
    """Put chance in the place of the model, of its server and of the shell."""
    lesson = session.lesson
    api = session.api
    api.script = chance.script
    for kept in (api.requests, api.raw, api.refused, api.usage):
        kept.clear()
    patch.setitem(lesson.HANDLERS, "bash", chance.bash)
    for name, handler in lesson.HANDLERS.items():
        patch.setitem(lesson.HANDLERS, name, chance.with_ctrl_c(handler, 0.03))
    create = chance.with_ctrl_c(Direct(api).create, 0.03)
    patch.setattr(lesson.client.messages, "create", create)
    for name in MOMENTS:
        if hasattr(lesson, name):
            function = getattr(lesson, name)
            patch.setattr(lesson, name, chance.with_ctrl_c(function, 0.003))
    patch.setattr(lesson, "agent_loop", chance.until_last(lesson.agent_loop))
    if compresses(lesson):
        window = chance.random.randint(4_000, 8_000)
        api.window = window * chance.one_of(1, 1, 0.7)
        patch.setattr(lesson, "CONTEXT_WINDOW", window)
        patch.setattr(lesson, "COMPRESS_AT", chance.one_of(0.1, 0.4, 0.7, 0.85, 1.0))
        lesson.context_window.cache_clear()


def compresses(lesson):
    return hasattr(lesson, "compress")


def check(session, seen, folder):
    """The session went on to its end, the API had no complaint, and all is there that was said."""
    complaints = {complaint.partition(":")[0] for complaint in session.api.refused}
    allowed = {TOO_LONG} if compresses(session.lesson) else set()
    assert complaints <= allowed, session.api.refused
    assert seen.splitlines()[-3].endswith("All is well.")
    sent = []
    for request in session.api.requests:
        if not of_a_child(request["messages"]):
            sent += request["messages"][-2:]
    if not compresses(
        session.lesson
    ):  # words of the person that are too long are taken back
        sent = [message for message in sent if not isinstance(message["content"], str)]
    on_disk = [path.read_text("utf-8") for path in folder.glob(".agent/*/*.txt")]
    assert marks(sent) <= marks([session.sent(), on_disk])


def marks(value):
    return set(re.findall(r"mark-\d+-\d+\.", as_json(value)))


def of_a_child(messages):
    goals = [
        message["content"]
        for message in messages
        if isinstance(message["content"], str)
    ]
    is_goal = re.compile(r"(^|word for word\n)(\[offloaded.*\n)?CHILD")
    return any(is_goal.search(goal) for goal in goals)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("first", range(0, SHARE, CHUNK))
def test_random_sessions(start, monkeypatch, tmp_path, name, first):
    session = start(name, [])
    for seed in range(first, min(first + CHUNK, SHARE)):
        chance = Chance(name, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            prepare(session, chance, patch)
            seen = session.talk(chance.line(), chance.line(), "/messages", LAST)
        try:
            check(session, seen, folder)
        except AssertionError as error:
            raise AssertionError(f"{name}, seed {seed}: {error}") from error
        shutil.rmtree(folder)
