"""Exercise 2 of s02_tools: grep takes an argument `context`, the number of lines to show around each hit."""
import re

import pytest

from fake_api import calls, says

TEXT = "".join(f"line {n}{' needle' * (n in (1, 5, 6, 15, 20))}\n" for n in range(1, 21))


@pytest.fixture
def grep(start):
    """``grep(arguments, ...)``: the contents of the results of these calls of grep."""
    def grep(*asked):
        session = start("s02_tools", [calls(*[("grep", each) for each in asked]), says("Done.")])
        for name in ("a.txt", "b.txt"):
            (session.folder / name).write_text(TEXT, encoding="utf-8")
        session.talk("go")
        assert not session.api.refused
        [tool] = [tool for tool in session.api.requests[0]["tools"] if tool["name"] == "grep"]
        assert tool["input_schema"]["properties"].get("context") == {"type": "integer"}
        assert "context" not in tool["input_schema"]["required"]
        return [result["content"] for result in session.results()]

    return grep


def numbers(found, name):
    """The line numbers shown of a file, and a check that each stands beside its own line."""
    shown = re.findall(rf"^{name}[:-](\d+)[:-] ?(.*)$", found, re.M)
    assert all(re.match(rf"line {number}\b", text) for number, text in shown)
    return [int(number) for number, _ in shown]


def test_the_lines_around_a_hit_are_shown_each_once_and_in_order(grep):
    one, two = grep({"pattern": "needle", "path": "a.txt", "context": 1},
                    {"pattern": "needle", "path": "a.txt", "context": 2})
    assert numbers(one, "a.txt") == [1, 2, 4, 5, 6, 7, 14, 15, 16, 19, 20]
    assert numbers(two, "a.txt") == [1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17, 18, 19, 20]


def test_context_ends_where_a_file_ends(grep):
    [found] = grep({"pattern": "needle", "context": 1})
    expected = [1, 2, 4, 5, 6, 7, 14, 15, 16, 19, 20]
    assert numbers(found, "a.txt") == expected and numbers(found, "b.txt") == expected
    assert found.rindex("a.txt") < found.index("b.txt")


def test_without_context_nothing_changes(grep):
    plain, zero = grep({"pattern": "needle", "path": "a.txt"}, {"pattern": "needle", "path": "a.txt", "context": 0})
    assert plain == zero == "\n".join(f"a.txt:{n}: line {n} needle" for n in (1, 5, 6, 15, 20))


def test_no_line_is_shown_twice_where_every_line_is_a_hit(grep):
    every, none = grep({"pattern": "line", "context": 3}, {"pattern": "no such thing", "context": 3})
    assert numbers(every, "a.txt") == numbers(every, "b.txt") == list(range(1, 21))
    assert none == "(nothing found)"
