"""Exercise 1 of s02_tools: a tool `now`, which tells the model the date and the time."""
import datetime
import re

from fake_api import calls, says


def test_the_model_is_offered_now_and_is_told_the_local_time(start):
    session = start("s02_tools", [calls(("now", {})), says("It is late.")])
    session.talk("What time is it?")

    [offered] = [tool for tool in session.api.requests[0]["tools"] if tool["name"] == "now"]
    assert offered["description"] and not offered["input_schema"].get("required")

    [result] = session.results()
    assert not result["is_error"], result["content"]
    found = re.search(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d)", result["content"])
    assert found, f"{result['content']!r} holds no time such as 2026-11-02 14:05"
    told = datetime.datetime.fromisoformat(" ".join(found.groups()))
    assert abs(datetime.datetime.now() - told) < datetime.timedelta(minutes=2)
    assert not session.api.refused
