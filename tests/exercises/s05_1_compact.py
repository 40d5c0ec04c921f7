"""Exercise 1 of s05_context_compression: the person, too, can ask for a summary, with /compact."""
import os
import threading

import pytest

from conftest import interrupt
from fake_api import Status, Wait, says

LESSON = "s05_context_compression"
SUMMARY = says("## Session intent\nHens.")


def after_each(seen):
    """What was printed after each line that was typed."""
    return seen.split("s05 >> ")[1:]


def rows(printed):
    """The rows that /messages printed."""
    lines = printed.splitlines()
    return [line for line in lines if line[:3].strip().isdecimal()]


def test_compact_makes_a_summary_and_the_session_goes_on(start):
    script = [
        says("Three hens."),
        says("Two cocks."),
        SUMMARY,
        says("Still here."),
    ]
    session = start(LESSON, script)
    seen = session.talk(
        "Count the hens.", "Count the cocks.", "/compact", "And now?"
    )
    assert "[summarised: " in after_each(seen)[2]
    assert "Still here." in after_each(seen)[3]
    first, *_, last = session.sent()
    assert first["content"].startswith("## Session intent\nHens.")
    assert last["content"] == "And now?"
    assert "Three hens." not in str(session.sent())
    assert not session.api.refused


def test_the_model_reads_the_whole_list_and_not_the_word(start):
    script = [
        says("Three hens."),
        says("Two cocks."),
        SUMMARY,
        says("Still here."),
    ]
    session = start(LESSON, script)
    session.talk("Count the hens.", "Count the cocks.", "/compact", "And now?")
    before = session.sent(1)
    asking = session.sent(2)
    assert asking[:3] == before, "the summary is of the list as it stands"
    assert len(asking) == 5, "the list, the reply, and a message that asks"
    sent = str(session.api.requests)
    assert "/compact" not in sent, "it is for the harness, not for the model"


def test_the_list_is_shorter_at_once(start):
    session = start(LESSON, [*[says("A hen. " * 200)] * 9, SUMMARY])
    typed = ["Another hen."] * 9
    seen = session.talk(*typed, "/messages", "/compact", "/messages")
    *_, before, compact, after, end = after_each(seen)
    assert len(rows(before)) == 18
    assert 1 <= len(rows(after)) < 9


def test_compact_works_a_second_time(start):
    script = [
        says("Hen."),
        says("Hen."),
        SUMMARY,
        says("Cow."),
        says("Cow."),
        SUMMARY,
        says("So."),
    ]
    session = start(LESSON, script)
    seen = session.talk(
        "One.", "Two.", "/compact", "Three.", "Four.", "/compact", "Five."
    )
    assert seen.count("[summarised: ") == 2
    assert session.sent()[0]["content"].startswith("## Session intent\nHens.")
    assert str(session.sent()).count("## Session intent") == 1
    assert not session.api.refused


def test_with_nothing_said_yet_there_is_no_request_and_no_error(start):
    session = start(LESSON, [says("Still here.")])
    seen = session.talk("/compact", "Are you there?")
    assert len(session.api.requests) == 1
    assert len(session.sent()) == 1
    assert "Error" not in after_each(seen)[0]
    assert "summarised" not in seen
    assert "Still here." in seen


def test_with_the_only_words_taken_back_there_is_no_request_and_no_error(start):
    session = start(
        LESSON, [says("Still here.")] * 2, window=8_000, models=False
    )
    seen = session.talk("x" * 64_000, "/messages", "/compact", "Are you there?")
    too_long, listed, compact, answer, end = after_each(seen)
    assert "too long" in too_long
    assert rows(listed) == []
    assert "Error" not in compact
    assert "summarised" not in compact
    assert "Still here." in answer
    assert len(session.sent()) == 1


def test_a_summary_that_fails_is_said_and_the_list_stays(start):
    script = [
        says("Three hens."),
        says("Two cocks."),
        Status(400),
        says("Still here."),
    ]
    session = start(LESSON, script)
    seen = session.talk(
        "Count the hens.", "Count the cocks.", "/compact", "And now?"
    )
    assert "nothing lost" in after_each(seen)[2]
    assert len(session.sent()) == 5
    assert "Three hens." in str(session.sent())


@pytest.mark.skipif(os.name != "posix", reason="interrupt() sends a signal")
def test_ctrl_c_in_the_summary_leads_back_to_the_prompt(start):
    def pressed(request):
        interrupt()
        return Wait(threading.Event(), SUMMARY)

    script = iter(
        [says("Three hens."), says("Two cocks."), pressed, says("Still here.")]
    )

    def model(request):
        step = next(script)
        return step(request) if callable(step) else step

    session = start(LESSON, model)
    try:
        seen = session.talk(
            "Count the hens.", "Count the cocks.", "/compact", "And now?"
        )
    except KeyboardInterrupt:
        pytest.fail("Ctrl-C during the summary ended the session")
    assert "Still here." in seen
    assert len(session.sent()) == 5
    assert "Three hens." in str(session.sent())
