"""The plan: the model writes it, the person sees it, and the harness reminds the model of it."""

import json

import pytest

from fake_api import calls, says

LESSONS = ["s03_todo", "s04_subagent", "s05_context_compression"]
WORK = ("glob", {"pattern": "*"})


def todo(*items):
    """A call of todo with (text, status) pairs."""
    return "todo", {
        "items": [{"text": text, "status": status} for text, status in items]
    }


OPEN, DONE = (
    todo(("read", "completed"), ("write", "pending")),
    todo(("read", "completed"), ("write", "completed")),
)
BAD = todo(("read", "finished"))


def reminders(session):
    """Of each turn of results in the history, in order: the indices of those with a reminder in their text."""
    turns = [
        message["content"]
        for message in session.sent()
        if not isinstance(message["content"], str)
    ]
    return [
        [
            index
            for index, result in enumerate(turn)
            if "<reminder>" in result["content"]
        ]
        for turn in turns
        if turn[0]["type"] == "tool_result"
    ]


@pytest.fixture(params=LESSONS)
def remind(request, start):
    """``remind(round, ...)``: the reminders in a session whose model calls tools in these rounds, a list each."""

    def remind(*rounds):
        session = start(
            request.param, [*[calls(*each) for each in rounds], says("Done.")]
        )
        session.talk("go")
        assert not session.api.refused and len(session.api.requests) == len(rounds) + 1
        return reminders(session)

    return remind


# ---- The list ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items, drawn",
    [
        (
            [("read", "completed"), ("write", "in_progress"), ("test", "pending")],
            "[x] read\n[>] write\n[ ] test\n(1/3 completed)",
        ),
        ([], "(0/0 completed)"),
        (
            [("\u4f60\u597d \U0001f642", "pending")] * 20,
            "[ ] \u4f60\u597d \U0001f642\n" * 20 + "(0/20 completed)",
        ),
    ],
)
def test_the_list_is_shown_to_the_person_and_returned_to_the_model(start, items, drawn):
    session = start("s03_todo", [calls(todo(*items)), says("Done.")])
    assert f"\n{drawn}\n" in session.talk("go")
    assert (
        session.results()[0]["content"] == drawn
        and not session.results()[0]["is_error"]
    )


BAD_LISTS = [
    ([{"text": "x", "status": "pending"}] * 21, "at most 20"),
    ([{"text": "x", "status": "in_progress"}] * 2, "only one item can be in_progress"),
    ([{"text": "", "status": "pending"}], "an item needs a text and a status"),
    ([{"text": " \n", "status": "pending"}], "an item needs a text and a status"),
    ([{"text": 5, "status": "pending"}], "an item needs a text and a status"),
    ([{"text": "x", "status": "finished"}], "one of pending, in_progress, completed"),
    ([{"text": "x", "status": ["pending"]}], "one of pending, in_progress, completed"),
    ([{"text": "x"}], "one of pending, in_progress, completed"),
    ([{"status": "pending"}], "an item needs a text and a status"),
    (["x"], "an item needs a text and a status"),
    ([None], "an item needs a text and a status"),
    ("read, write", '\'items\' must be like {"type": "array"'),
    ({"text": "x", "status": "pending"}, "'items' must be like"),
    (None, "items"),
]


def test_a_bad_list_is_an_error_and_the_old_one_stands(start):
    bad = calls(*[("todo", {"items": items}) for items, _ in BAD_LISTS])
    session = start(
        "s03_todo", [calls(OPEN), bad, calls(WORK), calls(WORK), says("Done.")]
    )
    seen = session.talk("go")
    for (items, words), result in zip(BAD_LISTS, session.results(2), strict=True):
        assert result["is_error"] and words in result["content"], items
    assert reminders(session)[-1] == [
        0
    ]  # something is open, so it is still the first list
    assert seen.count("completed)\n") == 2  # its drawing, and the line about its result


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_list_that_comes_as_text_is_taken(start, lesson):
    _, arguments = OPEN
    session = start(
        lesson,
        [calls(("todo", {"items": json.dumps(arguments["items"])})), says("Done.")],
    )
    session.talk("go")
    [result] = session.results()
    assert (result["content"], result["is_error"]) == (
        "[x] read\n[ ] write\n(1/2 completed)",
        False,
    )


@pytest.mark.parametrize("lesson", LESSONS)
def test_text_that_is_no_list_is_told_and_so_is_what_an_item_looks_like(start, lesson):
    session = start(
        lesson, [calls(("todo", {"items": "- read\n- write"})), says("Done.")]
    )
    session.talk("go")
    [result] = session.results()
    assert result["is_error"]
    assert "- read" in result["content"]
    for word in ("text", "status", "pending", "in_progress", "completed"):
        assert f'"{word}"' in result["content"]


# ---- The reminder ------------------------------------------------------------------------------


def test_it_comes_after_three_rounds_and_stops_when_the_list_is_updated(remind):
    assert remind([OPEN], *[[WORK]] * 5, [OPEN], *[[WORK]] * 3) == [
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
    session = start(
        "s03_todo",
        [
            calls(OPEN),
            calls(WORK),
            calls(WORK),
            calls(WORK, ("fly", {}), WORK),
            says("Done."),
        ],
    )
    session.talk("go")
    assert [block["type"] for block in session.sent()[-1]["content"]] == [
        "tool_result"
    ] * 3
    before, reminder = session.results()[-1]["content"].split("\n<reminder>")
    assert (
        before == "(nothing found)"
        and "open items" in reminder
        and reminder.endswith("</reminder>")
    )
    assert (
        reminders(session)[-1] == [2]
        and "\n[the model was reminded of its todo list]\n" in session.seen
    )


def test_a_round_counts_once_however_many_calls_it_has(remind):
    assert remind([OPEN], [WORK] * 3, [WORK], [WORK]) == [[], [], [], [0]]


def test_an_update_beside_other_calls_is_one(remind):
    assert remind([OPEN], [WORK], [WORK], [OPEN, WORK], [WORK], [WORK], [WORK]) == [
        []
    ] * 6 + [[0]]


def test_an_update_that_is_refused_is_none(remind):
    assert remind([OPEN], [WORK], [WORK], [BAD]) == [[], [], [], [0]]


@pytest.mark.parametrize(
    "first",
    [[DONE], [todo()], [BAD], [WORK]],
    ids=["all done", "empty", "refused", "never made"],
)
def test_it_never_comes_when_nothing_is_open(remind, first):
    assert remind(first, *[[WORK]] * 4) == [[]] * 5


def test_rounds_count_on_over_the_persons_next_question(start):
    session = start(
        "s03_todo",
        [
            calls(OPEN),
            calls(WORK),
            says("Well?"),
            calls(WORK),
            calls(WORK),
            says("Done."),
        ],
    )
    session.talk("go", "on")
    assert reminders(session) == [[], [], [], [0]] and not session.api.refused
