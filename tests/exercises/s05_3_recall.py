"""Exercise 3 of s05_context_compression: a tool that searches what was forgotten, in one's own history alone."""
import re

from fake_api import calls, says

SUMMARY = says("## Session intent\nNone of the facts.")
COMPACT = calls(("compact", {}))
FACT = "The spare key is under the blue pot."


def recall(pattern):
    return calls(("recall", {"pattern": pattern}))


def answer(start, *script, typed=(FACT, "Go on."), **environment):
    """The session, and what its last recall gave back."""
    session = start("s05_context_compression", script, **environment)
    session.talk(*typed)
    assert not session.api.refused
    [result] = next(message["content"] for request in reversed(session.api.requests) for message in request["messages"]
                    if message["role"] == "user" and request["messages"].index(message) and "recalled" in str(message))
    return session, result


def test_a_forgotten_fact_is_found_with_the_role_of_who_said_it(start):
    session = start("s05_context_compression", [
        says("Noted."), COMPACT, SUMMARY, recall("blue p.t"), says("Under the blue pot.")])
    session.talk(FACT, "Where is the key?")
    [result] = session.results()
    assert FACT not in str(session.sent()[0]), "it is forgotten"
