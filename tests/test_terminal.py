"""The terminal: what a person types and sees, in this process, and in whole scripts in a pipe and in a pseudo-terminal.

A script takes a second to start. So each is started once, and early, and many tests look at what it showed.
"""

import atexit
import contextlib
import os
import pathlib
import re
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from conftest import LESSONS, ROOT, clean_environment
from fake_api import FakeAPI, Wait, calls, reply, says

S01 = LESSONS[0]
WAITING = re.compile(
    r"thinking \.\.\.\x1b\[K\r\r\x1b\[K"
)  # a line that the next one has overwritten
COLOUR = re.compile("\033\\[[0-9;]*m")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed
EVIL = "\033[2J\033]0;evil\007\x9b2J\r\b"  # clears the screen, names the window, hides what came before
NO_KEY = f"No key: put ANTHROPIC_API_KEY into .env, or run .venv/bin/python tests/offline.py {S01}"

in_every_lesson = pytest.mark.parametrize("lesson", LESSONS)
posix = pytest.mark.skipif(
    os.name != "posix", reason="POSIX commands, or a POSIX locale"
)
at_a_terminal = pytest.mark.skipif(
    not (hasattr(os, "openpty") and find_spec("readline")), reason="no pseudo-terminals"
)


def echo(request):
    """A script for the fake API: say what the person said."""
    return says(f"You said {request['messages'][-1]['content']}.")


# ---- In this process ---------------------------------------------------------------------------


@in_every_lesson
def test_q_exit_and_an_empty_line_leave(lesson, start):
    session = start(lesson, echo)
    for word in ("q", "exit", "", "  "):
        assert session.talk(word, "never sent") == f"{lesson[:3]} >> "
    assert session.api.requests == []


@posix
@in_every_lesson
def test_the_microscope_shows_a_row_for_each_message(lesson, start):
    session = start(
        lesson,
        [
            calls(("bash", {"command": "echo one"}), text="Let me look."),
            says("x" * 600),
        ],
    )
    shown = session.talk("What is there?", "/messages").split(" >> ")[2]
    assert shown.splitlines()[:-1] == [
        "  0 user      text                        16  What is there?",
        "  1 assistant text, tool_use             134  Let me look. | bash {'command': 'echo one'}",
        "  2 user      tool_result                 93  one",
        f"  3 assistant text                       630  {'x' * 54}",
    ]
    assert len(session.api.requests) == 2  # to look sends nothing


@in_every_lesson
@pytest.mark.parametrize("terminal, no_color", [(True, ""), (True, "1"), (False, "")])
def test_colour_on_a_terminal_alone_and_never_under_no_color(
    lesson, terminal, no_color, start, monkeypatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    session = start(
        lesson,
        [calls(("bash", {"command": "echo one"})), says("Done.")],
        NO_COLOR=no_color,
    )
    assert bool(COLOUR.search(session.talk("go"))) == (terminal and not no_color)


@posix
@in_every_lesson
def test_neither_the_model_nor_a_file_steers_the_terminal(lesson, start):
    session = start(
        lesson,
        [
            calls((EVIL, {EVIL: EVIL}), ("bash", {"command": "cat evil"}), text=EVIL),
            reply(says(f"Done.{EVIL}")["content"], f"stop{EVIL}"),
            says("Still here."),
        ],
    )
    (session.folder / "evil").write_bytes(EVIL.encode())
    seen = session.talk("go", "/messages", "again")
    assert EVIL in session.sent()[2]["content"][1]["content"]
    assert CONTROL.search(seen) is None and "Still here." in seen


@pytest.mark.parametrize("lesson", LESSONS[3:])
def test_nothing_in_the_live_line_of_a_child_steers_the_terminal(
    lesson, start, monkeypatch
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    child = {"prompt": "Look.", "agent_type": "explore", "description": EVIL}
    session = start(
        lesson,
        [
            calls(("task", child)),
            calls(("glob", {"pattern": "*"})),
            says("Found."),
            says("Done."),
        ],
    )
    shown, own = (
        session.talk("go"),
        "\033[K\r",
    )  # what the line itself needs: erase the rest, go back to its start
    assert own in shown
    assert (
        CONTROL.search(COLOUR.sub("", shown).replace(own, "").replace("\r\033[K", ""))
        is None
    )


@in_every_lesson
def test_after_words_that_are_too_long_for_the_model_the_next_are_answered(
    lesson, start
):
    seen = start(lesson, echo, window=20_000).talk("x" * 200_000, "hello")
    assert "You said hello." in seen


# ---- Whole scripts in a pipe -------------------------------------------------------------------


def command(lesson, root=ROOT):
    return [sys.executable, str(root / lesson / "agent.py")]


def in_a_pipe(folder, typed, script=echo, lesson=S01, root=ROOT, **variables):
    """Run a lesson with `typed` as its input: what it printed, its status, the fake API."""
    with FakeAPI(script) as api:
        environment = clean_environment(**{"ANTHROPIC_BASE_URL": api.url, **variables})
        done = subprocess.run(
            command(lesson, root),
            input=typed,
            capture_output=True,
            cwd=folder,
            env=environment,
        )
    out, errors = (
        stream.decode().replace("\r\n", "\n") for stream in (done.stdout, done.stderr)
    )
    return SimpleNamespace(
        out=out, errors=errors, status=done.returncode, api=api, folder=folder
    )


def with_a_tool(lesson, leaving, folder):
    """A session with a tool, under LC_ALL=C, in a folder that is not the lesson's."""
    script = [
        calls(("bash", {"command": "echo one > made.txt && echo two"})),
        says("Grüße 😀"),
        says("Bye."),
    ]
    typed = "Grüße 😀".encode() + b" \xff\n/messages\n" + leaving
    return in_a_pipe(folder, typed, script, lesson=lesson, LC_ALL="C")


def with_an_env_file(folder):
    """The file beside the lessons says where to go, and it is wrong; the shell knows better."""
    shutil.copytree(ROOT / S01, folder / "lessons" / S01)
    with FakeAPI(echo) as api:
        (folder / "lessons" / ".env").write_text(
            f"ANTHROPIC_BASE_URL={api.url}/nowhere\n", encoding="utf-8"
        )
        return in_a_pipe(
            folder,
            b"hello\nhello\n",
            root=folder / "lessons",
            PYTHON_DOTENV_DISABLED="0",
        )


def with_a_reader_that_leaves(folder):
    """As under `| head -1`, the other end of the pipe closes; then the input ends, or goes on.  Returns the errors."""
    with FakeAPI(echo) as api:
        environment = clean_environment(
            ANTHROPIC_BASE_URL=api.url, PYTHONUNBUFFERED=""
        )  # or there is no last flush
        start = partial(
            subprocess.Popen,
            command(S01),
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with start() as one, start() as other:
            for process in (one, other):
                assert process.stdout.read(7) == b"s01 >> "
                process.stdout.close()
            return one.communicate(b"")[1] + other.communicate(b"hello\n")[1]


@in_every_lesson
def test_a_script_runs_in_a_pipe(lesson, played):
    session = played(lesson)
    assert (session.status, session.errors, session.api.refused) == (0, "", [])
    assert "two\nGrüße" in session.out and "\n  3 assistant text " in session.out
    assert "\033" not in session.out


@in_every_lesson
def test_a_script_works_in_the_folder_that_it_is_started_from(lesson, played):
    session = played(lesson)
    assert (session.folder / "made.txt").read_text().strip() == "one"
    assert str(session.folder) in session.api.requests[0]["system"]


@posix
@in_every_lesson
def test_any_text_passes_both_ways_under_lc_all_c(lesson, played):
    assert (
        played(lesson).api.requests[0]["messages"][0]["content"]
        == "Grüße 😀 \N{REPLACEMENT CHARACTER}"
    )
    assert "Grüße 😀\n" in played(lesson).out


def test_a_last_line_without_a_line_end_counts(played):
    assert "Bye." in played(LESSONS[-1]).out and "Bye." not in played(S01).out


def test_the_env_file_beside_the_lessons_wins_and_a_wrong_address_costs_a_line(played):
    session = played("an env file")
    assert session.out.split("s01 >> ") == [
        "",
        "NotFoundError: Not found\n",
        "NotFoundError: Not found\n",
        "\n",
    ]
    assert (session.status, session.errors, session.api.requests) == (0, "", [])


def test_a_setting_that_stops_the_start_costs_a_line(played):
    session = played("no address")
    assert (session.out, session.status) == ("", 1)
    assert re.fullmatch(r"ANTHROPIC_BASE_URL is no use: .+\n", session.errors)


def test_a_reader_that_leaves_the_pipe_gets_no_traceback(played):
    assert played("a reader that leaves") == b""


# ---- Whole scripts in a pseudo-terminal --------------------------------------------------------


class Terminal:
    """A lesson in a pseudo-terminal, with a person in front of it."""

    def __init__(self, folder, environment):
        self.keyboard, screen = os.openpty()
        self.name, self.unread, self.seen = os.ttyname(screen), "", ""
        # The leader of a new session that opens a terminal gets it for its own: so the shell opens it once more,
        # and Ctrl-C becomes a signal.
        opened = ["sh", "-c", 'exec "$@" <>"$0" >&0 2>&1', self.name, *command(S01)]
        self.process = subprocess.Popen(
            opened,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
            cwd=folder,
            env={**environment, "TERM": "xterm"},
        )
        os.close(screen)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.keyboard)

    def goes_on(self, again=""):
        """Read what is new on the screen, and type `again` as long as nothing is; False if the script has ended."""
        for _ in range(12):
            if select.select([self.keyboard], [], [], 5)[0]:
                break
            os.write(self.keyboard, again.encode())
        else:
            pytest.fail(f"nothing came after {self.seen!r}")
        new = ""
        with contextlib.suppress(OSError):  # how Linux says that it has ended
            new = os.read(self.keyboard, 65536).decode(errors="replace")
        self.unread, self.seen = self.unread + new, self.seen + new
        return bool(new)

    def types(self, keys, until=" >> "):
        """Type it; returns what the screen shows from there to the next prompt, or to another text."""
        os.write(self.keyboard, keys.encode())
        while until not in self.unread:
            assert self.goes_on(), f"it ended after {self.seen!r}"
        shown, end, self.unread = self.unread.partition(until)
        return shown + end

    def leaves(self, keys):
        """Type it; returns the status with which the script ends.

        Python overlooks a Ctrl-C in the instant between the prompt and its wait for a key, until the next one. So
        this lets the instant pass, and types it again if nothing comes of it.
        """
        select.select([self.keyboard], [], [], 0.1)
        os.write(self.keyboard, keys.encode())
        going = self.goes_on(again=keys)
        while going:
            going = self.goes_on()
        return self.process.wait()


def at_the_keyboard(folder):
    waiting = Wait(threading.Event(), says("Too late."))

    def script(request):
        match request["messages"][-1]["content"]:
            case "call":
                return calls(
                    ("bash", {"command": f"echo started > {person.name}; sleep 60"}),
                    ("bash", {"command": "touch second"}),
                )
            case "wait":
                return waiting
        return echo(request)

    with (
        FakeAPI(script) as api,
        Terminal(folder, clean_environment(ANTHROPIC_BASE_URL=api.url)) as person,
    ):
        shown = {"start": person.types(""), "hello": person.types("hello\n")}
        person.types("call\n", until="\nstarted\r\n")
        shown["Ctrl-C in a tool"] = person.types("\x03")
        person.types("wait\n", until="\n")
        assert waiting.arrived.wait(60)
        shown["Ctrl-C in a request"] = person.types("\x03")
        shown["edited"] = person.types(
            "wrld\033[D\033[D\033[Do\n"
        )  # three times to the left
        shown["recalled"] = person.types(
            "\033[A\033[A\033[A\033[A\n"
        )  # up to the first line
        status = person.leaves("\x04")
    return SimpleNamespace(
        shown=shown, status=status, seen=person.seen, api=api, folder=folder
    )


def without_key_and_colour(folder):
    environment = clean_environment(NO_COLOR="1")
    del environment["ANTHROPIC_API_KEY"]
    with Terminal(folder, environment) as person:
        shown = [person.types(""), person.types("hello\n"), person.types("hello\n")]
        person.types("half a line", until="half a line")
        return SimpleNamespace(
            shown=shown, status=person.leaves("\x03"), seen=person.seen
        )


@at_a_terminal
def test_the_prompt_names_the_lesson(played):
    assert played("the keyboard").shown["start"].endswith("s01 >> ")


@at_a_terminal
def test_a_turn_ends_in_dim_letters(played):
    assert (
        "You said hello.\033[0m\r\n\r\033[K\033[2m[end_turn]\033[0m\r\n"
        in played("the keyboard").shown["hello"]
    )


@at_a_terminal
def test_ctrl_c_in_a_tool_costs_a_line_and_the_turn(played):
    session = played("the keyboard")
    cut, other = session.api.requests[2]["messages"][-2]["content"]
    assert (
        "Interrupted while it ran" in cut["content"] and "Not run" in other["content"]
    )
    assert (
        session.shown["Ctrl-C in a tool"].count("\n") == 1
        and not (session.folder / "second").exists()
    )


@at_a_terminal
def test_ctrl_c_in_a_request_costs_a_line_and_the_turn(played):
    session = played("the keyboard")
    assert (
        session.shown["Ctrl-C in a request"].count("\n") == 1
        and "Too late." not in session.seen
    )
    assert "You said world." in session.shown["edited"]


@at_a_terminal
def test_a_line_can_be_edited_and_an_old_one_recalled(played):
    last = [
        request["messages"][-1]["content"]
        for request in played("the keyboard").api.requests[-2:]
    ]
    assert last == ["world", "hello"]


@at_a_terminal
def test_ctrl_d_at_the_prompt_leaves(played):
    session = played("the keyboard")
    assert (
        session.status == 0
        and "Traceback" not in session.seen
        and session.api.refused == []
    )


@at_a_terminal
def test_no_key_costs_a_line_that_says_what_to_do(played):
    for shown in played("no key and no colour").shown[1:]:
        assert (
            re.sub(WAITING, "", shown) == f"hello\r\n{NO_KEY}\r\ns01 >> "
        )  # so there is no colour either, as NO_COLOR asks


@at_a_terminal
def test_ctrl_c_at_the_prompt_leaves(played):
    session = played("no key and no colour")
    assert session.status == 0 and "Traceback" not in session.seen


# ---- The sessions that the tests look at -------------------------------------------------------

PLAYING = {}  # name: the future of its session
LEAVING = (b"q\nmore\n", b"exit\nmore\n", b"\nmore\n", b"", b"last, without a line end")
SESSIONS = {
    "the keyboard": at_the_keyboard,
    "no key and no colour": without_key_and_colour,
    "a reader that leaves": with_a_reader_that_leaves,
    "an env file": with_an_env_file,
    "no address": partial(
        in_a_pipe, typed=b"", ANTHROPIC_BASE_URL="http://localhost:port"
    ),
    **{
        lesson: partial(with_a_tool, lesson, leaving)
        for lesson, leaving in zip(LESSONS, LEAVING)
    },
}


def begin():
    """Start them all, in processes of their own, while this one goes on with other tests (conftest calls this)."""
    place, pool = (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True),
        ThreadPoolExecutor(max_workers=1),
    )
    atexit.register(place.cleanup)
    for number, (name, play) in enumerate(SESSIONS.items()):
        folder = pathlib.Path(place.name, str(number)).resolve()
        folder.mkdir()
        PLAYING[name] = pool.submit(play, folder)


@pytest.fixture
def played():
    """`played(name)`: one of SESSIONS, once it is over."""
    return lambda name: PLAYING[name].result()
