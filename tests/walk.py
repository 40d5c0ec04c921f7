"""Walk a class through a step:  python tests/walk.py s02_tools

One screen for each block of the lesson's README: the lines that the step changes, in colour,
with a few lines around them, and under them what the README says about them.  The words have
one home, the README, and the lines come from the scripts.  In a pipe it is a handout.
"""
import ast
import os
import re
import shutil
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import lessons

ROOT = Path(__file__).resolve().parent.parent
AROUND = 3  # lines of the script that are shown before and after the changed ones
HANDOUT = (106, 24)  # columns and lines in a pipe: 100 columns of code, and its number
KEYS = "Enter on, b back, 1-{parts} jumps (0 idea, {last} exercises), q leaves"
COLOURS = {"+": "\033[32m", "-": "\033[31m", "title": "\033[1m", "rule": "\033[2m"}
PLAIN = "\033[0m"
NOT_FOUND = "not in the diff"  # stands for the section of a block that the step does not hold
PROSE = "prose"


@dataclass
class Chunk:
    """A piece of a README: a heading, some prose, or a fenced block."""

    kind: str  # "##" or "###", PROSE, or what stands behind the fence: "diff", "sh", ...
    lines: list[str] = field(default_factory=list)


@dataclass
class Line:
    """A line of code.  Two are equal if they read the same, wherever they stand."""

    sign: str  # "+" or "-", or " " where the step changes nothing
    text: str
    number: int = field(default=0, compare=False)  # in the new script; a "-" has that of the next
    hunk: int = field(default=0, compare=False)
    is_told: bool = field(default=False, compare=False)  # a block of the README quotes it


@dataclass
class Part:
    """A block of the README, and its words: all that follows, up to the next block or heading."""

    quoted: list[Line]
    words: list[Chunk] = field(default_factory=list)


@dataclass
class Screen:
    """What is shown at a time: some code and its words."""

    title: str
    code: list[Line]
    words: list[Chunk]


@dataclass
class Row:
    """A line of output."""

    text: str
    style: str = ""  # a key of COLOURS, or nothing


@dataclass
class Step:
    """All that a walk shows, as read from the scripts and the README."""

    lesson: str
    before: str  # the lesson before this one, or nothing
    script: list[str]
    changes: list[Line]  # by their order in the script
    chunks: list[Chunk]  # the README
    parts: list[Part]  # by their order in the README
    intro: list[Chunk]  # what the README says before the first of them


# ---- A walk: the idea, a screen for each part, the exercises ---------------------------


def screens_of(step):
    parts = [screen_of(part, step) for part in step.parts]
    return [opening(step), *parts, closing(step)]


def screen_of(part, step):
    """The lines that a part quotes, as they stand in the script, over its words."""
    found = find(part.quoted, step.changes)
    if not found:
        return Screen(NOT_FOUND, part.quoted, part.words)
    for line in found:
        line.is_told = True
    first = found[0].number
    after = found[-1].number
    if found[-1].sign == "+":
        after += 1
    code = around(step.script, first - AROUND, first)
    code += found
    code += around(step.script, after, after + AROUND)
    title = section_above(step.script, first)
    return Screen(title, without_blank_ends(code), part.words)


def opening(step):
    """The idea, what is new and changed, some figures, and how the README begins the walk."""
    source = "\n".join(step.script)
    doc = ast.get_docstring(ast.parse(source))
    idea = doc.partition("\n    ")[0]  # the diagram is indented
    names = doc.partition("\nNew: ")[2]
    new, _, changed = names.partition("\nChanged: ")
    text = f"{idea.strip()}\n\nNew: {new}\n\nChanged: {changed}\n\n{figures(step)}"
    words = [Chunk(PROSE, text.splitlines())]
    return Screen("the idea", [], words + step.intro)


def figures(step):
    size = lessons.code_lines(step.lesson)
    if not step.before:
        return f"{size} lines of code, told in {len(step.parts)} parts."
    kept = lessons.kept(step.before, step.lesson)
    hunks = len({line.hunk for line in step.changes})
    size_before = lessons.code_lines(step.before)
    return (
        f"{kept:.1%} of the lines of {step.before} are kept; {hunks} hunks differ. "
        f"Lines of code: {size_before} before, {size} after."
    )


def closing(step):
    """The exercises, and how to run the lesson with neither key nor network."""
    words = section(step.chunks, "Exercises")
    words.append(Chunk(PROSE, ["Run it with no key and no network:"]))
    for chunk in section(step.chunks, "Try it"):
        if chunk.kind == "sh":
            words.append(chunk)
    return Screen("exercises", [], words)


# ---- The step: what changes from one script to the next --------------------------------


def steps():
    return sorted(path.parent.name for path in ROOT.glob("s[0-9]*/agent.py"))


def read_step(lesson):
    known = steps()
    before = ""
    if lesson != known[0]:
        before = known[known.index(lesson) - 1]
    readme = (ROOT / lesson / "README.md").read_text(encoding="utf-8")
    chunks = chunks_of(readme)
    if before:
        intro, parts = parts_of(section(chunks, "The step, hunk by hunk"), "diff")
    else:
        intro, parts = parts_of(section(chunks, "The script, part by part"), "python")
    script = lessons.source(lesson).splitlines()
    changes = changes_of(before, lesson)
    return Step(lesson, before, script, changes, chunks, parts, intro)


def changes_of(before, lesson):
    """All lines that change, with their places in the new script."""
    new = lessons.source(lesson).splitlines()
    if not before:
        return [Line("+", text, number) for number, text in enumerate(new, 1)]
    old = lessons.source(before).splitlines()
    changes = []
    at_old = 0
    at_new = 0
    for number, hunk in enumerate(lessons.hunks(before, lesson), 1):
        lines = hunk.splitlines()
        removed = [line[1:] for line in lines if line.startswith("-")]
        added = [line[1:] for line in lines if line.startswith("+")]
        same = count_same(old[at_old:], new[at_new:], removed, added)
        at_old += same + len(removed)
        at_new += same
        for text in removed:
            changes.append(Line("-", text, at_new + 1, number))
        for text in added:
            at_new += 1
            changes.append(Line("+", text, at_new, number))
    return changes


def count_same(old, new, removed, added):
    """How many lines both scripts have before the next hunk."""
    for same in range(len(new) + 1):
        is_removed = old[same:same + len(removed)] == removed
        is_added = new[same:same + len(added)] == added
        if is_removed and is_added:
            return same
    raise ValueError("a script was written while its diff was made")


def find(quoted, changes):
    """The changed lines that a block quotes: a piece of one hunk that no other block has."""
    wanted = without_blank_ends(quoted)
    for start in range(len(changes)):
        found = changes[start:start + len(wanted)]
        if found != wanted or found == []:
            continue
        is_told = any(line.is_told for line in found)
        if not is_told and found[0].hunk == found[-1].hunk:
            return found
    return []


def around(script, first, end):
    """The lines of the script from number `first` on, as far as there are, without `end`."""
    lines = []
    for number in range(first, end):
        if 1 <= number <= len(script):
            lines.append(Line(" ", script[number - 1], number))
    return lines


def without_blank_ends(code):
    while code and not code[0].text.strip():
        code = code[1:]
    while code and not code[-1].text.strip():
        code = code[:-1]
    return code


def section_above(script, number):
    """The name in the last rule of the script, `# ---- Name ----`, down to this line."""
    for line in reversed(script[:number]):
        rule = re.fullmatch("# --+ (.+?) --+", line)
        if rule:
            return rule[1]
    return "the top of the script"


# ---- The README: headings, prose and blocks --------------------------------------------


def chunks_of(readme):
    chunks = [Chunk(PROSE)]
    is_fenced = False
    for line in readme.splitlines():
        if line.startswith("```"):
            is_fenced = not is_fenced
            kind = PROSE
            if is_fenced:
                kind = line.strip("`") or "text"
            chunks.append(Chunk(kind))
        elif line.startswith(("## ", "### ")) and not is_fenced:
            kind, _, title = line.partition(" ")
            chunks += [Chunk(kind, [title]), Chunk(PROSE)]
        else:
            chunks[-1].lines.append(line)
    return chunks


def section(chunks, title):
    """The chunks from a heading to the next one of its kind."""
    inside = []
    is_inside = False
    for chunk in chunks:
        if chunk.kind == "##":
            is_inside = chunk.lines == [title]
        elif is_inside:
            inside.append(chunk)
    return inside


def parts_of(chunks, language):
    """What stands before the first block, and the parts: each block with its words."""
    parts = [Part([])]
    for chunk in chunks:
        if chunk.kind == language:
            quoted = [quoted_line(line, language) for line in chunk.lines]
            parts.append(Part(quoted))
        elif chunk.kind == "###":
            parts.append(Part([]))  # words right below a heading belong to no block
        elif any(line.strip() for line in chunk.lines):
            parts[-1].words.append(chunk)
    intro = parts.pop(0)
    return intro.words, [part for part in parts if part.quoted or part.words]


def quoted_line(line, language):
    if language == "python":
        return Line("+", line)  # in the first script every line is new
    return Line(line[:1], line[1:])


# ---- From screens to rows, and from rows to pages --------------------------------------


def rows_of(screen, width):
    rows = [code_row(line) for line in screen.code]
    for chunk in screen.words:
        if rows and rows[-1].text:
            rows.append(Row(""))
        if chunk.kind == PROSE:
            rows += prose_rows(chunk.lines, width)
        elif chunk.kind == "###":
            rows.append(Row(chunk.lines[0], "title"))
        else:
            rows += [Row(f"    {line}") for line in chunk.lines]
    while rows and not rows[-1].text:
        rows.pop()
    for row in rows:
        row.text = cut(row.text, width)
    return rows


def code_row(line):
    number = ""
    if line.sign != "-" and line.number:
        number = line.number
    return Row(f"{number:>4} {line.sign}{line.text}", line.sign)


def cut(text, width):
    if len(text) <= width:
        return text
    return text[:width - 1] + "…"


def prose_rows(lines, width):
    """Paragraphs and items, filled to the width, with a blank row where the README has one."""
    rows = []
    paragraph = []
    for line in [*lines, ""]:
        begins = re.match(r" *([-*]|\d+\.) |\|", line)  # an item of a list, or a row of a table
        if paragraph and (begins or not line.strip()):
            rows += filled(paragraph, width)
            paragraph = []
        if line.strip():
            paragraph.append(line)
        elif rows and rows[-1].text:
            rows.append(Row(""))
    return rows


def filled(paragraph, width):
    item = re.match(r" *([-*]|\d+\.) ", paragraph[0])
    hanging = ""
    if item:
        hanging = " " * len(item[0])
    rest = [line.strip() for line in paragraph[1:]]
    text = " ".join([paragraph[0].rstrip(), *rest])
    lines = textwrap.wrap(text, width, subsequent_indent=hanging, break_on_hyphens=False)
    return [Row(line) for line in lines]


def pages_of(rows, height):
    """The rows, cut so that no page is higher; at a blank row where one is near."""
    pages = []
    while len(rows) > height:
        end = height
        while end > height * 2 // 3 and rows[end].text:
            end -= 1
        if rows[end].text:
            end = height
        pages.append(rows[:end])
        rows = rows[end:]
        while not rows[0].text:  # the last row of a screen is never blank
            rows = rows[1:]
    return [*pages, rows]


# ---- The terminal ----------------------------------------------------------------------


def walk(lesson):
    """Show a screen a page at a time, and go where the person says."""
    screens = screens_of(read_step(lesson))
    numbers = [str(number) for number in range(len(screens))]
    at = 0  # which screen
    page = 0  # which of its pages
    while at < len(screens):
        size = shutil.get_terminal_size()
        pages = pages_on(size, screens[at])
        page = min(page, len(pages) - 1)  # the window may have grown
        which = ""
        if len(pages) > 1:
            which = f" (page {page + 1} of {len(pages)})"
        show(title_of(lesson, screens, at, which), pages[page], size)
        key = ask(len(screens) - 1, size)
        if key == "q":
            return
        if key in numbers:
            at = int(key)
            page = 0
        elif key == "b" and page > 0:
            page -= 1
        elif key == "b" and at > 0:
            at -= 1
            page = len(pages_on(size, screens[at])) - 1
        elif key == "" and page + 1 < len(pages):
            page += 1
        elif key == "":
            at += 1
            page = 0


def ask(last, size):
    """What the person types; the prompt stays on the last line of the terminal."""
    keys = KEYS.format(parts=last - 1, last=last)
    prompt = cut(keys, size.columns - 6)
    key = input(f"{prompt}: ")
    return key.strip().lower()


def pages_on(size, screen):
    """The pages of a screen; the title takes two lines of the terminal and the prompt one."""
    rows = rows_of(screen, size.columns - 1)
    return pages_of(rows, max(size.lines - 3, 1))


def title_of(lesson, screens, at, page=""):
    """Where the person is: what may be cut stands last."""
    if 0 < at < len(screens) - 1:
        return f"{lesson} {at} of {len(screens) - 2}{page}: {screens[at].title}"
    return f"{lesson}{page}: {screens[at].title}"


def show(title, page, size):
    """Fill the terminal with a page, so that the one before goes up and out of sight."""
    rows = [*heading(title, size), *page]
    missing = size.lines - 1 - len(rows)
    rows += [Row("")] * missing
    print_rows(rows)


def heading(title, size):
    width = size.columns - 1
    return [
        Row(cut(title, width), "title"),
        Row("-" * width, "rule"),
    ]


def print_rows(rows):
    has_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for row in rows:
        if has_colour and row.style in COLOURS:
            print(COLOURS[row.style] + row.text + PLAIN)
        else:
            print(row.text)


def hand_out(lesson):
    """The whole walk at once, for a pipe."""
    size = shutil.get_terminal_size(fallback=HANDOUT)
    screens = screens_of(read_step(lesson))
    for at, screen in enumerate(screens):
        title = title_of(lesson, screens, at)
        print_rows(heading(title, size))
        print_rows(rows_of(screen, size.columns - 1))
        print()


def main():
    names = ", ".join(steps())
    if len(sys.argv) != 2:
        print(f"python tests/walk.py STEP walks a class through a step; the steps are: {names}")
        return
    lesson = Path(sys.argv[1]).name  # a shell completes a folder's name with a slash
    if lesson not in steps():
        sys.exit(f"There is no step {sys.argv[1]!r}; the steps are: {names}")
    if not shutil.which("git"):
        sys.exit("The diff between two steps is git's, and there is no git on the PATH.")
    if sys.stdin.isatty() and sys.stdout.isatty():
        sys.stdin.reconfigure(errors="replace")
        sys.stdout.reconfigure(errors="replace")  # the terminal may know few characters
        walk(lesson)
    else:
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
        hand_out(lesson)


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except (EOFError, KeyboardInterrupt):
        print()
    except BrokenPipeError:  # who read the handout, such as `head`, has left
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
