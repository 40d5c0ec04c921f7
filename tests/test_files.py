"""The file tools.

Text goes through unchanged, nothing leads out of the working directory, nothing floods or hangs.
"""

import os
import re
import signal
import sys
import threading
import time
import tracemalloc

import pytest

from conftest import interrupt
from fake_api import calls, says

posix = pytest.mark.skipif(
    os.name != "posix", reason="links and pipes as POSIX has them"
)


@pytest.fixture
def use(start):
    """``use((tool, arguments), ...)``: the results of these calls, all in one reply.

    The session goes on after them.
    """

    def use(*asked):
        session = start("s02_tools", [calls(*asked), says("Done.")])
        session.talk("go", "and now?")
        assert not session.api.refused
        assert session.sent()[-1]["content"] == "and now?"
        return session.sent()[2]["content"]

    return use


def read(path, **lines):
    return "read_file", {"path": path, **lines}


def write(path, content):
    return "write_file", {"path": path, "content": content}


def edit(path, old, new):
    return "edit_file", {"path": path, "old_text": old, "new_text": new}


def glob(pattern):
    return "glob", {"pattern": pattern}


def grep(pattern, **where):
    return "grep", {"pattern": pattern, **where}


def contents(results):
    assert not any(result["is_error"] for result in results)
    return [result["content"] for result in results]


def errors(results):
    assert all(result["is_error"] for result in results)
    return [result["content"] for result in results]


# ---- Text goes through unchanged ---------------------------------------------------------------

TEXTS = [
    "a\r\nb\r\n",
    "a\nb",
    "a\r\nb\nc\rd",
    "\n\n \t\n",
    "\u00fc \U0001f642 \u4f60\u597d \U00020000\n",
    "\ufeffa\n",
    "a\x0bb\x0cc\x1cd\x85e\u2028f\n",
    "a\0b\x1b[0m\n",
    "x" * 30_000 + "\r\n" + "y" * 9_999 + "\r\nz",
]


def test_text_is_written_and_read_exactly(use, environment):
    writes = []
    reads = []
    paths = []
    for number, text in enumerate(TEXTS):
        path = f"new/folder/{number}"
        writes.append(write(path, text))
        reads.append(read(path))
        paths.append(environment / path)
    results = use(*writes, *reads)
    assert contents(results)[len(TEXTS) :] == TEXTS
    assert [path.read_bytes().decode() for path in paths] == TEXTS


def test_an_empty_file_is_no_error(use, environment):
    results = use(write("empty", ""), read("empty"))
    assert contents(results) == ["wrote 0 characters to empty", "(no output)"]
    assert (environment / "empty").read_bytes() == b""


def test_a_file_that_is_not_utf_8_can_be_read_and_searched(use, environment):
    (environment / "latin").write_bytes(b"na\xefve caf\xe9\n")
    text, hit = contents(use(read("latin"), grep("caf")))
    assert text == "na\ufffdve caf\ufffd\n"
    assert hit == "latin:1: na\ufffdve caf\ufffd"


def test_content_that_is_no_text_leaves_the_file_as_it_was(use, environment):
    (environment / "file").write_text("mine")
    no_texts = [None, 5, {"a": 1}, ["a"]]
    writes = [write("file", content) for content in no_texts]
    errors(use(*writes))
    assert (environment / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "before, old, new, after",
    [
        (b"one\ntwo\nthree", "two", "2", b"one\n2\nthree"),
        (b"one\r\ntwo\r\nthree", "one\ntwo", "1\n2\n2", b"1\r\n2\r\n2\r\nthree"),
        (b"one\r\ntwo\r\n", "one\r\n", "1\r\n", b"1\r\ntwo\r\n"),
        (b"one\ntwo\r\nthree\n", "two\r\n", "2\n", b"one\n2\nthree\n"),
        (b"a\xff\xfe two", "two", "\u00fc", b"a\xff\xfe \xc3\xbc"),
        (b"price", "price", r"\1 \g<0> $1", rb"\1 \g<0> $1"),
        (b"a.b", ".", "", b"ab"),
    ],
)
def test_an_edit_changes_what_it_is_asked_to_and_no_other_byte(
    use, environment, before, old, new, after
):
    (environment / "file").write_bytes(before)
    contents(use(edit("file", old, new)))
    assert (environment / "file").read_bytes() == after


def test_an_edit_needs_exactly_one_occurrence(use, environment):
    (environment / "file").write_bytes(b"aaa b b c")
    found = {"z": 0, "b": 2, "aa": 2}
    edits = [edit("file", old, "x") for old in found]
    words = errors(use(*edits))
    for line, number in zip(words, found.values(), strict=True):
        assert re.findall(r"found (\d)", line) == [str(number)]
    assert (environment / "file").read_bytes() == b"aaa b b c"


@pytest.mark.parametrize("content", [b"", b"a", b"some text"])
def test_an_edit_of_an_empty_text_is_refused(use, environment, content):
    (environment / "file").write_bytes(content)
    [words] = errors(use(edit("file", "", "x")))
    assert "old_text must not be empty" in words
    assert (environment / "file").read_bytes() == content


@posix
def test_an_edited_script_can_still_be_run(use, environment):
    (environment / "run.sh").write_text("echo one")
    (environment / "run.sh").chmod(0o755)
    run = ("bash", {"command": "./run.sh"})
    results = use(edit("run.sh", "one", "two"), run)
    assert contents(results)[1] == "two\n"


# ---- What cannot be read -----------------------------------------------------------------------


def test_a_path_that_is_no_file_is_an_error_that_names_it(use, environment):
    (environment / "folder").mkdir()
    results = use(
        read("missing"),
        read("folder"),
        read("folder/missing"),
        write("folder", "x"),
        grep("x", path="missing"),
        edit("missing", "a", "b"),
    )
    names = ["missing", "folder", "missing", "folder", "missing", "missing"]
    for name, words in zip(names, errors(results), strict=True):
        assert name in words


def test_paths_that_no_system_knows_are_errors(use):
    paths = ["", ".", "a\0b", "x" * 5000, "a/" * 3000]
    reads = [read(path) for path in paths]
    errors(use(*reads))


def test_lines_that_are_not_there_are_errors(use, environment):
    (environment / "file").write_text("one\ntwo\n")
    results = use(
        read("file", offset=0),
        read("file", offset=-1),
        read("file", limit=0),
        read("file", offset="x"),
        read("file", offset=[1]),
    )
    for words in errors(results):
        assert "offset" in words
    [words] = errors(use(read("file", offset=3)))
    assert words == "Error: ValueError: file ends at line 2"


# ---- Nothing floods ----------------------------------------------------------------------------


def test_a_file_of_100_mb_costs_no_memory(use, environment):
    with open("big", "wb") as file:
        file.truncate(100_000_000)  # one long line
    tracemalloc.start()
    text, found = contents(use(read("big"), grep("x")))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000
    assert len(text) < 51_000
    assert "there is more" in text
    assert found == "(nothing found)"


LONG_TEXTS = [
    "line\r\n" * 5000,
    " ".join(map(str, range(30_000))) + " ",
    "\u4f60\n" * 4001,
]


@pytest.mark.parametrize("text", LONG_TEXTS)
def test_a_long_file_can_be_read_to_its_end(start, text):
    more = re.compile(r"\n\[there is more: go on with offset=(\d+)\]$")

    def script(request):
        last = request["messages"][-1]["content"]
        if isinstance(last, str):
            return calls(read("long", offset=1))
        found = more.search(last[0]["content"])
        if not found:
            return says("That was all.")
        return calls(read("long", offset=int(found[1])))

    session = start("s02_tools", script)
    (session.folder / "long").write_bytes(text.encode())
    session.talk("go")
    pages = 0
    whole = ""
    for number in range(1, len(session.api.requests)):
        [result] = session.results(number)
        assert len(result["content"]) < 51_000
        whole += more.sub("", result["content"])
        pages += 1
    assert whole == text
    assert pages > 1


def test_the_lines_asked_for_and_how_to_go_on(use, environment):
    (environment / "file").write_text("one\ntwo\nthree\nfour\n", newline="\n")
    [text] = contents(use(read("file", offset=2, limit=2)))
    assert text == "two\nthree\n\n[there is more: go on with offset=4]"


def test_many_finds_are_cut_with_a_notice(use, environment):
    names = [f"{number:03}" for number in range(300)]
    hits = []
    for name in names:
        (environment / name).write_text("hit\nhit\n")
        hits.append(f"{name}:1: hit")
        hits.append(f"{name}:2: hit")
    notice = "[only the first 200 are shown: ask for less]"
    by_name, by_text = contents(use(glob("*"), grep("hit")))
    assert by_name.splitlines() == [*names[:200], notice]
    assert by_text.splitlines() == [*hits[:200], notice]


def test_a_find_in_a_long_line_is_shown_with_what_is_around_it(use, environment):
    (environment / "long").write_text("x" * 5000 + " needle " + "y" * 5000)
    [line] = contents(use(grep("needle")))
    assert "x needle y" in line
    assert len(line) < 350


# ---- What is found -----------------------------------------------------------------------------

FILES = {
    "b/a.py": "import os\n",
    "a.py": "import re\nos.path\n",
    ".git/config": "import os\n",
    "b/.git/x.py": "import os\n",
    "b/c/d.txt": "no import\n",
    "data.py": "import os\0\n",
    ".hidden.py": "import os\n",
}


@pytest.fixture
def tree(environment):
    """The working directory with the files in FILES."""
    for name, text in FILES.items():
        path = environment / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="\n")
    return environment


@pytest.mark.parametrize(
    "pattern, found",
    [
        ("*.py", [".hidden.py", "a.py", "data.py"]),
        ("**/*.py", [".hidden.py", "a.py", "b/a.py", "data.py"]),
        ("b/*", ["b/a.py", "b/c/"]),
        (".git/*", [".git/config"]),
        ("a.py", ["a.py"]),
        ("*.md", ["(nothing found)"]),
    ],
)
def test_glob_finds_sorted_paths_and_leaves_git_alone(use, tree, pattern, found):
    assert contents(use(glob(pattern))) == ["\n".join(found)]


@pytest.mark.parametrize(
    "where, found",
    [
        (
            {},
            [
                ".hidden.py:1: import os",
                "a.py:1: import re",
                "b/a.py:1: import os",
                "b/c/d.txt:1: no import",
            ],
        ),
        ({"path": "b"}, ["b/a.py:1: import os", "b/c/d.txt:1: no import"]),
        ({"path": "b/a.py"}, ["b/a.py:1: import os"]),
        ({"path": ".git"}, [".git/config:1: import os"]),
        ({"path": "data.py"}, ["(nothing found)"]),
    ],
)
def test_grep_finds_sorted_lines_and_leaves_git_and_binary_files_alone(
    use, tree, where, found
):
    assert contents(use(grep("imp..t", **where))) == ["\n".join(found)]


def test_a_search_changes_nothing(use, tree):
    contents(use(glob("**/*"), grep(".")))
    left = {}
    for path in tree.rglob("*"):
        if path.is_file():
            name = path.relative_to(tree).as_posix()
            left[name] = path.read_text()
    assert left == FILES


def test_a_pattern_that_is_none_is_an_error_in_words(use):
    results = use(
        grep("("),
        grep("["),
        grep("*"),
        grep("\\"),
        grep("a{99999999999}"),
        grep("(" * 5000),
        glob(""),
        glob("/etc/*"),
    )
    for words in errors(results):
        assert len(words) > len("Error: ")
    assert results[0]["content"].startswith(f"Error: {re.error.__name__}: ")


# ---- Nothing takes for ever --------------------------------------------------------------------

has_alarm = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="Windows has no such alarm clock"
)


@has_alarm
def test_a_search_that_would_never_end_is_stopped_with_advice(start):
    script = [calls(grep("(a+)+$"), glob("*")), says("Done.")]
    session = start("s02_tools", script)
    session.lesson.SEARCH_TIME = 0.2
    (session.folder / "trap").write_text("a" * 60 + "!\n")
    assert "Done." in session.talk("go")
    stopped, found = session.results()
    assert stopped["is_error"]
    assert "stopped after 0.2 s: try a simpler pattern" in stopped["content"]
    assert found["content"] == "trap"


@has_alarm
def test_the_alarm_of_a_search_does_not_ring_after_it(start):
    wait = ("bash", {"command": "sleep 0.5; echo slept"})
    session = start("s02_tools", [calls(glob("*"), grep("x"), wait)])
    session.lesson.SEARCH_TIME = 0.2
    session.talk("go")
    assert session.results()[-1]["content"] == "slept\n"


@posix
def test_a_search_walks_past_a_pipe(use, environment):
    os.mkfifo("pipe")
    (environment / "file").write_text("needle\n")
    assert contents(use(grep("needle"))) == ["file:1: needle"]


def test_a_line_that_ends_in_a_carriage_return_is_searched_without_it(use, environment):
    (environment / "file").write_bytes(b"one two\r\nthree\r\n")
    assert contents(use(grep("two$"))) == ["file:1: one two"]


@has_alarm
def test_the_alarm_is_heard_also_where_the_library_takes_it_for_a_fault_of_the_disk(
    start,
):
    session = start("s02_tools", [])

    def stumbles_once():
        try:
            time.sleep(20)
        except OSError:  # as os.path.realpath does
            time.sleep(20)

    session.lesson.SEARCH_TIME = 0.1
    with pytest.raises(TimeoutError):
        with session.lesson.time_limit():
            stumbles_once()


# ---- Arguments ---------------------------------------------------------------------------------


def test_a_number_that_comes_as_text_is_taken(use, environment):
    (environment / "file").write_text("one\ntwo\nthree\n", newline="\n")
    [text] = contents(use(read("file", offset="2", limit="1")))
    assert text == "two\n\n[there is more: go on with offset=3]"


@pytest.mark.parametrize("wrong", ["two", "2.5", 2.5, True, [2], {"n": 2}, ""])
def test_an_argument_of_the_wrong_type_is_named_with_its_schema(
    use, environment, wrong
):
    (environment / "file").write_text("one\n")
    [words] = errors(use(read("file", offset=wrong)))
    assert '\'offset\' must be like {"type": "integer"}' in words
    assert f"got {str(wrong)!r}" in words


def test_text_for_a_text_is_never_taken_for_json(use, environment):
    contents(use(write("file", "[1, 2]")))
    assert (environment / "file").read_text() == "[1, 2]"


# ---- Nothing leads out -------------------------------------------------------------------------


LINKS = []
if os.name == "posix":
    LINKS = ["dangling", "file_link", "link"]


@pytest.fixture
def outside(environment):
    """A folder beside the working directory, with a file ``secret``.

    Links inside the working directory, see LINKS, lead there and to nowhere yet.
    """
    folder = environment.parent / "outside"
    folder.mkdir()
    (folder / "secret").write_text("hush")
    if LINKS:
        os.symlink(folder, "link")
        os.symlink("../outside/secret", "file_link")
        os.symlink(folder / "later", "dangling")
    yield folder
    [left] = folder.iterdir()
    assert left.name == "secret"
    assert left.read_text() == "hush"


def test_no_path_leads_out_of_the_working_directory(use, outside, environment):
    paths = [
        "../outside/secret",
        "a/../../outside/secret",
        "..",
        str(outside / "secret"),
        "/",
        "../outside/later",
    ]
    if LINKS:
        paths += [*LINKS, "link/secret", "link/later", "dangling/x"]
    asked = []
    for path in paths:
        asked += [
            read(path),
            write(path, "x"),
            edit(path, "hush", "x"),
            grep("hush", path=path),
        ]
    for words in errors(use(*asked)):
        assert "is outside the working directory" in words
    assert sorted(os.listdir(environment)) == LINKS


def test_no_search_finds_what_is_outside(use, outside):
    patterns = [
        "../*/*",
        "../outside/*",
        "**/secret",
        "link/*",
        "*/*",
        "file_link",
        "dangling",
    ]
    searches = [glob(pattern) for pattern in patterns]
    for found in contents(use(*searches, grep("hush"))):
        assert found == "(nothing found)"


def test_a_path_inside_is_good_however_it_is_written(use, environment):
    (environment / "folder").mkdir()
    paths = [
        "file",
        "./file",
        "folder/../file",
        str(environment / "file"),
        f"../{environment.name}/file",
    ]
    asked = []
    for path in paths:
        asked.append(write(path, path))
        asked.append(read("file"))
    results = use(*asked)
    assert contents(results)[1::2] == paths


@posix
def test_a_link_that_stays_inside_is_followed(use, environment):
    (environment / "folder").mkdir()
    os.symlink("folder", "link")
    results = use(write("link/file", "here"), read("folder/file"))
    assert contents(results)[1] == "here"


@posix
def test_links_in_a_ring_are_no_trap(use, environment):
    (environment / "file").write_text("here\n")
    os.symlink("ring", "ring")
    os.symlink(".", "self")
    found, hits = contents(use(glob("**/file"), grep("here")))
    assert found.splitlines()[0] == "file"
    assert hits.splitlines()[0] == "file:1: here"
    errors(use(read("ring"), write("ring", "x")))


@pytest.fixture
def pipe(environment):
    """A named pipe in the working directory.

    Who opens it would wait for ever: here, until Ctrl-C after 5 seconds.
    """
    os.mkfifo("pipe")
    timer = threading.Timer(5, interrupt)
    timer.start()
    yield
    timer.cancel()


@posix
def test_nobody_waits_for_a_pipe(use, pipe, environment):
    os.symlink("pipe", "link")
    results = use(
        read("pipe"),
        read("link"),
        grep("x", path="pipe"),
        write("pipe", "x"),
        edit("pipe", "a", "b"),
    )
    for words in errors(results):
        assert "neither a file nor a folder" in words
    hits, found = contents(use(grep("x"), glob("p*")))
    assert hits == "(nothing found)"
    assert found == "pipe"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such a name")
def test_a_name_that_is_not_utf_8_is_shown_as_well_as_can_be(use, environment):
    (environment / os.fsdecode(b"\xff.txt")).write_text("here\n")
    found, hits = contents(use(glob("*"), grep("here")))
    assert found == "?.txt"
    assert hits == "?.txt:1: here"
