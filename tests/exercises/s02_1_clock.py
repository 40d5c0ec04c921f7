"""Exercise 1 of s02_tools: a tool `now`, which tells the model the local date and time."""
import datetime
import re
import time

import pytest

from fake_api import calls, says

NOW = calls(("now", {}))
TIME = r"(?<!\d)\d{4}-\d\d-\d\d[ T]\d\d:\d\d"


def is_now(result):
    """Whether a result holds the time here, such as 2026-11-02 14:05."""
    assert not result["is_error"], result["content"]
    found = re.search(TIME, result["content"])
    assert found, f"{result['content']!r} holds no time such as 2026-11-02 14:05"
    told = datetime.datetime.fromisoformat(found[0])
    difference = datetime.datetime.now() - told
    return abs(difference) < datetime.timedelta(minutes=2)


@pytest.fixture
def move():
    """`move(hours)`: from now on this machine stands so many hours east of Greenwich."""
    if not hasattr(time, "tzset"):
        pytest.skip("this system's time zone cannot be changed from here")

    with pytest.MonkeyPatch.context() as patch:

        def move(hours):
            patch.setenv("TZ", f"HERE{-hours:+}")
            time.tzset()

        yield move
    time.tzset()


def test_the_model_is_offered_now_without_arguments(start):
    session = start("s02_tools", [says("Hello.")])
    session.talk("Hello.")
    tools = session.api.requests[0]["tools"]
    [offered] = [tool for tool in tools if tool["name"] == "now"]
    assert offered["description"].strip(), "it tells the model what the tool is for"
    assert not offered["input_schema"].get("properties")
    assert not offered["input_schema"].get("required")


def test_the_model_is_told_the_time(start):
    session = start("s02_tools", [NOW, says("It is late.")])
    session.talk("What time is it?")
    [result] = session.results()
    assert is_now(result)
    assert not session.api.refused


def test_it_is_the_local_time_of_each_call(start, move):
    """In one of the two places it is afternoon, where a clock of 12 hours is wrong."""
    move(0)
    session = start("s02_tools", [NOW, says("Early."), NOW, says("Late.")])
    move(-6)
    session.talk("What time is it?")
    [first] = session.results()
    assert is_now(first), "the local time, when it is called"
    move(6)
    session.talk("And now?")
    [second] = session.results()
    assert is_now(second), "the local time of the second call"
