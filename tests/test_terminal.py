"""The terminal: what a person types and sees.

In this process, and in whole scripts in a pipe and in a pseudo-terminal.  A script takes a second
to start.  So each is started once, and early, and many tests look at what it showed.
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
# A line that the next one has overwritten.
WAITING = re.compile(r"thinking \.\.\.\x1b\[K\r\r\x1b\[K")
COLOUR = re.compile("\033\\[[0-9;]*m")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all but tab and line feed
# Clears the screen, names the window, hides what came before.
EVIL = "\033[2J\033]0;evil\007\x9b2J\r\b"
NO_KEY = (
    "No key: put ANTHROPIC_API_KEY into the .env beside the lessons, "
    f"or run there .venv/bin/python tests/offline.py {S01}"
)

in_every_lesson = pytest.mark.parametrize("lesson", LESSONS)
posix = pytest.mark.skipif(
    os.name != "posix", reason="POSIX commands, or a POSIX locale"
)
at_a_terminal = pytest.mark.skipif(
    not (hasattr(os, "openpty") and find_spec("readline")), reason="no pseudo-terminals"
)


def last_words(request):
    return request["messages"][-1]["content"]


def echo(request):
    """A script for the fake API: say what the person said."""
    return says(f"You said {last_words(request)}.")


def bash(command):
    return "bash", {"command": command}


def print_to(monkeypatch, terminal):
    """What is printed goes to a terminal, or not, as far as a lesson can see."""

    def isatty():
        return terminal

    monkeypatch.setattr(sys.stdout, "isatty", isatty)


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
    script = [
        calls(bash("echo one"), text="Let me look."),
        says("x" * 600),
    ]
    session = start(lesson, script)
    _, _, shown, _ = session.talk("What is there?", "/messages").split(" >> ")
    assert shown.splitlines()[:-1] == [
        "  0 user      text                        16  What is there?",
        "  1 assistant text, tool_use             134  "
        "Let me look. | bash {'command': 'echo one'}",
        "  2 user      tool_result                 93  one",
        f"  3 assistant text                       630  {'x' * 54}",
    ]
    assert len(session.api.requests) == 2  # to look sends nothing


@in_every_lesson
@pytest.mark.parametrize("terminal, no_color", [(True, ""), (True, "1"), (False, "")])
def test_colour_on_a_terminal_alone_and_never_under_no_color(
    lesson, terminal, no_color, start, monkeypatch
):
    print_to(monkeypatch, terminal)
    script = [calls(bash("echo one")), says("Done.")]
    session = start(lesson, script, NO_COLOR=no_color)
    is_coloured = COLOUR.search(session.talk("go")) is not None
    assert is_coloured == (terminal and not no_color)


@posix
@in_every_lesson
def test_neither_the_model_nor_a_file_steers_the_terminal(lesson, start):
    words = {"type": "text", "text": f"Done.{EVIL}"}
    script = [
        calls((EVIL, {EVIL: EVIL}), bash("cat evil"), text=EVIL),
        reply([words], f"stop{EVIL}"),
        says("Still here."),
    ]
    session = start(lesson, script)
    (session.folder / "evil").write_bytes(EVIL.encode())
    seen = session.talk("go", "/messages", "again")
    _, result = session.sent()[2]["content"]
    assert EVIL in result["content"]
    assert CONTROL.search(seen) is None
    assert "Still here." in seen


@pytest.mark.parametrize("lesson", LESSONS[3:])
def test_nothing_in_the_live_line_of_a_child_steers_the_terminal(
    lesson, start, monkeypatch
):
    print_to(monkeypatch, terminal=True)
    child = {"prompt": "Look.", "agent_type": "explore", "description": EVIL}
    script = [
        calls(("task", child)),
        calls(("glob", {"pattern": "*"})),
        says("Found."),
        says("Done."),
    ]
    session = start(lesson, script)
    shown = session.talk("go")
    # What the line itself needs: erase the rest, go back to its start.
    assert "\033[K\r" in shown
    rest = COLOUR.sub("", shown)
    for own in ("\033[K\r", "\r\033[K"):
        rest = rest.replace(own, "")
    assert CONTROL.search(rest) is None


@in_every_lesson
def test_after_words_that_are_too_long_for_the_model_the_next_are_answered(
    lesson, start
):
    session = start(lesson, echo, window=20_000)
    assert "You said hello." in session.talk("x" * 200_000, "hello")


# ---- Whole scripts in a pipe -------------------------------------------------------------------


def command(lesson, root=ROOT):
    return [sys.executable, str(root / lesson / "agent.py")]


def in_a_pipe(folder, typed, script=echo, lesson=S01, root=ROOT, **variables):
    """Run a lesson with `typed` as its input: what it printed, its status, the fake API."""
    with FakeAPI(script) as api:
        variables = {"ANTHROPIC_BASE_URL": api.url, **variables}
        done = subprocess.run(
            command(lesson, root),
            input=typed,
            capture_output=True,
            cwd=folder,
            env=clean_environment(**variables),
        )
    return SimpleNamespace(
        out=text_of(done.stdout),
        errors=text_of(done.stderr),
        status=done.returncode,
        api=api,
        folder=folder,
    )


def text_of(stream):
    return stream.decode().replace("\r\n", "\n")


def with_a_tool(lesson, leaving, folder):
    """A session with a tool, under LC_ALL=C, in a folder that is not the lesson's."""
    script = [
        calls(bash("echo one > made.txt && echo two")),
        says("Grüße 😀"),
        says("Bye."),
    ]
    typed = "Grüße 😀".encode() + b" \xff\n/messages\n" + leaving
    return in_a_pipe(folder, typed, script, lesson=lesson, LC_ALL="C")


def with_an_env_file(folder):
    """The file beside the lessons says where to go, and it is wrong; the shell knows better."""
    root = folder / "lessons"
    shutil.copytree(ROOT / S01, root / S01)
    typed = b"hello\nhello\n"
    with FakeAPI(echo) as api:
        setting = f"ANTHROPIC_BASE_URL={api.url}/nowhere\n"
        (root / ".env").write_text(setting, encoding="utf-8")
        return in_a_pipe(folder, typed, root=root, PYTHON_DOTENV_DISABLED="0")


def with_a_reader_that_leaves(folder):
    """As under `| head -1`, the other end of the pipe closes; then the input ends, or goes on.

    Returns the errors.
    """
    with FakeAPI(echo) as api:
        # With PYTHONUNBUFFERED there is no last flush.
        environment = clean_environment(ANTHROPIC_BASE_URL=api.url, PYTHONUNBUFFERED="")
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
            _, errors = one.communicate(b"")
            _, other_errors = other.communicate(b"hello\n")
            return errors + other_errors


@in_every_lesson
def test_a_script_runs_in_a_pipe(lesson, played):
    session = played(lesson)
    assert (session.status, session.errors, session.api.refused) == (0, "", [])
    assert "two\nGrüße" in session.out
    assert "\n  3 assistant text " in session.out
    assert "\033" not in session.out


@in_every_lesson
def test_a_script_works_in_the_folder_that_it_is_started_from(lesson, played):
    session = played(lesson)
    assert (session.folder / "made.txt").read_text().strip() == "one"
    assert str(session.folder) in session.api.requests[0]["system"]


@posix
@in_every_lesson
def test_any_text_passes_both_ways_under_lc_all_c(lesson, played):
    session = played(lesson)
    first = session.api.requests[0]
    assert last_words(first) == "Grüße 😀 \N{REPLACEMENT CHARACTER}"
    assert len(first["messages"]) == 1
    assert "Grüße 😀\n" in session.out


def test_a_last_line_without_a_line_end_counts(played):
    assert "Bye." in played(LESSONS[-1]).out
    assert "Bye." not in played(S01).out


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
        self.name = os.ttyname(screen)
        self.unread = ""
        self.seen = ""
        # The leader of a new session that opens a terminal gets it for its own: so the shell
        # opens it once more, and Ctrl-C becomes a signal.
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
        """Read what is new on the screen, and type `again` as long as nothing is.

        Returns False if the script has ended.
        """
        for _ in range(12):
            readable, _, _ = select.select([self.keyboard], [], [], 5)
            if readable:
                break
            os.write(self.keyboard, again.encode())
        else:
            pytest.fail(f"nothing came after {self.seen!r}")
        new = ""
        with contextlib.suppress(OSError):  # how Linux says that it has ended
            new = os.read(self.keyboard, 65536).decode(errors="replace")
        self.unread += new
        self.seen += new
        return bool(new)

    def types(self, keys, until=" >> "):
        """Type it; returns what the screen shows from there to the next prompt, or to `until`."""
        os.write(self.keyboard, keys.encode())
        while until not in self.unread:
            assert self.goes_on(), f"it ended after {self.seen!r}"
        shown, end, self.unread = self.unread.partition(until)
        return shown + end

    def leaves(self, keys):
        """Type it; returns the status with which the script ends.

        Python overlooks a Ctrl-C in the instant between the prompt and its wait for a key, until
        the next one.  So this lets the instant pass, and types it again if nothing comes of it.
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
        if last_words(request) == "call":
            slow = bash(f"echo started > {person.name}; sleep 60")
            return calls(slow, bash("touch second"))
        if last_words(request) == "wait":
            return waiting
        return echo(request)

    with (
        FakeAPI(script) as api,
        Terminal(folder, clean_environment(ANTHROPIC_BASE_URL=api.url)) as person,
    ):
        shown = {}
        shown["start"] = person.types("")
        shown["hello"] = person.types("hello\n")
        person.types("call\n", until="\nstarted\r\n")
        shown["Ctrl-C in a tool"] = person.types("\x03")
        person.types("wait\n", until="\n")
        assert waiting.arrived.wait(60)
        shown["Ctrl-C in a request"] = person.types("\x03")
        left = "\033[D"
        shown["edited"] = person.types("wrld" + 3 * left + "o\n")
        up = "\033[A"
        shown["recalled"] = person.types(4 * up + "\n")  # the first line
        status = person.leaves("\x04")
    return SimpleNamespace(
        shown=shown, status=status, seen=person.seen, api=api, folder=folder
    )


def without_key_and_colour(folder):
    environment = clean_environment(NO_COLOR="1")
    del environment["ANTHROPIC_API_KEY"]
    with Terminal(folder, environment) as person:
        person.types("")
        first = person.types("hello\n")
        second = person.types("hello\n")
        person.types("half a line", until="half a line")
        status = person.leaves("\x03")
        return SimpleNamespace(shown=[first, second], status=status, seen=person.seen)


@at_a_terminal
def test_the_prompt_names_the_lesson(played):
    assert played("the keyboard").shown["start"].endswith("s01 >> ")


@at_a_terminal
def test_a_turn_ends_in_dim_letters(played):
    shown = played("the keyboard").shown["hello"]
    assert "You said hello.\033[0m\r\n\r\033[K\033[2m[end_turn]\033[0m\r\n" in shown


@at_a_terminal
def test_ctrl_c_in_a_tool_costs_a_line_and_the_turn(played):
    session = played("the keyboard")
    cut, other = session.api.requests[2]["messages"][-2]["content"]
    assert "Interrupted while it ran" in cut["content"]
    assert "Not run" in other["content"]
    assert session.shown["Ctrl-C in a tool"].count("\n") == 1
    assert not (session.folder / "second").exists()


@at_a_terminal
def test_ctrl_c_in_a_request_costs_a_line_and_the_turn(played):
    session = played("the keyboard")
    assert session.shown["Ctrl-C in a request"].count("\n") == 1
    assert "Too late." not in session.seen
    assert "You said world." in session.shown["edited"]


@at_a_terminal
def test_a_line_can_be_edited_and_an_old_one_recalled(played):
    edited, recalled = played("the keyboard").api.requests[-2:]
    assert last_words(edited) == "world"
    assert last_words(recalled) == "hello"


@at_a_terminal
def test_ctrl_d_at_the_prompt_leaves(played):
    session = played("the keyboard")
    assert session.status == 0
    assert "Traceback" not in session.seen
    assert session.api.refused == []


@at_a_terminal
def test_no_key_costs_a_line_that_says_what_to_do(played):
    """And so there is no colour either, as NO_COLOR asks."""
    for shown in played("no key and no colour").shown:
        assert WAITING.sub("", shown) == f"hello\r\n{NO_KEY}\r\ns01 >> "


@at_a_terminal
def test_ctrl_c_at_the_prompt_leaves(played):
    session = played("no key and no colour")
    assert session.status == 0
    assert "Traceback" not in session.seen


# ---- The sessions that the tests look at -------------------------------------------------------

PLAYING = {}  # name: the future of its session
LEAVING = [  # each lesson is left in a way of its own
    b"q\nmore\n",
    b"exit\nmore\n",
    b"\nmore\n",
    b"",
    b"last, without a line end",
]
NO_ADDRESS = "http://localhost:port"
SESSIONS = {
    "the keyboard": at_the_keyboard,
    "no key and no colour": without_key_and_colour,
    "a reader that leaves": with_a_reader_that_leaves,
    "an env file": with_an_env_file,
    "no address": partial(in_a_pipe, typed=b"", ANTHROPIC_BASE_URL=NO_ADDRESS),
}
for lesson, leaving in zip(LESSONS, LEAVING, strict=True):
    SESSIONS[lesson] = partial(with_a_tool, lesson, leaving)


def begin():
    """Start them all, in processes of their own, while this one goes on with other tests.

    conftest calls this.
    """
    place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    pool = ThreadPoolExecutor(max_workers=1)
    atexit.register(place.cleanup)
    for number, (name, play) in enumerate(SESSIONS.items()):
        folder = pathlib.Path(place.name, str(number)).resolve()
        folder.mkdir()
        PLAYING[name] = pool.submit(play, folder)


@pytest.fixture
def played():
    """`played(name)`: one of SESSIONS, once it is over."""

    def played(name):
        return PLAYING[name].result()

    return played
