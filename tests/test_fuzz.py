"""500 random sessions of s05 in small windows: the API refuses nothing but what is too long, and nothing is lost.

A session is made of its seed: what the person types, what the model answers, what fails, where Ctrl-C is pressed.
"""

import json
import random
import re

import anthropic
import httpx2
import pytest
from anthropic.types import Message

from conftest import LESSONS
from fake_api import Handler, Status, as_json, calls, reply, says

CHUNK = 100  # sessions in a test
TOO_LONG = "prompt is too long"
SUMMARY = "## Session intent\n## Summary\n## Artifacts\n## Next steps\n"
LAST = "still there?"  # what the person types at the end, when no more faults come
STOPS = [
    "end_turn",
    "max_tokens",
    "refusal",
    "pause_turn",
    "tool_use",
    "model_context_window_exceeded",
    "a_new_reason",
]
FAULTS = [
    Status(400, f"{TOO_LONG}: 9 tokens > 8 maximum"),
    *map(Status, (400, 401, 413, 429, 500, 529)),
]
TYPES = ["explore", "code", "review", "fix", "fix", "nobody"]
PATHS = ["a.txt", "b/c.txt", "missing.txt", "../outside.txt"]


class Direct(Handler):
    """The fake API without SDK and wire, which would take most of the time here."""

    def __init__(self, server):
        self.server = server

    def create(self, **request):
        self.play(*self.server.receive(json.dumps(request).encode(), None))
        return self.reply

    def send(self, code, body, headers={}):
        if code != 200:
            response = httpx2.Response(
                code, request=httpx2.Request("POST", self.server.url)
            )
            raise anthropic.APIStatusError(
                body["error"]["message"], response=response, body=body
            )
        self.reply = Message.construct(**body)


class Chance:
    """One session's person, model and faults."""

    def __init__(self, seed, lesson):
        self.seed, self.lesson, self.random, self.marks, self.replies = (
            seed,
            lesson,
            random.Random(seed),
            0,
            0,
        )

    def happens(self, share):
        return (
            LAST not in str(self.lesson.PARENT.messages)
            and self.random.random() < share
        )

    def text(self, most=9_000):
        """Words that start as no others do."""
        self.marks += 1
        size = min(most, self.random.choice([0, 50, 900, 1_100, 3_000, 9_000]))
        filler = self.random.choice(["word ", "漢字 ", "a\n", "\\\"'\t"])
        return f"mark-{self.seed}-{self.marks}. " + filler * (size // 5)

    def call(self):
        """A call of a tool, good or bad."""
        path, agent_type = self.random.choice(PATHS), self.random.choice(TYPES)
        status = self.random.choice(["pending", "in_progress", "completed", "nonsense"])
        return self.random.choice(
            [
                ("write_file", {"path": path, "content": self.text()}),
                ("write_file", {"path": path, "content": self.text()}),
                ("read_file", {"path": path}),
                (
                    "read_file",
                    {"path": path, "offset": self.random.randint(-1, 3), "limit": None},
                ),
                (
                    "edit_file",
                    {"path": path, "old_text": "mark", "new_text": self.text()},
                ),
                ("grep", {"pattern": self.random.choice(["mark", "(", "."])}),
                ("glob", {"pattern": "**/*"}),
                ("todo", {"items": [{"text": self.text(500), "status": status}]}),
                ("compact", {}),
                ("task", {"prompt": f"CHILD {self.text()}", "agent_type": agent_type}),
                ("no_such_tool", {"x": self.text()}),
                ("bash", {"command": None}),
            ]
        )

    def reply(self):
        """What the model says, which may be odd, or nothing."""
        thought = [
            {
                "type": "thinking",
                "thinking": "Hm.",
                "signature": str(self.random.random()),
            }
        ]
        words = says(self.random.choice(["", " \n", self.text(), self.text()]))[
            "content"
        ]
        some = calls(*[self.call() for _ in range(self.random.randint(1, 4))])[
            "content"
        ]
        odd = self.random.choice([[], words, some, thought, words + some])
        return self.random.choice(
            [
                reply(some, "tool_use"),
                reply(words + some, "tool_use"),
                reply(words),
                reply(thought + words + some, "tool_use"),
                reply(odd, self.random.choice(STOPS)),
            ]
        )

    def script(self, request):
        self.replies += 1
        if self.happens(0.12):
            return self.random.choice(FAULTS)
        if request["messages"][-1] == self.lesson.SUM_UP and not self.happens(0.2):
            return says(SUMMARY)
        return (
            self.reply()
            if self.replies < 9 and self.happens(1)
            else says("All is well.")
        )

    def with_ctrl_c(self, function):
        """`function`, with Ctrl-C pressed now and then before it has done its work, or right after."""

        def run(*words, **named):
            before, after = self.happens(0.03), self.happens(0.03)
            if before:
                raise KeyboardInterrupt
            result = function(*words, **named)
            if after:
                raise KeyboardInterrupt
            return result

        return run


def marks(value):
    return set(re.findall(r"mark-\d+-\d+\.", as_json(value)))


def of_a_child(messages):
    goals = [
        message["content"]
        for message in messages
        if isinstance(message["content"], str)
    ]
    return any(
        re.search(r"(^|word for word\n)(\[offloaded.*\n)?CHILD", goal) for goal in goals
    )


@pytest.mark.parametrize("first", range(0, 500, CHUNK))
def test_random_sessions(start, monkeypatch, tmp_path, first):
    session = start(LESSONS[-1], [])
    lesson, api, handlers = session.lesson, session.api, dict(session.lesson.HANDLERS)
    for seed in range(first, first + CHUNK):
        chance = Chance(seed, lesson)
        folder = tmp_path / str(seed)
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(
            lesson, "CONTEXT_WINDOW", chance.random.randint(4_000, 8_000)
        )
        monkeypatch.setattr(
            lesson, "COMPRESS_AT", chance.random.choice([0.1, 0.4, 0.7, 0.85, 1.0])
        )
        lesson.context_window.cache_clear()
        lesson.HANDLERS.update(
            {name: chance.with_ctrl_c(handler) for name, handler in handlers.items()}
        )
        monkeypatch.setattr(
            lesson.client.messages, "create", chance.with_ctrl_c(Direct(api).create)
        )
        api.script, api.window = (
            chance.script,
            lesson.CONTEXT_WINDOW * chance.random.choice([1, 1, 0.7]),
        )
        for kept in (api.requests, api.raw, api.refused, api.usage):
            kept.clear()
        seen = session.talk(*[" ".join(chance.text().split()) for _ in range(2)], LAST)
        assert {complaint.partition(":")[0] for complaint in api.refused} <= {
            TOO_LONG
        }, f"seed {seed}"
        assert seen.splitlines()[-3].endswith("All is well."), f"seed {seed}"
        sent = [
            request["messages"][-2:]
            for request in api.requests
            if not of_a_child(request["messages"])
        ]
        disk = [path.read_text("utf-8") for path in folder.glob(".agent/*/*.txt")]
        assert marks(sent) <= marks([lesson.PARENT.messages, disk]), f"seed {seed}"
