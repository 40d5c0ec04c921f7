"""The READMEs hold: every quotation, number, link, test name and command in them is checked against the code."""

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
BEFORE = dict(
    [(LESSONS[0], None), *((after, before) for before, after in pairwise(LESSONS))]
)
PYTHON = ".venv/bin/python "

in_every_lesson = pytest.mark.parametrize("lesson", LESSONS)
in_every_readme = pytest.mark.parametrize("readme", READMES)
in_a_shell = pytest.mark.skipif(
    os.name != "posix", reason="the commands are for a POSIX shell"
)


def text_of(readme):
    return (ROOT / readme).read_text(encoding="utf-8")


def blocks(readme, language):
    """The texts of the fenced blocks in a language, in order."""
    return [text for name, text in FENCE.findall(text_of(readme)) if name == language]


def commands(readme):
    """Each line of the shell blocks, and what the root README's table has in its last column."""
    return [
        line for block in blocks(readme, "sh") for line in block.splitlines()
    ] + re.findall(r"`(git diff [^`]+)`", text_of(readme))


@pytest.fixture(scope="session")
def toured():
    """What each lesson's tour prints, with the trace."""

    def tour(lesson):
        stdin, seen = (
            io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)
        )
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(seen):
            patch.setattr(sys, "stdin", stdin)
            offline.run(lesson, tour=True, trace=True)
        seen.seek(0)
        return seen.read()

    return {lesson: tour(lesson) for lesson in LESSONS}


# ---- Quotations --------------------------------------------------------------------------------


@in_every_lesson
def test_a_lesson_has_its_sections(lesson):
    headings = re.findall(
        r"^## (.+)$", FENCE.sub("", text_of(f"{lesson}/README.md")), re.M
    )
    assert headings == [
        "The script, part by part"
        if step == HEADINGS[2] and not BEFORE[lesson]
        else step
        for step in HEADINGS
    ]


@in_every_lesson
def test_quoted_python_stands_in_the_script(lesson):
    assert [
        block
        for block in blocks(f"{lesson}/README.md", "python")
        if block not in lessons.source(lesson)
    ] == []


@pytest.mark.skipif(not shutil.which("git"), reason="the diff is git's")
@in_every_lesson
def test_the_walk_quotes_the_whole_step_in_order(lesson):
    quoted = "".join(
        blocks(f"{lesson}/README.md", "diff" if BEFORE[lesson] else "python")
    )
    whole = (
        "".join(
            hunk.rstrip("\n") + "\n" for hunk in lessons.hunks(BEFORE[lesson], lesson)
        )
        if BEFORE[lesson]
        else lessons.source(lesson)
    )
    assert [line for line in quoted.splitlines() if line.strip("+ ")] == [
        line for line in whole.splitlines() if line.strip("+ ")
    ]


@in_every_lesson
def test_transcripts_are_what_a_tour_prints(lesson, toured):
    seen = (toured[lesson] + toured.get(BEFORE[lesson], "")).splitlines()
    quoted = [
        line.rstrip()
        for block in blocks(f"{lesson}/README.md", "text")
        for line in block.splitlines()
    ]
    seen = {line.rstrip() for line in seen}
    assert [line for line in quoted if line not in seen and line != "..."] == []


@in_a_shell  # elsewhere lines end in \r\n, and so results are longer
def test_the_picture_is_the_one_that_the_tour_draws(toured):
    picture = toured[LESSONS[-1]][toured[LESSONS[-1]].index("tokens in the context") :]
    drawn = "\n".join(line.rstrip() for line in picture.splitlines()) + "\n"
    assert drawn in blocks(f"{LESSONS[-1]}/README.md", "text")


# ---- Numbers, links, names ---------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("git"), reason="the diff is git's")
@in_every_lesson
def test_the_numbers_in_the_table_are_right(lesson):
    row = next(
        line
        for line in text_of("README.md").splitlines()
        if line.startswith(f"| [{lesson}]")
    )
    *_, code, tokens, kept, step = [cell.strip() for cell in row.strip("|").split("|")]
    before = BEFORE[lesson]
    assert int(code) == lessons.code_lines(lesson)
    assert int(tokens.replace(",", "")) == lessons.code_tokens(lesson)
    assert kept == (f"{100 * lessons.kept(before, lesson):.1f} %" if before else "")
    assert step == (
        f"`git diff --no-index -U0 {before}/agent.py {lesson}/agent.py`"
        if before
        else ""
    )


@in_every_readme
def test_links_lead_somewhere(readme):
    links = re.findall(r"\]\(([^)]+)\)", FENCE.sub("", text_of(readme)))
    assert [
        link
        for link in links
        if "://" not in link and not (ROOT / readme).parent.joinpath(link).exists()
    ] == []


@in_every_readme
def test_the_tests_that_it_names_exist(readme):
    for path, test in re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", text_of(readme)):
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not test or test in [
            node.name
            for node in ast.parse(source).body
            if isinstance(node, ast.FunctionDef)
        ], test


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
    for name, value in (setting.split("=", 1) for setting in shlex.split(settings)):
        if (
            name != "ANTHROPIC_BASE_URL"
        ):  # no such server here: the fake API takes its place
            monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", shlex.split(call))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    runpy.run_path(sys.argv[0], run_name="__main__")


@in_a_shell
@in_every_readme
def test_its_commands_run(readme, copy, monkeypatch, capsys):
    with FakeAPI([says("Hello.")]) as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        for line in commands(readme):
            line = line.rpartition("requirements.txt && ")[
                2
            ]  # what making the environment leads up to
            if "-m pytest" in line:
                assert all(
                    os.path.exists(word)
                    for word in shlex.split(line)
                    if word.startswith("tests")
                ), line
            elif re.match(rf"(\w+=\S+ )*{re.escape(PYTHON)}", line):
                run_python(line, monkeypatch)
            else:
                line = line.replace(
                    '"$here"/.venv/bin/python', shlex.quote(sys.executable)
                )
                done = subprocess.run(
                    line, shell=True, capture_output=True, encoding="utf-8", input=""
                )
                assert done.returncode == (1 if line.startswith("git diff") else 0), (
                    line,
                    done.stderr,
                )
    assert "Traceback" not in capsys.readouterr().out


def test_there_are_three_exercises_a_lesson_and_the_default_run_leaves_them_out():
    for lesson in LESSONS:
        files = sorted(
            set(
                re.findall(
                    r"pytest -q (tests/exercises/\w+\.py)",
                    text_of(f"{lesson}/README.md"),
                )
            )
        )
        assert [ROOT / file for file in files] == sorted(
            ROOT.glob(f"tests/exercises/{lesson[:3]}_*.py")
        )
        assert len(files) == 3 and all(
            re.search(r"^def test_", text_of(file), re.M) for file in files
        )
    assert not list(ROOT.glob("tests/exercises/test_*.py"))
