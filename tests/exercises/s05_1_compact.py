"""Exercise 1 of s05_context_compression: the person, too, can ask for a summary, with /compact at the prompt."""
from fake_api import says

SUMMARY = says("## Session intent\nHens.")


def test_compact_at_the_prompt_makes_a_summary_and_the_session_goes_on(start):
    session = start("s05_context_compression", [says("Three hens."), says("Two cocks."), SUMMARY, says("Still here.")])
    session.talk("Count the hens.", "Count the cocks.", "/compact", "And now?")
    assert "[summarised: " in session.seen and "Still here." in session.seen
    first, *_, last = session.sent()
    assert first["content"].startswith("## Session intent\nHens.") and last["content"] == "And now?"
    assert "/compact" not in str(session.api.requests), "it is for the harness, not for the model"
    assert "Three hens." not in str(session.sent()) and not session.api.refused


def test_the_list_is_shorter_at_once(start):
    session = start("s05_context_compression", [*[says("A hen. " * 200)] * 9, SUMMARY])
    seen = session.talk(*["Another hen."] * 9, "/messages", "/compact", "/messages")
    rows = [line for line in seen.splitlines() if line[:3].strip().isdecimal()]
    assert len(rows) > 18 and len(rows) - 18 < 9


def test_nothing_to_compress_costs_no_request_and_is_no_error(start):
    session = start("s05_context_compression", [says("Still here.")])
    seen = session.talk("/compact", "Are you there?")
    assert len(session.api.requests) == 1 and len(session.sent()) == 1
    assert "Still here." in seen and "Error" not in seen and "summarised" not in seen
