"""Exercise 2 of s05_context_compression: a summary keeps the last three requests word for word, not only the last."""
from fake_api import calls, says

SUMMARY = says("## Session intent\nFarm work.")
COMPACT = calls(("compact", {}))
ASKED = [f"Request {number}: count the {animals}, *all* of them & \"twice\"." for number, animals in enumerate(
    ["hens", "cows", "pigs", "goats", "geese", "ducks"], 1)]


def kept(message):
    """The requests that stand word for word in a message, in order."""
    places = sorted((message["content"].find(words), words) for words in ASKED)
    return [words for place, words in places if place >= 0]


def test_the_last_three_requests_are_in_the_summary(start):
    session = start("s05_context_compression", [*[says("Done.")] * 3, COMPACT, SUMMARY, says("Done.")])
    session.talk(*ASKED[:4])
    assert session.sent()[0]["content"].startswith("## Session intent")
    assert kept(session.sent()[0]) == ASKED[1:4]
    assert not session.api.refused


def test_they_are_also_there_after_a_second_summary(start):
    session = start("s05_context_compression", [
        *[says("Done.")] * 3, COMPACT, SUMMARY, says("Done."), COMPACT, SUMMARY, says("Done.")])
    session.talk(*ASKED[:5])
    assert kept(session.sent()[0]) == ASKED[2:5]
    assert not session.api.refused


def test_with_fewer_requests_all_are_there_once(start):
    session = start("s05_context_compression", [says("Done."), COMPACT, SUMMARY, says("Done.")])
    session.talk(*ASKED[:2])
    first = session.sent()[0]
    assert kept(first) == ASKED[:2] and all(first["content"].count(words) == 1 for words in ASKED[:2])


def test_a_child_is_told_its_own_prompt_alone(start):
    """The child reads 5,000 tokens in a window of 8,000, so its list is summed up on the way."""
    task = calls(("task", {"prompt": "Read corn.txt.", "agent_type": "explore"}))
    words = calls(("glob", {"pattern": "*"}), text="corn " * 600)

    def script(request):
        last = request["messages"][-1]["content"]
        if isinstance(last, str) and "## Next steps" in last:
            return SUMMARY
        return next(steps)

    steps = iter([says("Done."), task, *[words] * 9, says("Read."), says("Done.")])
    session = start("s05_context_compression", script, CONTEXT_WINDOW="8000")
    session.talk(*ASKED[:2])
    firsts = [request["messages"][0] for request in session.api.requests]
    [summed_up, *_] = [first for first in firsts if first["content"].startswith("## Session intent")]
    assert "Read corn.txt." in summed_up["content"] and kept(summed_up) == []
