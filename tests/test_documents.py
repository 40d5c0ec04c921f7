"""The READMEs hold.

Every quotation, number, link, test name and command in them is checked against the code.
"""

import ast
import contextlib
import io
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise

import pytest

import lessons
import offline
from conftest import LESSONS, ROOT
from fake_api import FakeAPI, says

READMES = ["README.md", *(f"{lesson}/README.md" for lesson in LESSONS)]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
HEADINGS = [
    "The problem",
    "The idea",
    "The step, hunk by hunk",
    "Try it",
    "What the tests lock in",
    "Exercises",
]
# The lesson before each; the first has none.
BEFORE = {LESSONS[0]: None}
for before, after in pairwise(LESSONS):
    BEFORE[after] = before
PYTHON = ".venv/bin/python "

in_every_lesson = pytest.mark.parametrize("lesson", LESSONS)
in_every_readme = pytest.mark.parametrize("readme", READMES)
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="the diff is git's")
in_a_shell = pytest.mark.skipif(
    os.name != "posix", reason="the commands are for a POSIX shell"
)


def text_of(readme):
    return (ROOT / readme).read_text(encoding="utf-8")


def blocks(readme, language):
    """The texts of the fenced blocks in a language, in order."""
    return [text for name, text in FENCE.findall(text_of(readme)) if name == language]


def commands(readme):
    """Each line of the shell blocks, and the last column of the root README's table."""
    found = []
    for block in blocks(readme, "sh"):
        found += block.splitlines()
    return found + re.findall(r"`(git diff [^`]+)`", text_of(readme))


def missing(lines, known):
    return [line for line in lines if line not in known]


def empty_stream():
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8")


def tour(lesson):
    """What a lesson's tour prints, with the trace."""
    seen = empty_stream()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(seen):
        patch.setattr(sys, "stdin", empty_stream())
        offline.run(lesson, tour=True, trace=True)
    seen.seek(0)
    return seen.read()


@pytest.fixture(scope="session")
def toured():
    """What each lesson's tour prints."""
    return {lesson: tour(lesson) for lesson in LESSONS}


# ---- Quotations --------------------------------------------------------------------------------


@in_every_lesson
def test_a_lesson_has_its_sections(lesson):
    prose = FENCE.sub("", text_of(f"{lesson}/README.md"))
    expected = list(HEADINGS)
    if not BEFORE[lesson]:
        expected[2] = "The script, part by part"
    assert re.findall(r"^## (.+)$", prose, re.M) == expected


@in_every_lesson
def test_quoted_python_stands_in_the_script(lesson):
    quoted = blocks(f"{lesson}/README.md", "python")
    assert missing(quoted, lessons.source(lesson)) == []


@needs_git
@in_every_lesson
def test_the_walk_quotes_the_whole_step_in_order(lesson):
    readme = f"{lesson}/README.md"
    if BEFORE[lesson]:
        quoted = blocks(readme, "diff")
        whole = lessons.hunks(BEFORE[lesson], lesson)
    else:
        quoted = blocks(readme, "python")
        whole = [lessons.source(lesson)]
    assert filled_lines(quoted) == filled_lines(whole)


def filled_lines(texts):
    """The lines of the texts in order, without the empty ones."""
    found = []
    for text in texts:
        for line in text.splitlines():
            if line.strip("+ "):
                found.append(line)
    return found


@in_every_lesson
def test_transcripts_are_what_a_tour_prints(lesson, toured):
    """A lesson's own tour, or that of the lesson before, to compare with."""
    printed = toured[lesson] + toured.get(BEFORE[lesson], "")
    known = {line.rstrip() for line in printed.splitlines()}
    known.add("...")  # where a transcript leaves something out
    for block in blocks(f"{lesson}/README.md", "text"):
        quoted = [line.rstrip() for line in block.splitlines()]
        assert missing(quoted, known) == []


# Elsewhere lines end in \r\n, and so results are longer.
@in_a_shell
def test_the_picture_is_the_one_that_the_tour_draws(toured):
    printed = toured[LESSONS[-1]]
    picture = printed[printed.index("tokens in the context") :]
    lines = [line.rstrip() + "\n" for line in picture.splitlines()]
    assert "".join(lines) in blocks(f"{LESSONS[-1]}/README.md", "text")


# ---- Numbers, links, names ---------------------------------------------------------------------


def row_of(lesson):
    """The cells of a lesson's row in the root README's table."""
    for line in text_of("README.md").splitlines():
        if line.startswith(f"| [{lesson}]"):
            return [cell.strip() for cell in line.strip("|").split("|")]
    raise LookupError(lesson)


@needs_git
@in_every_lesson
def test_the_numbers_in_the_table_are_right(lesson):
    *_, code, tokens, kept, step = row_of(lesson)
    before = BEFORE[lesson]
    assert int(code) == lessons.code_lines(lesson)
    assert int(tokens.replace(",", "")) == lessons.code_tokens(lesson)
    if before:
        percent = 100 * lessons.kept(before, lesson)
        assert kept == f"{percent:.1f} %"
        diff = f"git diff --no-index -U0 {before}/agent.py {lesson}/agent.py"
        assert step == f"`{diff}`"
    else:
        assert kept == ""
        assert step == ""


@in_every_readme
def test_links_lead_somewhere(readme):
    links = re.findall(r"\]\(([^)]+)\)", FENCE.sub("", text_of(readme)))
    folder = (ROOT / readme).parent
    dead = []
    for link in links:
        is_file = "://" not in link
        if is_file and not (folder / link).exists():
            dead.append(link)
    assert dead == []


@in_every_readme
def test_the_tests_that_it_names_exist(readme):
    for path, test in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", text_of(readme)):
        functions = []
        for node in ast.parse(text_of(path)).body:
            if isinstance(node, ast.FunctionDef):
                functions.append(node.name)
        assert not test or test in functions, test


# ---- Commands ----------------------------------------------------------------------------------
# In a copy of the repository, and with this Python for the one that the set-up commands would make.


@pytest.fixture
def copy(tmp_path, monkeypatch):
    leave_out = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(ROOT, tmp_path / "copy", ignore=leave_out)
    shutil.copy(ROOT / ".env.example", tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def run_python(line, monkeypatch):
    """Run ``NAME=value .venv/bin/python script arguments`` in this process, with nothing typed."""
    settings, _, call = line.partition(PYTHON)
    for setting in shlex.split(settings):
        name, value = setting.split("=", 1)
        # No such server here: the fake API takes its place.
        if name != "ANTHROPIC_BASE_URL":
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", shlex.split(call))
    monkeypatch.setattr(sys, "stdin", empty_stream())
    runpy.run_path(sys.argv[0], run_name="__main__")


def run_in_shell(line):
    """Run any other command: it succeeds, or is a diff that finds something."""
    this_python = shlex.quote(sys.executable)
    line = line.replace('"$here"/.venv/bin/python', this_python)
    done = subprocess.run(
        line,
        shell=True,
        capture_output=True,
        encoding="utf-8",
        input="",
    )
    if line.startswith("git diff"):
        expected = 1
    else:
        expected = 0
    assert done.returncode == expected, (line, done.stderr)


@in_a_shell
@in_every_readme
def test_its_commands_run(readme, copy, monkeypatch, capsys):
    with FakeAPI([says("Hello.")]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        for line in commands(readme):
            # What making the environment leads up to.
            _, _, line = line.rpartition("requirements.txt && ")
            if "-m pytest" in line:
                for word in shlex.split(line):
                    assert not word.startswith("tests") or os.path.exists(word), line
            elif re.match(rf"(\w+=\S+ )*{re.escape(PYTHON)}", line):
                run_python(line, monkeypatch)
            else:
                run_in_shell(line)
    assert "Traceback" not in capsys.readouterr().out


def test_there_are_three_exercises_a_lesson_and_the_default_run_leaves_them_out():
    for lesson in LESSONS:
        readme = text_of(f"{lesson}/README.md")
        named = set(re.findall(r"pytest -q (tests/exercises/\w+\.py)", readme))
        files = [ROOT / name for name in sorted(named)]
        assert files == sorted(ROOT.glob(f"tests/exercises/{lesson[:3]}_*.py"))
        assert len(files) == 3
        for file in files:
            assert re.search(r"^def test_", text_of(file), re.M)
    assert not list(ROOT.glob("tests/exercises/test_*.py"))
