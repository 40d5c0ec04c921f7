"""Each lesson is the one before and one idea, within the budgets.

The diff holds what its docstring names.
"""

import ast
import os
import re
import shutil
import signal
import sys
from itertools import pairwise

import pytest

import lessons
from conftest import LESSONS, load
from fake_api import says

PAIRS = list(pairwise(LESSONS))
ADDED_TOOLS = [  # by each lesson
    ["bash"],
    ["read_file", "write_file", "edit_file", "glob", "grep"],
    ["todo"],
    ["task"],
    ["compact"],
]

# What Windows lacks and scripts are tempted to use.
POSIX_NAMES = {
    os: (
        "fork",
        "forkpty",
        "getpgid",
        "getpgrp",
        "getuid",
        "killpg",
        "setpgid",
        "setsid",
        "tcsetpgrp",
        "uname",
        "wait3",
        "WNOHANG",
        "O_NONBLOCK",
    ),
    signal: (
        "SIGALRM",
        "SIGCHLD",
        "SIGHUP",
        "SIGKILL",
        "SIGPIPE",
        "SIGQUIT",
        "SIGTSTP",
        "SIGWINCH",
        "alarm",
        "pthread_kill",
        "pthread_sigmask",
        "setitimer",
        "sigwait",
    ),
}
POSIX_MODULES = ("fcntl", "grp", "pty", "pwd", "readline", "resource", "termios", "tty")

in_every_lesson = pytest.mark.parametrize("lesson", LESSONS)
in_every_step = pytest.mark.parametrize("before, after", PAIRS)
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="the diff is git's")


def docstring(lesson):
    return ast.get_docstring(ast.parse(lessons.source(lesson)), clean=False)


def listed(lesson):
    """What the last two lines of a lesson's docstring say after `New:` and `Changed:`."""
    return re.search(r"\nNew: (.+)\nChanged: (.+)\n\Z", docstring(lesson)).groups()


def sections(lesson):
    return re.findall(r"^# ---- (.+?) -+$", lessons.source(lesson), re.M)


# ---- The docstring and the code ----------------------------------------------------------------


@in_every_step
def test_the_docstring_names_what_is_new_and_what_changed(before, after):
    old = lessons.definitions(before)
    new = lessons.definitions(after)
    added = [name for name in new if name not in old]
    altered = [name for name in new if name in old and new[name] != old[name]]
    said_new, said_changed = listed(after)
    assert sorted(said_new.split(", ")) == sorted(added)
    assert sorted(said_changed.split(", ")) == sorted(altered)


def test_in_the_first_lesson_everything_is_new():
    assert listed(LESSONS[0]) == ("everything", "nothing")


@in_every_step
def test_nothing_is_lost_or_moved(before, after):
    old = lessons.definitions(before)
    new = lessons.definitions(after)
    assert [name for name in new if name in old] == list(old)


@in_every_step
def test_a_step_adds_one_section(before, after):
    old = sections(before)
    new = sections(after)
    assert [rule for rule in new if rule in old] == old
    assert len(new) == len(old) + 1


@in_every_lesson
def test_the_docstring_is_three_sentences_and_a_diagram(lesson):
    idea, diagram = docstring(lesson).split("\n\n")
    assert len(re.findall(r"[.!?](?=\s|$)", idea)) == 3
    assert diagram.lstrip().startswith("person --> messages --> model")


def test_the_loop_is_the_same_in_the_first_two_lessons():
    first = lessons.definitions(LESSONS[0])
    second = lessons.definitions(LESSONS[1])
    assert first["agent_loop"] == second["agent_loop"]


# ---- The budgets -------------------------------------------------------------------------------


@needs_git
@in_every_step
def test_a_step_keeps_97_percent_of_the_lines(before, after):
    assert lessons.kept(before, after) >= 0.97


@needs_git
@in_every_step
def test_a_step_is_at_most_ten_hunks(before, after):
    assert 0 < len(lessons.hunks(before, after)) <= 10


@in_every_lesson
def test_no_line_is_longer_than_100_characters(lesson):
    """Of code, comments and docstrings; but the names of what is new may fill a line."""
    too_long = []
    for line in lessons.source(lesson).splitlines():
        is_list = line.startswith(("New: ", "Changed: "))
        if len(line) > 100 and not is_list:
            too_long.append(line)
    assert too_long == []


@in_every_lesson
def test_no_function_is_longer_than_40_lines(lesson):
    too_long = []
    for node in ast.walk(ast.parse(lessons.source(lesson))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - node.lineno + 1
            if length > 40:
                too_long.append((node.name, length))
    assert too_long == []


def test_the_loop_of_the_first_lesson_begins_within_60_lines():
    lines = lessons.source(LESSONS[0]).splitlines()
    assert lines.index("def agent_loop(messages):") < 60


# ---- Each lesson stands alone ------------------------------------------------------------------


@in_every_lesson
def test_a_lesson_imports_the_sdk_dotenv_and_the_standard_library_alone(lesson):
    packages = set()
    for node in ast.walk(ast.parse(lessons.source(lesson))):
        if isinstance(node, ast.Import):
            for module in node.names:
                packages.add(module.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0  # `from . import` would be a neighbour
            packages.add(node.module.partition(".")[0])
    assert packages - sys.stdlib_module_names == {"anthropic", "dotenv"}


@in_every_lesson
def test_no_lesson_names_a_lesson_by_its_folder(lesson):
    """Its own name comes from the folder, so that the line is the same in all.

    The others are not its business.
    """
    assert [name for name in LESSONS if name in lessons.source(lesson)] == []


@in_every_lesson
def test_a_lesson_offers_its_tools_and_those_of_the_lessons_before(lesson, start):
    session = start(lesson, [says("Hello.")])
    session.talk("hi")
    expected = []
    for names in ADDED_TOOLS[: LESSONS.index(lesson) + 1]:
        expected += names
    offered = [tool["name"] for tool in session.api.requests[0]["tools"]]
    assert offered == expected


@in_every_lesson
def test_a_lesson_loads_without_what_only_posix_has(lesson, monkeypatch):
    for module, names in POSIX_NAMES.items():
        for name in names:
            monkeypatch.delattr(module, name, raising=False)
    for module in POSIX_MODULES:
        monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    assert callable(load(lesson).main)
