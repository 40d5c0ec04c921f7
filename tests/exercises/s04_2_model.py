"""Exercise 2 of s04_subagent: a registry key `model`, so that looking around costs less than thinking."""
import pytest

import conftest
from fake_api import calls, says

TYPES = ["explore", "code", "fix", "review"]


def run(start, **environment):
    """The model of each request by its agent type, and what the person saw."""
    tasks = [("task", {"prompt": "Look.", "agent_type": name, "description": "look"}) for name in TYPES]
    session = start("s04_subagent", [calls(*tasks), *[says("Seen.")] * len(TYPES), says("Done.")], **environment)
    seen = session.talk("go")
    assert not session.api.refused
    return dict(zip(["parent", *TYPES], [request["model"] for request in session.api.requests])), seen


def test_explore_uses_the_small_model_and_nobody_else_does(start):
    models, seen = run(start, MODEL="large", MODEL_SMALL="small")
    assert models == {"parent": "large", "explore": "small", "code": "large", "fix": "large", "review": "large"}
    lines = {name: line for name in TYPES for line in seen.splitlines() if line.startswith(f"[{name}]")}
    assert ["small" in lines[name] for name in TYPES] == [True, False, False, False], "the person sees which model it was"


def test_without_a_small_model_there_is_one_model(start):
    models, _ = run(start, MODEL="large")
    assert set(models.values()) == {"large"}


def test_a_type_of_ones_own_may_name_a_model(start):
    session = start("s04_subagent", [calls(("task", {"prompt": "Look.", "agent_type": "plan"})), says("Seen.")])
    session.lesson.AGENT_TYPES["plan"]["model"] = "huge"
    session.talk("go")
    assert session.api.requests[1]["model"] == "huge"


def test_a_fork_with_a_model_of_its_own_fails_at_import(start, monkeypatch, tmp_path):
    """The cache of a prefix belongs to one model: such a fork would pay for the parent's whole list."""
    copy = tmp_path / "s04_subagent" / "agent.py"
    copy.parent.mkdir()
    text = (conftest.ROOT / "s04_subagent" / "agent.py").read_text(encoding="utf-8")
    entry = 'AGENT_TYPES = { "spare": {"description": "A fork.", "mode": "fork", "model": "small"},'
    copy.write_text(text.replace("AGENT_TYPES = {", entry, 1), encoding="utf-8")
    monkeypatch.setattr(conftest, "ROOT", tmp_path)
    with pytest.raises(ValueError, match="spare"):
        start("s04_subagent", [])
