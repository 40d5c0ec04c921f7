"""Exercise 3 of s02_tools: a tool `undo`, which takes back the last write_file or edit_file."""
import pytest

from fake_api import calls, says

UNDO = ("undo", {})
BYTES = b"one\r\ntwo\xff\r\n"  # two things that a careless copy loses: line ends, and a byte that is not UTF-8


def write(path, content):
    return "write_file", {"path": path, "content": content}


def edit(path, old, new):
    return "edit_file", {"path": path, "old_text": old, "new_text": new}


@pytest.fixture
def use(start):
    """``use(call, ...)``: what the model asks for, one after the other; the results."""
    def use(*asked):
        session = start("s02_tools", [calls(*asked), says("Done.")])
        session.talk("go", "and now?")
        assert not session.api.refused
        [tool] = [tool for tool in session.api.requests[0]["tools"] if tool["name"] == "undo"]
        assert tool["description"] and not tool["input_schema"].get("required")
        return session.results(1)

    return use


def test_an_edit_is_taken_back_to_the_last_byte(use, environment):
    (environment / "file").write_bytes(BYTES)
    results = use(edit("file", "one", "1"), UNDO)
    assert (environment / "file").read_bytes() == BYTES
    assert not results[1]["is_error"] and "file" in results[1]["content"], "the model is told which file it was"


def test_an_overwritten_file_comes_back(use, environment):
    (environment / "file").write_bytes(BYTES)
    use(write("file", "all new"), UNDO)
    assert (environment / "file").read_bytes() == BYTES


def test_a_file_that_was_not_there_goes_away(use, environment):
    results = use(write("folder/new", "text"), UNDO)
    assert not (environment / "folder" / "new").exists() and not results[1]["is_error"]


def test_several_go_back_step_by_step(use, environment):
    (environment / "file").write_text("a")
    use(edit("file", "a", "b"), write("other", "x"), edit("file", "b", "c"), UNDO, UNDO)
    assert (environment / "file").read_text() == "b" and not (environment / "other").exists()


def test_what_failed_is_no_step(use, environment):
    (environment / "file").write_text("a")
    results = use(edit("file", "a", "b"), edit("file", "no such text", "c"), write("../out", "x"),
                  ("write_file", {"path": "file", "content": 5}), UNDO)
    assert [result["is_error"] for result in results] == [False, True, True, True, False]
    assert (environment / "file").read_text() == "a"


def test_when_nothing_is_left_the_model_is_told(use, environment):
    results = use(UNDO, write("file", "x"), UNDO, UNDO)
    assert [result["is_error"] for result in results] == [True, False, False, True]
    assert "undo" in results[3]["content"] and not (environment / "file").exists()


def test_an_undo_goes_on_in_a_later_turn(start):
    session = start("s02_tools", [calls(write("file", "x")), says("Written."), calls(UNDO), says("Gone.")])
    session.talk("go", "No, take it back.")
    assert not (session.folder / "file").exists() and not session.results()[0]["is_error"]
