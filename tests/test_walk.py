"""The walk: every changed line has its words, and they come in the README's order."""
import builtins
import io
import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest

import lessons
import walk
from conftest import LESSONS, ROOT, clean_environment

ONE, TWO = "s01_one", "s02_two"  # two made-up lessons, small enough to be seen as a whole
SCRIPT_ONE = '''"""One idea.
It takes two lines.  The third sentence ends it.

    person --> model
New: everything
Changed: nothing
"""
import os


# ---- The loop ----------------


def loop():
    return ask("first")


# ---- The end -----------------


def main():
    print(loop(), os.name)
'''
SCRIPT_TWO = '''"""Another idea.
It takes two lines.  The third sentence ends it.

    person --> model
New: ask
Changed: loop
"""
import os


# ---- The loop ----------------


def loop():
    return ask("second")


# ---- Answers -----------------


def ask(question):
    answers = {
        "first": 1,
        "second": 2,
    }
    return answers[question]


# ---- The end -----------------


def main():
    print(loop(), os.name)
'''
README_ONE = f"""# s01

## The script, part by part

Begin with the loop.

```python
{SCRIPT_ONE.partition("# ---- The end")[0]}```

Words on the loop.

### The end

```python
# ---- The end -----------------


def main():
    print(loop(), os.name)
```

Words on the end.
"""
README_TWO = """# s02

## The step, hunk by hunk

The heart comes first.

```diff
-    return ask("first")
+    return ask("second")
```

Words on the heart, with a list:

- an item that is so long that it has to go on in a second line, under the
first word of the first line
- another

```diff
+# ---- Answers -----------------
+
+
+def ask(question):
+    answers = {
```

Words on how it begins.

```text
$ run me
```

```diff
+        "first": 1,
+        "second": 2,
+    }
+    return answers[question]
+
+
```

Words on how it ends.

### The docstring

```diff
-\"""One idea.
+\"""Another idea.
```

Words on the idea.

```diff
-New: everything
-Changed: nothing
+New: ask
+Changed: loop
```

Words on the names.

## Try it

```sh
python tests/offline.py s02_two
```

Words that the walk leaves out.

## Exercises

**1. More.** Do more of it.

```sh
python -m pytest tests/exercises/more.py
```
"""
SIZES = [(80, 24), (100, 30)]
COLOUR = re.compile(r"\033\[\d*m")

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="the diff is git's")
in_every_lesson = pytest.mark.parametrize("lesson", LESSONS)
at_every_size = pytest.mark.parametrize("columns, rows", SIZES)
at_a_terminal = pytest.mark.skipif(not hasattr(os, "openpty"), reason="no pseudo-terminals")


@pytest.fixture
def course(tmp_path, monkeypatch):
    """The two made-up lessons in a folder; a test may write another README there."""
    files = {
        f"{ONE}/agent.py": SCRIPT_ONE,
        f"{ONE}/README.md": README_ONE,
        f"{TWO}/agent.py": SCRIPT_TWO,
        f"{TWO}/README.md": README_TWO,
    }
    for name, text in files.items():
        file = tmp_path / "course" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    monkeypatch.setattr(walk, "ROOT", tmp_path / "course")
    monkeypatch.setattr(lessons, "ROOT", tmp_path / "course")
    return tmp_path / "course"


@pytest.fixture
def walked(monkeypatch, capsys):
    """`walked(lesson, *keys)` types these keys, then Enter to the end; returns the pages."""

    def walk_with(lesson, *keys, columns=80, rows=24):
        pages = []
        left = list(keys)

        def typed(prompt):
            pages.append(capsys.readouterr().out + prompt)
            if left:
                return left.pop(0)
            return ""

        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", str(rows))
        monkeypatch.setattr(builtins, "input", typed)
        walk.walk(lesson)
        return pages

    return walk_with


def titles(pages):
    """The first lines of the pages, without the name of the lesson."""
    firsts = [page.splitlines()[0] for page in pages]
    return [first.partition(" ")[2] for first in firsts]


def faults(lesson):
    """What keeps a README from being a walk through all of the step."""
    step = walk.read_step(lesson)
    parts = walk.screens_of(step)[1:-1]
    found = []
    for screen in parts:
        changed = [line.text for line in screen.code if line.sign != " "]
        if not changed:
            found.append(f"words below no block: {screen.words[0].lines}")
        elif screen.title == walk.NOT_FOUND:
            found.append(f"not in the diff: {changed[0]}")
        elif not screen.words:
            found.append(f"no words below: {changed[0]}")
    for line in step.changes:
        if line.text.strip() and not line.is_told:
            found.append(f"no block has: {line.text}")
    return found


# ---- The five lessons ------------------------------------------------------------------


@in_every_lesson
def test_each_hunk_has_words_and_all_words_a_hunk(lesson):
    assert faults(lesson) == []


@in_every_lesson
def test_the_order_is_the_readmes(lesson):
    readme = (ROOT / lesson / "README.md").read_text(encoding="utf-8")
    language, sign = "diff", ""
    if lesson == LESSONS[0]:
        language, sign = "python", "+"
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", readme, re.M | re.S)
    quoted = [sign + line for line in "".join(blocks).splitlines()]
    shown = []
    for screen in walk.screens_of(walk.read_step(lesson)):
        shown += [line.sign + line.text for line in screen.code if line.sign != " "]
    assert not_blank(shown) == not_blank(quoted)


def not_blank(lines):
    return [line for line in lines if line[1:].strip()]


@at_every_size
@in_every_lesson
def test_no_page_is_larger_than_the_terminal(lesson, columns, rows, walked):
    pages = walked(lesson, columns=columns, rows=rows)
    assert len(pages) > len(walk.read_step(lesson).parts)
    for page in pages:
        lines = page.split("\n")
        assert len(lines) == rows  # the one before is out of sight
        assert max(len(line) for line in lines) < columns


@in_every_lesson
def test_it_begins_with_the_idea_and_ends_with_what_to_do(lesson, walked):
    pages = walked(lesson, columns=100, rows=200)
    assert re.search("\n\nNew: .+\n\nChanged: .+lines of code", pages[0], re.S | re.I)
    for number in (1, 2, 3):
        assert f"\n**{number}. " in pages[-1]
    checkers = re.findall(r"\n    \S+python -m pytest -q tests/exercises/", pages[-1])
    assert len(checkers) == 3
    assert f"python tests/offline.py {lesson}\n" in pages[-1]


# ---- Faults that it would find ---------------------------------------------------------


def test_the_made_up_lessons_have_no_fault(course):
    assert [faults(ONE), faults(TWO)] == [[], []]


@pytest.mark.parametrize("old, new, fault", [
    ("Words on the names.", "", ["no words below: New: everything"]),
    ("Words on how it begins.\n\n```text\n$ run me\n```", "", ["no words below: # ---- Answers"]),
    ('+        "second": 2,\n', '+        "second": 3,\n', ['not in the diff:         "first": 1']),
    ("### The docstring\n", "### The docstring\n\nLost.\n", ["words below no block: ['', 'Lost."]),
    ('-    return ask("first")\n', "", ['no block has:     return ask("first")']),
])
def test_a_fault_is_found(course, old, new, fault):
    write_readme(course, README_TWO.replace(old, new))
    found = faults(TWO)
    assert len(fault) == 1 and found[0].startswith(fault[0])


def test_a_block_that_is_quoted_twice_is_found(course):
    block = README_TWO[README_TWO.index("```diff\n-New"):README_TWO.index("## Try it")]
    write_readme(course, README_TWO.replace("## Try it", block + "## Try it"))
    assert faults(TWO) == ["not in the diff: New: everything"]


def test_a_block_of_two_hunks_is_found(course):
    between = "```\n\nWords on the idea.\n\n```diff\n"
    write_readme(course, README_TWO.replace(between, ""))
    assert faults(TWO)[0] == 'not in the diff: """One idea.'


def write_readme(course, text):
    (course / TWO / "README.md").write_text(text, encoding="utf-8")


# ---- Screens ---------------------------------------------------------------------------


def test_a_screen_shows_the_change_the_lines_around_and_the_words(course, walked):
    page = walked(TWO)[1]
    assert page.splitlines()[:16] == [
        "s02_two 1 of 5: The loop",
        "-" * 79,
        "  14  def loop():",
        '     -    return ask("first")',
        '  15 +    return ask("second")',
        "  16  ",
        "  17  ",
        "  18  # ---- Answers -----------------",
        "",
        "Words on the heart, with a list:",
        "",
        "- an item that is so long that it has to go on in a second line, under the",
        "  first word of the first line",
        "- another",
        "",
        "",
    ]


def test_a_piece_of_a_hunk_shows_what_stands_around_it(course, walked):
    page = walked(TWO)[3]
    assert page.splitlines()[2:9] == [
        "  21  def ask(question):",
        "  22      answers = {",
        '  23 +        "first": 1,',
        '  24 +        "second": 2,',
        "  25 +    }",
        "  26 +    return answers[question]",
        "  27  ",
    ]


def test_the_first_screen_tells_the_step(course, walked):
    page = walked(TWO)[0]
    assert page.splitlines()[:13] == [
        "s02_two: the idea",
        "-" * 79,
        "Another idea. It takes two lines.  The third sentence ends it.",
        "",
        "New: ask",
        "",
        "Changed: loop",
        "",
        "81.8% of the lines of s01_one are kept; 3 hunks differ. Lines of code: 5",
        "before, 11 after.",
        "",
        "The heart comes first.",
        "",
    ]


def test_the_last_screen_has_the_exercises_and_how_to_run(course, walked):
    page = walked(TWO)[-1]
    assert page.splitlines()[2:9] == [
        "**1. More.** Do more of it.",
        "",
        "    python -m pytest tests/exercises/more.py",
        "",
        "Run it with no key and no network:",
        "",
        "    python tests/offline.py s02_two",
    ]


def test_long_code_is_cut_and_long_words_are_wrapped(course, walked):
    pages = walked(TWO, columns=30)
    for page in pages:
        assert max(len(line) for line in page.split("\n")) < 30
    assert '  15      return ask("second…\n' in pages[2]


def test_a_screen_that_is_too_high_is_cut_at_a_blank_row_if_one_is_near():
    rows = [walk.Row(text) for text in ["a", "b", "c", "", "d", "e", "f", "g", "h"]]
    first, second, third = walk.pages_of(rows, 4)
    assert first == rows[:3]
    assert second == rows[4:8]
    assert third == rows[8:]


# ---- Keys ------------------------------------------------------------------------------


def test_enter_goes_on_b_back_a_number_jumps_and_q_leaves(course, walked):
    pages = walked(TWO, "", "b", "b", "4", "B", "0", "6", "b", "99", "what?", "q")
    numbers = [title.partition(":")[0] for title in titles(pages)]
    first, last = "the idea", "exercises"
    five = "5 of 5"
    assert numbers == [
        first, "1 of 5", first, first, "4 of 5", "3 of 5", first, last, five, five, five,
    ]


def test_enter_on_the_last_screen_leaves(course, walked):
    pages = walked(TWO)
    assert len(pages) == 7
    assert titles(pages)[-1] == "exercises"


def test_enter_and_b_turn_the_pages_of_a_high_screen(course, walked):
    pages = walked(TWO, "3", "", "b", "b", "q", rows=12)
    starts = [title.partition(":")[0] for title in titles(pages)]
    first, second = "3 of 5 (page 1 of 2)", "3 of 5 (page 2 of 2)"
    assert starts[1:4] == [first, second, first]
    assert titles(pages)[4].startswith("2 of 5")


# ---- The command -----------------------------------------------------------------------


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, ROOT / "tests" / "walk.py", *arguments],
        capture_output=True,
        encoding="utf-8",
        env=clean_environment(**environment),
    )


def test_without_a_name_it_says_which_steps_there_are():
    done = run()
    assert done.returncode == 0
    assert all(lesson in done.stdout for lesson in LESSONS)


def test_an_unknown_name_is_answered_in_one_line():
    done = run("s09_none")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("There is no step 's09_none'; the steps are: s01_agent_loop,")
    assert done.stderr.count("\n") == 1


def test_a_pipe_gets_the_whole_walk_whatever_the_locale():
    done = run("s02_tools/", LC_ALL="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, "")
    assert not COLOUR.search(done.stdout)
    count = len(walk.read_step("s02_tools").parts)
    heads = re.findall(r"^s02_tools (\d+) of \d+: ", done.stdout, re.M)
    assert heads == [str(number) for number in range(1, count + 1)]
    assert done.stdout.endswith("python tests/offline.py s02_tools\n\n")


def test_a_reader_that_leaves_the_pipe_ends_it_quietly():
    command = [sys.executable, ROOT / "tests" / "walk.py", "s02_tools"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0


class Terminal:
    """The walk on a pseudo-terminal."""

    def __init__(self, **environment):
        self.keyboard, screen = os.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "tests" / "walk.py", "s01_agent_loop"],
            stdin=screen,
            stdout=screen,
            stderr=screen,
            env=clean_environment(COLUMNS="80", LINES="24", **environment),
        )
        os.close(screen)

    def read_until(self, text):
        while text not in self.seen:
            part = os.read(self.keyboard, 100_000)
            self.seen += part.decode("utf-8", "replace")

    def end(self):
        """The exit status; what was still to be read is in `seen`."""
        try:
            self.read_until("nothing that it prints")
        except OSError:  # how a terminal ends
            pass
        os.close(self.keyboard)
        return self.process.wait()


@at_a_terminal
@pytest.mark.parametrize("no_color", ["", "1"])
def test_on_a_terminal_it_has_colour_unless_no_color_says_no(no_color):
    terminal = Terminal(NO_COLOR=no_color)
    terminal.read_until("q leaves: ")
    os.write(terminal.keyboard, b"1\nq\n")
    assert terminal.end() == 0
    assert ("\033[32m" in terminal.seen) == (no_color == "")
    assert bool(COLOUR.search(terminal.seen)) == (no_color == "")


@pytest.mark.parametrize("error", [EOFError, KeyboardInterrupt])
def test_ctrl_d_and_ctrl_c_leave(error, monkeypatch, capsys):
    def pressed(prompt):
        raise error

    monkeypatch.setattr(builtins, "input", pressed)
    monkeypatch.setattr(sys, "argv", ["walk.py", "s01_agent_loop"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", is_a_terminal)
    runpy.run_path(ROOT / "tests" / "walk.py", run_name="__main__")
    assert capsys.readouterr().err == ""


def is_a_terminal():
    return True
