"""Exercise 1 of s04_subagent: an agent type `tester`, which runs things and changes no file."""

import pytest

from fake_api import calls, says

LOOK = ["glob", "grep", "read_file"]
TOOLS = {  # of each type that starts clean, sorted
    "explore": LOOK,
    "plan": LOOK,
    "review": LOOK,
    "code": ["bash", "edit_file", *LOOK, "write_file"],
    "tester": ["bash", *LOOK],
}
PROMPT = "Do the checks pass?"
RUN = ("bash", {"command": "echo 3 of 3"})
WRITE = ("write_file", {"path": "new.txt", "content": "new"})
EDIT = (
    "edit_file",
    {
        "path": "old.txt",
        "old_text": "old",
        "new_text": "new",
    },
)


def task(agent_type):
    """A call of the tool, for a script."""
    arguments = {
        "prompt": PROMPT,
        "agent_type": agent_type,
        "description": "the checks",
    }
    return ("task", arguments)


def tool_names(request):
    return sorted(tool["name"] for tool in request["tools"])


@pytest.fixture
def tested(start):
    """A session in which a tester ran a command, tried to write a file, and answered."""
    script = [
        calls(task("tester")),
        calls(RUN, WRITE, EDIT),
        says("3 of 3 pass."),
        says("They do."),
    ]
    session = start("s04_subagent", script)
    old_file = session.folder / "old.txt"
    old_file.write_text("old")
    session.talk(PROMPT)
    assert not session.api.refused
    return session


def test_the_model_is_told_that_there_is_a_tester(tested):
    tools = tested.api.requests[0]["tools"]
    [tool] = [tool for tool in tools if tool["name"] == "task"]
    types = tool["input_schema"]["properties"]["agent_type"]
    assert "tester" in types["enum"]
    descriptions = {}
    for line in tool["description"].splitlines():
        name, _, description = line.partition(":")
        descriptions[name] = description.strip()
    assert descriptions.get("- tester"), "its entry has a description"


def test_it_starts_clean_with_its_own_tools(tested):
    parent, child = tested.api.requests[:2]
    assert tool_names(child) == TOOLS["tester"]
    assert child["messages"] == [{"role": "user", "content": PROMPT}]
    assert child["system"] != parent["system"]
    assert "Only your last message is seen" in child["system"]


def test_it_runs_commands_and_changes_no_file(tested):
    ran, wrote, edited = tested.results(2)
    assert ran["content"].strip() == "3 of 3"
    assert wrote["is_error"]
    assert edited["is_error"]
    new_file = tested.folder / "new.txt"
    old_file = tested.folder / "old.txt"
    assert not new_file.exists()
    assert old_file.read_text() == "old"


def test_its_last_words_come_back(tested):
    [result] = tested.results()
    assert result["content"] == "3 of 3 pass."
    assert "[tester] the checks: done, 3 tools" in tested.seen


def test_the_other_types_keep_their_tools_and_no_two_have_one_prompt(start):
    tasks = [task(agent_type) for agent_type in TOOLS]
    script = [calls(*tasks)]
    script += [says("Seen.")] * len(TOOLS)
    script += [says("Done.")]
    session = start("s04_subagent", script)
    session.talk("go")
    children = session.api.requests[1:-1]
    for agent_type, request in zip(TOOLS, children, strict=True):
        assert tool_names(request) == TOOLS[agent_type], agent_type
    prompts = {request["system"] for request in children}
    assert len(prompts) == len(TOOLS), "a prompt of its own"
