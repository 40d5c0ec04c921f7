"""What the tests share: a clean environment, and a lesson in which a person types.

In reading order: the environment, loading a lesson, the session, the fixtures.
"""

import contextlib
import functools
import gc
import io
import os
import pathlib
import signal
import ssl
import sys
import threading
import types

import pytest

from fake_api import FakeAPI

ROOT = pathlib.Path(__file__).resolve().parent.parent
LESSONS = [
    "s01_agent_loop",
    "s02_tools",
    "s03_todo",
    "s04_subagent",
    "s05_context_compression",
]


# ---- The environment ---------------------------------------------------------------------------

# What steers a lesson from outside: the beginnings of the names.
STEERING = ("ANTHROPIC_", "MODEL", "COMPRESS_AT", "CONTEXT_WINDOW", "NO_COLOR")
KEPT = {name: value for name, value in os.environ.items() if not name.startswith(STEERING)}


def load_no_certificates(*_, **__):
    """Saves 20 ms for each client; no test speaks TLS."""


signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored at the start
gc.set_threshold(100_000)  # looking for cycles less often saves a second
ssl.SSLContext.load_verify_locations = load_no_certificates


def clean_environment(**more):
    """The environment without what steers a lesson and without any .env; with a key for the fake."""
    return {
        **KEPT,
        "PYTHON_DOTENV_DISABLED": "1",
        "NO_PROXY": "*",
        "ANTHROPIC_API_KEY": "test",
        **more,
    }


def interrupt():
    """Press Ctrl-C: from any thread it reaches the main one, also in the middle of a system call."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


# ---- Loading a lesson --------------------------------------------------------------------------


@functools.cache
def compiled(path):
    return compile(path.read_bytes(), path, "exec")


def load(name):
    """The lesson's script as a module of its own, however often it was loaded before."""
    path = ROOT / name / "agent.py"
    module = types.ModuleType(name)
    module.__file__ = str(path)
    exec(compiled(path), module.__dict__)
    return module


# ---- The session -------------------------------------------------------------------------------


class Session:
    """A lesson in this process, in an empty working directory, its client pointed at a fake API."""

    def __init__(self, lesson, api, folder, monkeypatch, capsys):
        self.lesson = lesson  # the module
        self.api = api  # the fake
        self.folder = folder  # the working directory
        self.seen = ""  # all that was printed so far
        self._patch = monkeypatch
        self._capsys = capsys
        lesson.client = lesson.client.with_options(base_url=api.url)

    def talk(self, *lines):
        """Type `lines` at the prompt, then end the input.

        Returns what the person saw, prompts included.
        """
        typed = "".join(f"{line}\n" for line in lines)
        keyboard = io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8")
        self._patch.setattr(sys, "stdin", keyboard)
        try:
            self.lesson.main()
        except EOFError:  # the end of the input, which the script answers by leaving
            pass
        seen = self._capsys.readouterr()
        assert seen.err == ""
        self.seen += seen.out
        return seen.out

    def sent(self, number=-1):
        """The messages of a request, the last one by default."""
        return self.api.requests[number]["messages"]

    def results(self, number=-1):
        """The tool results in the last turn of a request, by their order."""
        last_turn = self.sent(number)[-1]["content"]
        return [block for block in last_turn if block["type"] == "tool_result"]


# ---- The fixtures ------------------------------------------------------------------------------


def pytest_collection_finish(session):
    """Let a module that has a begin() start at once what takes long elsewhere."""
    if session.config.option.collectonly:
        return
    for module in {item.module for item in session.items}:
        if hasattr(module, "begin"):
            module.begin()


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """A clean environment and an empty working directory for each test; returns the directory."""
    clean = clean_environment()
    for name in set(os.environ) - set(clean):
        monkeypatch.delenv(name)
    for name, value in clean.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def start(environment, monkeypatch, capsys):
    """`start(lesson, script, ...)`: a Session; its fake API ends with the test."""
    with contextlib.ExitStack() as running:

        def begin(lesson, script, window=200_000, models=True, **variables):
            for name, value in variables.items():
                monkeypatch.setenv(name, value)
            api = running.enter_context(FakeAPI(script, window=window, models=models))
            return Session(load(lesson), api, environment, monkeypatch, capsys)

        yield begin
