"""What the tests share: a clean environment, a lesson loaded afresh, and a session in which a person types at it."""
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
LESSONS = ["s01_agent_loop", "s02_tools", "s03_todo", "s04_subagent", "s05_context_compression"]
OURS = ("ANTHROPIC_", "MODEL", "COMPRESS_AT", "CONTEXT_WINDOW", "NO_COLOR")  # what steers a lesson from outside
KEPT = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell starts the tests with Ctrl-C ignored
gc.set_threshold(100_000)  # looking for cycles less often saves a second
ssl.SSLContext.load_verify_locations = lambda *_, **__: None  # 20 ms for each client, and no test speaks TLS


def clean_environment(**more):
    """The environment without what steers a lesson, without any .env, and with a key for the fake API."""
    return {**KEPT, "PYTHON_DOTENV_DISABLED": "1", "NO_PROXY": "*", "ANTHROPIC_API_KEY": "test", **more}


def interrupt():
    """Press Ctrl-C: from any thread, the signal reaches the main one, also in the middle of a system call."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


class Session:
    """A lesson in this process, in an empty working directory, its client pointed at a fake API.

    lesson: the module.  api: the fake.  folder: the working directory.  messages: the list that main() made,
    known after the first talk().  seen: all that was printed so far.
    """

    def __init__(self, lesson, api, folder, monkeypatch, capsys):
        self.lesson, self.api, self.folder = lesson, api, folder
        self._patch, self._capsys, self.seen = monkeypatch, capsys, ""
        lesson.client = lesson.client.with_options(base_url=api.url)

    def talk(self, *lines):
        """Type ``lines`` at the prompt, then end the input; returns what the person saw, prompts included."""
        typed = "".join(f"{line}\n" for line in lines).encode()
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed), encoding="utf-8"))
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
        return [block for block in self.sent(number)[-1]["content"] if block["type"] == "tool_result"]


@functools.cache
def compiled(path):
    return compile(path.read_bytes(), path, "exec")


def load(name):
    """The lesson's script as a module of its own, however often it was loaded before."""
    module = types.ModuleType(name)
    module.__file__ = str(ROOT / name / "agent.py")
    exec(compiled(ROOT / name / "agent.py"), module.__dict__)
    return module


def pytest_collection_finish(session):
    """Let a module start at once what takes long elsewhere."""
    if not session.config.option.collectonly:
        for begin in {getattr(item.module, "begin", None) for item in session.items} - {None}:
            begin()


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    """A clean environment and an empty working directory for every test; returns the directory."""
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
    """``start(lesson, script, window=200_000, **environment)``: a Session; its fake API ends with the test."""
    apis = []

    def begin(lesson, script, window=200_000, models=True, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        apis.append(FakeAPI(script, window=window, models=models).__enter__())
        return Session(load(lesson), apis[-1], environment, monkeypatch, capsys)

    yield begin
    for api in apis:
        api.__exit__(None, None, None)
