"""Exercise 1 of s04_subagent: an agent type `tester`, which runs things and changes no file."""
from fake_api import calls, says

TOOLS = ["bash", "glob", "grep", "read_file"]


def test_a_tester_runs_commands_reads_files_and_writes_none(start):
    session = start("s04_subagent", [
        calls(("task", {"prompt": "Do the checks pass?", "agent_type": "tester", "description": "the checks"})),
        calls(("bash", {"command": "echo 3 of 3"}), ("write_file", {"path": "new.txt", "content": "new"})),
        says("3 of 3 pass."), says("They do.")])
    seen = session.talk("Do the checks pass?")
    parent, first, second = session.api.requests[:3]

    task = next(tool for tool in parent["tools"] if tool["name"] == "task")
    assert "- tester: " in task["description"], "the model is told that there is a tester"
    assert "tester" in task["input_schema"]["properties"]["agent_type"]["enum"]

    assert sorted(tool["name"] for tool in first["tools"]) == TOOLS
    assert first["messages"] == [{"role": "user", "content": "Do the checks pass?"}]
    assert "Only your last message is seen" in first["system"]

    ran, wrote = second["messages"][-1]["content"]
    assert ran["content"].strip() == "3 of 3"
    assert wrote["is_error"] and "there is no tool 'write_file'" in wrote["content"]
    assert not (session.folder / "new.txt").exists()

    assert session.results()[0]["content"] == "3 of 3 pass."
    assert "[tester] the checks: done, 2 tools" in seen
    assert not session.api.refused
