"""Exercise 3 of s02_tools: a tool `undo`, which takes back the last write_file or edit_file."""
import pytest

from fake_api import calls, says

UNDO = ("undo", {})
LEFT = "nothing to undo"
OFFER = [says("Hello.")]
# What a careless copy loses: line ends, and a byte that is not UTF-8.
BYTES = b"one\r\ntwo\xff\r\n"


def write(path, content):
    arguments = {
        "path": path,
        "content": content,
    }
    return "write_file", arguments


def edit(path, old, new):
    arguments = {
        "path": path,
        "old_text": old,
        "new_text": new,
    }
    return "edit_file", arguments


@pytest.fixture
def file(environment):
    """A file in the working directory, "file"."""
    path = environment / "file"
    path.write_bytes(b"a")
    return path


@pytest.fixture
def use(start):
    """`use(call, ...)`: whether each of these calls of the model failed, and what it was told."""

    def use(*asked):
        script = [calls(*asked), says("Done.")]
        session = start("s02_tools", script)
        session.talk("go")
        assert not session.api.refused
        results = session.results()
        failed = [result["is_error"] for result in results]
        told = [result["content"] for result in results]
        return failed, told

    return use


def test_the_model_is_offered_undo_without_arguments(start):
    session = start("s02_tools", OFFER)
    session.talk("Hello.")
    tools = session.api.requests[0]["tools"]
    named = {tool["name"]: tool for tool in tools}
    undo = named["undo"]
    schema = undo["input_schema"]
    assert undo["description"].strip()
    assert not schema.get("properties")
    assert not schema.get("required")


@pytest.mark.parametrize("new", ["1", "two", ""])
def test_an_edit_is_taken_back_to_the_last_byte(use, file, new):
    file.write_bytes(BYTES)
    failed, _ = use(edit("file", "one", new), UNDO)
    assert failed == [False, False]
    assert file.read_bytes() == BYTES


def test_an_overwritten_file_comes_back_to_the_last_byte(use, file):
    file.write_bytes(BYTES)
    failed, _ = use(write("file", "all new"), UNDO)
    assert failed == [False, False]
    assert file.read_bytes() == BYTES


def test_a_file_that_was_empty_is_empty_again(use, file):
    file.write_bytes(b"")
    failed, _ = use(write("file", "text"), UNDO)
    assert failed == [False, False]
    assert file.exists()
    assert file.read_bytes() == b""


def test_a_file_that_was_not_there_goes_away(use, environment):
    failed, _ = use(write("folder/new", "text"), UNDO)
    new = environment / "folder" / "new"
    assert failed == [False, False]
    assert not new.exists()


def test_the_model_is_told_which_file_it_was(use):
    _, told = use(
        write("first.txt", "x"),
        write("second.txt", "y"),
        UNDO,
        UNDO,
    )
    assert "second.txt" in told[2]
    assert "first.txt" in told[3]


def test_several_go_back_step_by_step(use, file):
    failed, _ = use(
        edit("file", "a", "b"),
        write("other", "x"),
        edit("file", "b", "c"),
        UNDO,
        UNDO,
    )
    other = file.parent / "other"
    assert not any(failed)
    assert file.read_text() == "b"
    assert not other.exists()


def test_all_of_several_go_back(use, file):
    failed, _ = use(
        edit("file", "a", "b"),
        write("file", "c"),
        edit("file", "c", "d"),
        UNDO,
        UNDO,
        UNDO,
        UNDO,
    )
    assert failed == [False] * 6 + [True]
    assert file.read_text() == "a"


def test_an_undo_is_no_step(use, file):
    """The next one does not bring back what was taken back."""
    failed, _ = use(
        write("file", "b"),
        write("file", "c"),
        UNDO,
        write("file", "d"),
        UNDO,
        UNDO,
    )
    assert not any(failed)
    assert file.read_text() == "a"


FAILING = [
    edit("file", "no such text", "c"),
    edit("file", "", "c"),
    edit("no such file", "a", "b"),
    write("../out", "x"),
    write("folder", "x"),
    write("file/inside", "x"),
    write("file", 5),
    ("write_file", {"path": "file"}),
]


@pytest.mark.parametrize("failing", FAILING)
def test_what_failed_is_no_step(use, file, failing):
    folder = file.parent / "folder"
    folder.mkdir()
    failed, told = use(
        edit("file", "a", "b"),
        failing,
        UNDO,
        UNDO,
    )
    assert failed == [False, True, False, True]
    assert file.read_text() == "a"
    assert LEFT in told[3]


def test_when_nothing_is_left_the_model_is_told(use, environment):
    failed, told = use(
        UNDO,
        write("new", "x"),
        UNDO,
        UNDO,
    )
    new = environment / "new"
    assert failed == [True, False, False, True]
    assert LEFT in told[0]
    assert LEFT in told[3]
    assert not new.exists()


def test_a_step_can_be_taken_back_in_a_later_turn(start, environment):
    script = [
        calls(write("new", "x")),
        says("Written."),
        calls(UNDO),
        says("Gone."),
    ]
    session = start("s02_tools", script)
    session.talk("go", "No, take it back.")
    [result] = session.results()
    new = environment / "new"
    assert not result["is_error"]
    assert not new.exists()
