"""Exercise 2 of s05_context_compression: a summary keeps the last three requests word for word."""
import pytest

from fake_api import calls, says

LESSON = "s05_context_compression"
DONE = says("Done.")
SUMMARY = says("## Session intent\nFarm work.")
COMPACT = calls(("compact", {}))
LOOK = calls(("glob", {"pattern": "*"}))
PROMPT = "Read corn.txt."
ASKED = [
    'Request 1: count the hens, *all* of them & "twice".',
    'Request 2: count the cows, *all* of them & "twice".',
    'Request 3: count the pigs, *all* of them & "twice".',
    'Request 4: count the goats, *all* of them & "twice".',
    'Request 5: count the geese, *all* of them & "twice".',
]


def task(agent_type):
    return calls(("task", {"prompt": PROMPT, "agent_type": agent_type}))


def kept(message, requests=ASKED):
    """The requests that stand word for word in a message that has a summary, in order."""
    content = message["content"]
    assert content.startswith("## Session intent"), "no summary was made"
    places = []
    for words in requests:
        if words in content:
            assert content.count(words) == 1, f"not once: {words[:60]}"
            places.append((content.index(words), words))
    return [words for place, words in sorted(places)]


def test_the_last_three_requests_are_in_the_summary(start):
    session = start(LESSON, [DONE, DONE, DONE, COMPACT, SUMMARY, DONE])
    session.talk(*ASKED[:4])
    assert kept(session.sent()[0]) == ASKED[1:4]
    assert not session.api.refused


def test_they_are_also_there_after_a_second_summary(start):
    script = [
        DONE,
        DONE,
        DONE,
        COMPACT,
        SUMMARY,
        DONE,
        COMPACT,
        SUMMARY,
        DONE,
    ]
    session = start(LESSON, script)
    session.talk(*ASKED[:5])
    assert kept(session.sent()[0]) == ASKED[2:5]
    assert not session.api.refused


def test_two_summaries_for_one_request_do_not_count_it_twice(start):
    script = [
        DONE,
        DONE,
        DONE,
        COMPACT,
        SUMMARY,
        LOOK,
        LOOK,
        COMPACT,
        SUMMARY,
        DONE,
    ]
    session = start(LESSON, script)
    session.talk(*ASKED[:4])
    assert session.seen.count("[summarised: ") == 2
    assert kept(session.sent()[0]) == ASKED[1:4]


def test_with_fewer_requests_all_are_there(start):
    session = start(LESSON, [DONE, COMPACT, SUMMARY, DONE])
    session.talk(*ASKED[:2])
    assert kept(session.sent()[0]) == ASKED[:2]


def test_with_one_request_it_is_there_alone(start):
    session = start(LESSON, [LOOK, LOOK, LOOK, COMPACT, SUMMARY, DONE])
    session.talk(ASKED[0])
    assert kept(session.sent()[0]) == ASKED[:1]


def test_what_is_for_the_harness_is_no_request(start):
    session = start(LESSON, [DONE, DONE, COMPACT, SUMMARY, DONE])
    session.talk(ASKED[0], ASKED[1], "/messages", ASKED[2])
    assert kept(session.sent()[0]) == ASKED[:3]
    assert "/messages" not in session.sent()[0]["content"]


def test_each_may_be_as_long_as_the_one_today(start):
    """Each is about 3,000 tokens, and of one request 4,000 are quoted."""
    requests = [words + " Go on." * 1_700 for words in ASKED[:4]]
    session = start(LESSON, [DONE, DONE, DONE, COMPACT, SUMMARY, DONE])
    session.talk(*requests)
    assert kept(session.sent()[0], requests) == requests[1:4]


def test_of_a_very_long_one_only_the_ends_are_there(start):
    """About 30,000 tokens; whole, it would fill the list again."""
    very_long = ASKED[1] + " Go on." * 17_000 + " This is the end."
    session = start(LESSON, [DONE, DONE, COMPACT, SUMMARY, DONE])
    session.talk(ASKED[0], very_long, ASKED[2])
    first = session.sent()[0]
    assert kept(first) == ASKED[:3]
    assert "This is the end." in first["content"]
    assert len(first["content"]) < len(very_long) / 4


@pytest.mark.parametrize("agent_type", ["explore", "fix"])
def test_the_prompt_of_a_child_is_no_request_of_the_person(
    start, agent_type
):
    script = [
        DONE,
        DONE,
        task(agent_type),
        says("Read."),
        COMPACT,
        SUMMARY,
        DONE,
    ]
    session = start(LESSON, script)
    session.talk(*ASKED[:3])
    assert kept(session.sent()[0]) == ASKED[:3]
    assert PROMPT not in session.sent()[0]["content"]


def test_a_child_is_told_its_own_prompt_alone(start):
    """The child reads 5,000 tokens in a window of 8,000, so its list is summed up on the way."""
    words = calls(("glob", {"pattern": "*"}), text="corn " * 600)
    steps = iter(
        [DONE, task("explore"), *[words] * 9, says("Read."), DONE]
    )

    def model(request):
        last = request["messages"][-1]["content"]
        if isinstance(last, str) and "## Next steps" in last:
            return SUMMARY
        return next(steps)

    session = start(LESSON, model, CONTEXT_WINDOW="8000")
    session.talk(*ASKED[:2])
    firsts = [request["messages"][0] for request in session.api.requests]
    summed_up = [
        first
        for first in firsts
        if first["content"].startswith("## Session intent")
    ]
    assert PROMPT in summed_up[0]["content"]
    assert kept(summed_up[0]) == []
