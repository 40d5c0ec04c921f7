"""Exercise 2 of s02_tools: grep's argument `context`, so many lines around each find."""
import re

import pytest

from fake_api import calls, says

NEEDLES = (1, 5, 6, 15, 20)  # the lines of each file that hold a needle
NOTICE = r"\[only the first 200 are shown: .+\]"
OFFER = [says("Hello.")]


def text_of(number):
    """Line `number` of a.txt and b.txt."""
    if number in NEEDLES:
        return f"line {number} needle"
    return f"line {number}"


def shown(name, numbers, finds=NEEDLES):
    """What grep is to show of a file: these lines, each as a find or as a line around one."""
    lines = []
    for number in numbers:
        mark = "-"
        if number in finds:
            mark = ":"
        text = text_of(number)
        lines.append(f"{name}{mark}{number}{mark} {text}")
    return lines


@pytest.fixture
def files(environment):
    """The working directory, with a.txt and b.txt of 20 lines each."""
    texts = [text_of(number) for number in range(1, 21)]
    text = "\n".join(texts)
    for name in ("a.txt", "b.txt"):
        path = environment / name
        path.write_text(f"{text}\n", encoding="utf-8")
    return environment


@pytest.fixture
def result_of(start, files):
    """`result_of(pattern, ...)`: the result of grep with these arguments."""

    def result_of(pattern, **more):
        arguments = {"pattern": pattern, **more}
        script = [
            calls(("grep", arguments)),
            says("Done."),
        ]
        session = start("s02_tools", script)
        session.talk("go")
        assert not session.api.refused
        [result] = session.results()
        return result

    return result_of


@pytest.fixture
def grep(result_of):
    """`grep(pattern, ...)`: the lines that grep shows."""

    def grep(pattern, **more):
        result = result_of(pattern, **more)
        content = result["content"]
        assert not result["is_error"], content
        return content.splitlines()

    return grep


def test_the_model_is_offered_context_and_may_leave_it_out(start):
    session = start("s02_tools", OFFER)
    session.talk("Hello.")
    tools = session.api.requests[0]["tools"]
    named = {tool["name"]: tool for tool in tools}
    schema = named["grep"]["input_schema"]
    assert "context" in schema["properties"]
    context = schema["properties"]["context"]
    assert context["type"] == "integer"
    assert "context" not in schema["required"]


def test_one_line_around_a_find(grep):
    lines = grep("needle", path="a.txt", context=1)
    wanted = [1, 2, 4, 5, 6, 7, 14, 15, 16, 19, 20]
    assert lines == shown("a.txt", wanted)


def test_two_lines_around_a_find(grep):
    lines = grep("needle", path="a.txt", context=2)
    wanted = [*range(1, 9), *range(13, 21)]
    assert lines == shown("a.txt", wanted)


def test_each_file_is_shown_by_itself(grep):
    lines = grep("needle", context=3)
    wanted = [*range(1, 10), *range(12, 21)]
    of_a = shown("a.txt", wanted)
    of_b = shown("b.txt", wanted)
    assert lines == of_a + of_b


def test_what_stands_before_a_find_is_not_from_another_file(grep):
    lines = grep("line 1 ", context=2)
    of_a = shown("a.txt", [1, 2, 3])
    of_b = shown("b.txt", [1, 2, 3])
    assert lines == of_a + of_b


def test_what_stands_behind_a_find_is_not_from_another_file(grep):
    lines = grep("line 20 ", context=2)
    of_a = shown("a.txt", [18, 19, 20])
    of_b = shown("b.txt", [18, 19, 20])
    assert lines == of_a + of_b


@pytest.mark.parametrize("more", [{}, {"context": 0}, {"context": None}])
def test_without_context_nothing_changes(grep, more):
    lines = grep("needle", path="a.txt", **more)
    assert lines == shown("a.txt", NEEDLES)


def test_where_every_line_is_a_find_each_is_shown_once(grep):
    lines = grep("line", path="a.txt", context=3)
    every = range(1, 21)
    assert lines == shown("a.txt", every, finds=every)


def test_without_a_find_there_is_nothing_around_it(grep):
    lines = grep("no such thing", context=3)
    assert lines == ["(nothing found)"]


def test_less_than_0_is_an_error_in_words(result_of):
    result = result_of("needle", context=-1)
    assert result["is_error"]
    assert "context" in result["content"]


@pytest.fixture
def haystack(files):
    """A find, and many lines behind it."""
    path = files / "c.txt"
    path.write_text("needle\n" + "hay\n" * 500, encoding="utf-8")


def test_200_lines_are_shown(grep, haystack):
    lines = grep("needle", path="c.txt", context=199)
    assert len(lines) == 200
    assert lines[-1] == "c.txt-200- hay"


def test_more_than_200_lines_are_cut_and_the_model_is_told(grep, haystack):
    *lines, notice = grep("needle", path="c.txt", context=200)
    assert len(lines) == 200
    assert lines[-1] == "c.txt-200- hay"
    assert re.fullmatch(NOTICE, notice)


def test_a_long_line_around_a_find_is_cut(grep, files):
    hay = "0123456789" * 40
    path = files / "c.txt"
    path.write_text(f"{hay}\nneedle\n{hay}\n", encoding="utf-8")
    lines = grep("needle", path="c.txt", context=1)
    assert lines == [
        f"c.txt-1- {hay[:300]}",
        "c.txt:2: needle",
        f"c.txt-3- {hay[:300]}",
    ]


def test_a_byte_that_is_not_utf_8_stops_nothing(grep, files):
    path = files / "c.txt"
    path.write_bytes(b"\xff hay\nneedle\n")
    lines = grep("needle", path="c.txt", context=1)
    assert lines == [
        "c.txt-1- \N{REPLACEMENT CHARACTER} hay",
        "c.txt:2: needle",
    ]


def test_a_file_that_is_no_text_is_still_left_out(grep, files):
    path = files / "c.txt"
    path.write_bytes(b"\0 hay\nneedle\n")
    lines = grep("needle", path="c.txt", context=1)
    assert lines == ["(nothing found)"]
