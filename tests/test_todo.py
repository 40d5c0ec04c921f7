"""The plan: the model writes it, the person sees it, and the harness reminds the model of it."""

import json

import pytest

from fake_api import calls, says

LESSONS = ["s03_todo", "s04_subagent", "s05_context_compression"]
WORK = ("glob", {"pattern": "*"})


def item(text, status):
    return {"text": text, "status": status}


def todo(items):
    """A call of todo."""
    return "todo", {"items": items}


READ = item("read", "completed")
OPEN = todo([READ, item("write", "pending")])
DONE = todo([READ, item("write", "completed")])
BAD = todo([item("read", "finished")])


def reminders(session):
    """Where the reminders stand, as a list for each turn of results in the history.

    In it: the indices of the results with a reminder in their text.
    """
    found = []
    for message in session.sent():
        content = message["content"]
        if isinstance(content, str) or content[0]["type"] != "tool_result":
            continue
        reminded = []
        for index, result in enumerate(content):
            if "<reminder>" in result["content"]:
                reminded.append(index)
        found.append(reminded)
    return found


@pytest.fixture(params=LESSONS)
def remind(request, start):
    """``remind(round, ...)``: the reminders in a session with these rounds.

    A round is the list of the tools that the model calls at once.
    """

    def remind(*rounds):
        script = [calls(*tools) for tools in rounds]
        session = start(request.param, [*script, says("Done.")])
        session.talk("go")
        assert not session.api.refused
        assert len(session.api.requests) == len(rounds) + 1
        return reminders(session)

    return remind


# ---- The list ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items, drawn",
    [
        (
            [
                item("read", "completed"),
                item("write", "in_progress"),
                item("test", "pending"),
            ],
            "[x] read\n[>] write\n[ ] test\n(1/3 completed)",
        ),
        ([], "(0/0 completed)"),
        (
            [item("\u4f60\u597d \U0001f642", "pending")] * 20,
            "[ ] \u4f60\u597d \U0001f642\n" * 20 + "(0/20 completed)",
        ),
    ],
)
def test_the_list_is_shown_to_the_person_and_returned_to_the_model(start, items, drawn):
    session = start("s03_todo", [calls(todo(items)), says("Done.")])
    assert f"\n{drawn}\n" in session.talk("go")
    [result] = session.results()
    assert result["content"] == drawn
    assert not result["is_error"]


# Lists, each with words of the error.
BAD_LISTS = [
    ([item("x", "pending")] * 21, "at most 20"),
    ([item("x", "in_progress")] * 2, "only one item can be in_progress"),
    ("read, write", '\'items\' must be like {"type": "array"'),
    (item("x", "pending"), "'items' must be like"),
    (None, "items"),
]
NEEDS_BOTH = "an item needs a text and a status"
NEEDS_STATUS = "one of pending, in_progress, completed"
BAD_ITEMS = [
    (item("", "pending"), NEEDS_BOTH),
    (item(" \n", "pending"), NEEDS_BOTH),
    (item(5, "pending"), NEEDS_BOTH),
    ({"status": "pending"}, NEEDS_BOTH),
    ("x", NEEDS_BOTH),
    (None, NEEDS_BOTH),
    (item("x", "finished"), NEEDS_STATUS),
    (item("x", ["pending"]), NEEDS_STATUS),
    ({"text": "x"}, NEEDS_STATUS),
]


def test_a_bad_list_is_an_error_and_the_old_one_stands(start):
    lists = list(BAD_LISTS)
    for bad_item, words in BAD_ITEMS:
        lists.append(([bad_item], words))
    bad = [todo(items) for items, _ in lists]
    script = [
        calls(OPEN),
        calls(*bad),
        calls(WORK),
        calls(WORK),
        says("Done."),
    ]
    session = start("s03_todo", script)
    seen = session.talk("go")
    for (items, words), result in zip(lists, session.results(2), strict=True):
        assert result["is_error"], items
        assert words in result["content"], items
    # Something is open, so it is still the first list.
    assert reminders(session)[-1] == [0]
    # Its drawing, and the line about its result.
    assert seen.count("completed)\n") == 2


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_list_that_comes_as_text_is_taken(start, lesson):
    _, arguments = OPEN
    as_text = json.dumps(arguments["items"])
    session = start(lesson, [calls(todo(as_text)), says("Done.")])
    session.talk("go")
    [result] = session.results()
    assert result["content"] == "[x] read\n[ ] write\n(1/2 completed)"
    assert result["is_error"] is False


@pytest.mark.parametrize("lesson", LESSONS)
def test_text_that_is_no_list_is_told_and_so_is_what_an_item_looks_like(start, lesson):
    no_list = "- read\n- write"
    session = start(lesson, [calls(todo(no_list)), says("Done.")])
    session.talk("go")
    [result] = session.results()
    assert result["is_error"]
    assert "- read" in result["content"]
    for word in ("text", "status", "pending", "in_progress", "completed"):
        assert f'"{word}"' in result["content"]


# ---- The reminder ------------------------------------------------------------------------------


def test_it_comes_after_three_rounds_and_stops_when_the_list_is_updated(remind):
    found = remind(
        [OPEN],
        [WORK],
        [WORK],
        [WORK],
        [WORK],
        [WORK],
        [OPEN],
        [WORK],
        [WORK],
        [WORK],
    )
    assert found == [
        [],
        [],
        [],
        [0],
        [0],
        [0],
        [],
        [],
        [],
        [0],
    ]


def test_it_sits_inside_the_last_result(start):
    script = [
        calls(OPEN),
        calls(WORK),
        calls(WORK),
        calls(WORK, ("fly", {}), WORK),
        says("Done."),
    ]
    session = start("s03_todo", script)
    session.talk("go")
    assert reminders(session)[-1] == [2]
    assert "\n[the model was reminded of its todo list]\n" in session.seen
    last_turn = session.sent()[-1]["content"]
    assert [block["type"] for block in last_turn] == ["tool_result"] * 3
    before, reminder = last_turn[-1]["content"].split("\n<reminder>")
    assert before == "(nothing found)"
    assert "open items" in reminder
    assert reminder.endswith("</reminder>")


def test_a_round_counts_once_however_many_calls_it_has(remind):
    assert remind([OPEN], [WORK] * 3, [WORK], [WORK]) == [[], [], [], [0]]


def test_an_update_beside_other_calls_is_one(remind):
    found = remind(
        [OPEN],
        [WORK],
        [WORK],
        [OPEN, WORK],
        [WORK],
        [WORK],
        [WORK],
    )
    assert found == [[], [], [], [], [], [], [0]]


def test_an_update_that_is_refused_is_none(remind):
    assert remind([OPEN], [WORK], [WORK], [BAD]) == [[], [], [], [0]]


@pytest.mark.parametrize(
    "first",
    [[DONE], [todo([])], [BAD], [WORK]],
    ids=["all done", "empty", "refused", "never made"],
)
def test_it_never_comes_when_nothing_is_open(remind, first):
    assert remind(first, *[[WORK]] * 4) == [[]] * 5


def test_rounds_count_on_over_the_persons_next_question(start):
    script = [
        calls(OPEN),
        calls(WORK),
        says("Well?"),
        calls(WORK),
        calls(WORK),
        says("Done."),
    ]
    session = start("s03_todo", script)
    session.talk("go", "on")
    assert reminders(session) == [[], [], [], [0]]
    assert not session.api.refused
