"""Exercise 3 of s01_agent_loop: /save FILE and /load FILE carry a session over to another one."""

import json
import os
import subprocess
import sys

import pytest

from conftest import ROOT, clean_environment
from fake_api import FakeAPI, calls, says

FINE = {"type": "text", "text": "A fine name."}
OLD = [
    {"role": "user", "content": "My cat is called Äffle 🐱."},
    {"role": "assistant", "content": [FINE]},
]
NOW = {"role": "user", "content": "and now?"}
HELLO = says("Hello.")
AGAIN = says("Hello again.")
LONG = "x" * 300  # no file can have so long a name


def lines_after(seen, number):
    """What was printed after the person's input of this number, counted from 1."""
    return seen.split("s01 >> ")[number].splitlines()


def write(path, text):
    path.write_text(text, encoding="utf-8")


# ---- There and back --------------------------------------------------------------------------


def test_a_saved_session_goes_on_where_it_ended(start):
    call = "bash", {"command": "echo Äffle"}
    look = calls(call, text="I look 🐱.")
    first = start("s01_agent_loop", [look, HELLO])
    first.talk("go", "/save my session.json", "and now?")
    *history, last = first.sent()
    assert last == NOW
    assert len(history) == 4, "/save is no message"
    assert (first.folder / "my session.json").exists(), "the name is the rest of the line"

    second = start("s01_agent_loop", [HELLO, AGAIN])
    second.talk("something else", "/load my session.json", "and now?")
    assert second.sent() == [*history, NOW]
    assert len(second.api.requests) == 2, "/load is no message"
    assert second.api.refused == []


def test_the_file_is_plain_json(start):
    session = start("s01_agent_loop", [HELLO])
    write(session.folder / "old.json", json.dumps(OLD))
    session.talk("/load old.json", "/save new.json", "and now?")
    assert session.sent() == [*OLD, NOW]
    saved = (session.folder / "new.json").read_text(encoding="utf-8")
    assert json.loads(saved) == OLD


def test_a_session_in_which_nothing_was_said_is_one_too(start):
    session = start("s01_agent_loop", [HELLO, AGAIN])
    session.talk("/save empty.json", "hi", "/load empty.json", "and now?")
    assert session.sent() == [NOW]
    assert len(session.api.requests) == 2


@pytest.mark.skipif(
    os.name != "posix",
    reason="a POSIX locale",
)
def test_the_file_is_utf_8_whatever_the_locale(environment):
    write(environment / "old.json", json.dumps(OLD, ensure_ascii=False))
    typed = "/load old.json\n/save new.json\nand now?\n"
    command = [sys.executable, str(ROOT / "s01_agent_loop" / "agent.py")]
    with FakeAPI([HELLO]) as api:
        variables = clean_environment(
            ANTHROPIC_BASE_URL=api.url,
            LC_ALL="C",
            PYTHONCOERCECLOCALE="0",  # or Python takes UTF-8 in place of C
            PYTHONUTF8="0",
        )
        subprocess.run(command, input=typed, encoding="utf-8", env=variables, check=True)
    [request] = api.requests
    assert request["messages"] == [*OLD, NOW]
    saved = (environment / "new.json").read_text(encoding="utf-8")
    assert json.loads(saved) == OLD


# ---- What costs one line and changes nothing -------------------------------------------------

NO_SESSION = {
    "no JSON": "no JSON",
    "an empty file": "",
    "an object": "{}",
    "an object with the fields of a message": '{"role": "user", "content": "hi"}',
    "a number": "5",
    "null": "null",
    "a text": '"role content"',
    "numbers": "[1, 2]",
    "texts with the words": '["role content"]',
    "lists": '[["role", "content"]]',
    "no content": '[{"role": "user"}]',
    "no role": '[{"content": "hi"}]',
    "a role that there is not": '[{"role": "cat", "content": "hi"}]',
    "a role that is a list": '[{"role": ["user"], "content": "hi"}]',
    "content that is a number": '[{"role": "user", "content": 5}]',
    "content that is null": '[{"role": "user", "content": null}]',
    "content that is an object": '[{"role": "user", "content": {"type": "text"}}]',
    "a block that is a text": '[{"role": "user", "content": ["type"]}]',
    "a block without a type": '[{"role": "user", "content": [{"text": "hi"}]}]',
    "a message, then none": '[{"role": "user", "content": "hi"}, "role content"]',
    "a block, then none": '[{"role": "user", "content": [{"type": "text", "text": "hi"}, 5]}]',
}


@pytest.fixture
def stays(start):
    """`stays(command)`: it costs one line, sends nothing, and the list stays as it was."""

    def check(command):
        session = start("s01_agent_loop", [HELLO, AGAIN])
        seen = session.talk("hi", command, "/messages", "and now?")
        assert len(lines_after(seen, 2)) == 1, "the person is told, in one line"
        assert len(lines_after(seen, 3)) == 2, "the list has its two messages"
        first, second, last = session.sent()
        assert first["content"] == "hi"
        assert second["role"] == "assistant"
        assert last == NOW
        assert len(session.api.requests) == 2
        assert session.api.refused == []

    return check


@pytest.mark.parametrize(
    "text",
    NO_SESSION.values(),
    ids=NO_SESSION,
)
def test_a_file_that_is_no_session_is_not_loaded(stays, environment, text):
    write(environment / "bad.json", text)
    stays("/load bad.json")


def test_a_file_that_is_not_utf_8_is_not_loaded(stays, environment):
    (environment / "bad.json").write_bytes(b'[{"role": "user", "content": "\xff"}]')
    stays("/load bad.json")


@pytest.mark.parametrize("name", ["missing.json", ".", LONG])
def test_a_file_that_cannot_be_read_costs_one_line(stays, name):
    stays(f"/load {name}")


@pytest.mark.parametrize("name", ["no/such/folder/x.json", ".", LONG])
def test_a_file_that_cannot_be_written_costs_one_line(stays, name):
    stays(f"/save {name}")


@pytest.mark.parametrize("command", ["/save", "/load"])
def test_a_command_without_a_name_costs_one_line(stays, environment, command):
    stays(command)
    assert list(environment.iterdir()) == []


FAILING = [
    "/save",
    "/load",
    "/load missing.json",
    f"/load {LONG}",
    f"/save {LONG}",
]


@pytest.mark.parametrize("command", FAILING)
def test_nothing_ends_a_session_in_which_nothing_was_said(start, command):
    session = start("s01_agent_loop", [HELLO])
    seen = session.talk(command, "and now?")
    assert len(lines_after(seen, 1)) == 1
    assert session.sent() == [NOW]
