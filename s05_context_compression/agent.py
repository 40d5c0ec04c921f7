"""The context window fills up, so the harness forgets on purpose and loses nothing.  Before text
leaves the list it is on disk, where the model's tools can find it.  Long results go there as
they come, then old ones, and at last a summary takes the place of all that is old.

    person --> messages --> model --> words --> person
                  ^           |
                  |           | tool_use
      tool_result |           v
                  +-------- tools   s01  bash
                                    s02  read_file, write_file, edit_file, glob, grep
                                    s03  todo, and a reminder in the last tool_result
                                    s04  task: the same loop on another list
                                    s05  compact; the list is made to fit the window
New: RESULT_TOKENS, QUOTE_TOKENS, SHARE_KEPT, SHARE_GROWN, LONG, LONG_REFUSED, SUM_UP, FILES, ADVISED, FOLDER, Memory, ask_within_window, compress, make_room, is_too_long, offload, trim, summarise, ask_for_summary, tail_start, holds_results, context_window, full_at, is_full, asks_to_compress, estimate, tokens_in, measure, size_after, have_patience, warn_of_small_window, advise, take_up, new_file, record, as_text, shrink, compact
Changed: agent_loop, run_tool, bash, SKIP, Agent, main
"""
import contextlib
import copy
import functools
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import anthropic
from dotenv import load_dotenv

load_dotenv(override=True)  # the .env beside the lessons wins over what the shell exports
LESSON = Path(__file__).resolve().parent.name
MODEL = os.environ.get("MODEL") or "claude-sonnet-5-5"
SYSTEM = f"You are a coding agent in {os.getcwd()!r}. Act with your tools rather than explain."
TOOLS = []  # what the model is told: name, description and schema of each tool
HANDLERS = {}  # what the harness runs: {name: function}
CUT_OFF = ["max_tokens", "refusal", "model_context_window_exceeded"]  # a call may lack its end


# ---- The loop ------------------------------------------------------------------------


def agent_loop(messages, agent):
    """Call the model and run its tools until it stops asking.

    messages: ends with the person's words; it grows in place and is valid at every moment.
    """
    agent.messages = messages  # the parent's is made in main; forked() takes it from here
    for _ in range(agent.turn_limit):
        reply = ask_within_window(messages, agent)
        note(reply, agent.work)  # what it cost, and what was said
        calls = add_turn(messages, reply)
        show("text", words_of(reply["content"]))
        if not calls or reply["stop_reason"] in CUT_OFF:
            show("stop", f"[{reply['stop_reason']}]")
            return
        for call, result in calls:
            run_tool(call, result, agent.handlers)
        if agent is PARENT:
            remind(calls)
    agent.work.status = f"[stopped after {agent.turn_limit} turns]"


def ask_model(messages, agent):
    """One request.  It holds the whole list: the API remembers nothing in between."""
    show("waiting", "thinking ...")
    reply = client.messages.create(
        model=MODEL,
        max_tokens=16_000,
        messages=messages,
        # The server keeps what it has read; without this each request pays for the whole list.
        cache_control={"type": "ephemeral"},
        system=agent.system,
        tools=agent.tools,
        **agent.more,  # for example the JSON schema of a child's answer
    )
    return valid_reply(reply)


def add_turn(messages, reply):
    """Append a reply, and an answer to each call in it; return the (call, answer) pairs.

    The API refuses a list with a tool_use that has no tool_result.  So each call is answered
    "Not run" at once, and run_tool writes into that same answer what came of the call: an
    error or Ctrl-C in between leaves the list valid.
    """
    content = reply["content"]
    calls = [block for block in content if block["type"] == "tool_use"]
    answers = [not_run(call, reply["stop_reason"]) for call in calls]
    turn = []
    if content:  # the API refuses a message without content
        turn.append({"role": "assistant", "content": content})
    if answers:
        turn.append({"role": "user", "content": answers})
    messages.extend(turn)  # in one step, so that nothing can come between the two
    return list(zip(calls, answers))


def not_run(call, stop_reason):
    """The answer to a call until it runs."""
    return {
        "type": "tool_result",
        "tool_use_id": call["id"],
        "content": f"Not run: the turn ended first ({stop_reason}).",
        "is_error": True,
    }


def run_tool(call, result, handlers):
    """Run one call and put what came of it into ``result``, whatever happens."""
    show("call", one_line(call))
    result["content"] = "Interrupted while it ran: it may have had effects."
    try:
        if call["name"] not in handlers:
            names = ", ".join(handlers)
            raise ValueError(f"there is no tool {call['name']!r}; the tools are: {names}")
        if NO_OBJECT in call["input"]:  # valid_call has put it there
            wrong = call["input"][NO_OBJECT]
            raise ValueError(f"the input must be a JSON object of arguments, not {wrong!r}")
        handler = handlers[call["name"]]
        output = handler(**checked_arguments(call))
        output = output.encode("utf-8", "replace").decode()  # half an emoji becomes "?"
        output = offload(io.BytesIO(output.encode()))  # what bash offloaded is short by now
        result.update(content=output or "(no output)", is_error=False)
    except KeyboardInterrupt as interrupt:
        result["content"] += str(interrupt)  # what it printed so far
        raise
    except Exception as error:  # whatever a tool trips over, the model is told
        result["content"] = f"Error: {explain(error)}"
    show("result", one_line(result))


# ---- What the API takes back ---------------------------------------------------------

TEXTS = {  # {type of block: the texts that it must have}
    "text": ["text"],
    "thinking": ["thinking", "signature"],  # what the model thought before it spoke
    "redacted_thinking": ["data"],
}
NO_OBJECT = "not_an_object"  # under this name stands an input that was none
USED_IDS = set()  # of all calls so far: the API takes an id once


def valid_reply(reply):
    """``reply`` as plain JSON, its content mended so that the API takes it back.

    A model may be cut off anywhere, and some servers send what the API would refuse; with
    one such block in the list, every later request would fail.
    """
    reply = reply.to_dict(warnings=False)
    # To text and back, so that each string in it, however deep, is mended in one place.
    text = json.dumps(reply["content"] or [], ensure_ascii=False)
    text = text.encode("utf-8", "replace").decode()  # half an emoji becomes "?"
    blocks = []
    for block in json.loads(text, parse_constant=str):  # NaN becomes "NaN"
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use":
            blocks.append(valid_call(block))
        elif is_whole(block):
            names = ["type", *TEXTS[block["type"]]]
            blocks.append({name: block[name] for name in names})
    # Cut off while it was thinking: a reply must not end there.
    while blocks and "thinking" in blocks[-1]["type"]:
        blocks.pop()
    reply["content"] = blocks
    return reply


def is_whole(block):
    """Whether a block has the texts of its type, and the last of them is not blank."""
    names = TEXTS.get(str(block.get("type")), [])
    texts = [block.get(name) for name in names]
    if not texts or not all(isinstance(text, str) for text in texts):
        return False
    return texts[-1].strip() != ""


def valid_call(block):
    """The call in ``block``, mended so that it can be answered whatever the model wrote."""
    call_id = as_name(block.get("id"))
    if not call_id or call_id in USED_IDS:
        call_id = f"call_{uuid.uuid4().hex}"
    USED_IDS.add(call_id)
    name = as_name(block.get("name")) or "nameless"
    arguments = block.get("input")
    if not isinstance(arguments, dict):
        arguments = {NO_OBJECT: arguments}
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def as_name(value):
    """``value`` in the characters that the API takes in an id or a name, 64 at most."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", str(value or ""))[:64]


# ---- The tool ------------------------------------------------------------------------

TIME_LIMIT = 120  # seconds that a command may take
PRINT_LIMIT = 100_000_000  # bytes that it may print
RESULT_LIMIT = 50_000  # bytes of a result that the model gets to see
BASH = "/bin/bash" if os.path.exists("/bin/bash") else None  # None: the system's own shell

# A seat belt, not a wall: what destroys a machine by accident.
DENIED = [
    # rm -rf /   rm -r ~/   rm -fr "$HOME"   but not: docker run --rm -r /
    r"(?<!-)\brm +-[^;&|\n]*r[^;&|\n]* (/|~|\$HOME|\"\$HOME\")/?\*?(\s|[;&|)]|$)",
    # reboot   sudo reboot   halt now   but not: echo reboot
    r"(^|[;&|(]|\bsudo) *(shutdown|reboot|halt|poweroff)( -| now| *[;&)]| *$)",
    # mkfs.ext4 /dev/sda
    r"(^|[;&|(]|\bsudo)\s*mkfs",
    # dd if=x of=/dev/sda   echo > /dev/sda1   but not: echo > /dev/null
    r"(>|\bof=)\s*/dev/(sd|hd|vd|nvme|mmcblk|disk)\w*(\s|[;&|)]|$)",
]


def bash(command):
    """What ``command`` prints, and its exit status if that is not 0.

    Raises PermissionError for a command in DENIED, TimeoutError at a limit and
    KeyboardInterrupt on Ctrl-C, both with what it printed so far.
    """
    if is_denied(command):
        raise PermissionError("not run: such a command could destroy this machine")
    # Into a file, not a pipe: a flood is never in memory, and a child that the command
    # leaves in the background does not hold the call.
    folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with folder, open(f"{folder.name}/output", "a+b") as output:
        process = subprocess.Popen(
            command,
            shell=True,
            executable=BASH,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that kill() reaches all its children
        )
        try:
            wait(process, output)
        except (TimeoutError, KeyboardInterrupt) as stop:
            kill(process)
            # The same exception again, now with what the command printed.
            raise type(stop)(f"{stop}\n{offload(output)}")
        printed = offload(output)
    if process.returncode != 0:
        printed += f"\n[exit status {process.returncode}]"
    return printed


def is_denied(command):
    """Whether a pattern in DENIED is found in ``command``."""
    flags = re.MULTILINE | re.IGNORECASE
    return any(re.search(pattern, command, flags) for pattern in DENIED)


def wait(process, output):
    """Wait until ``process`` ends.  Raises TimeoutError at a limit."""
    deadline = time.monotonic() + TIME_LIMIT
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"killed after {TIME_LIMIT} s.  It printed:")
        if os.fstat(output.fileno()).st_size > PRINT_LIMIT:
            raise TimeoutError(f"killed after {PRINT_LIMIT:,} bytes of output.  It printed:")
        time.sleep(0.01)


def kill(process):
    """Kill a command and all the processes that it started."""
    if os.name == "nt":
        subprocess.run(["taskkill", "/F", "/T", "/PID", str(process.pid)], capture_output=True)
    else:
        os.killpg(process.pid, signal.SIGKILL)
        if shutil.which("pkill"):  # a child such as ``timeout`` leaves the group, not the session
            pkill = ["pkill", "-KILL", "-s", str(process.pid)]
            subprocess.run(pkill, capture_output=True, start_new_session=True)
    process.wait()


def head_and_tail(output, limit=RESULT_LIMIT):
    """The text in a binary file; of one over ``limit`` bytes the two ends, where errors stand."""
    size = output.seek(0, os.SEEK_END)
    output.seek(0)
    if size <= limit:
        return output.read().decode("utf-8", "replace")
    head = output.read(limit // 2).decode("utf-8", "replace")
    output.seek(size - limit // 2)
    tail = output.read(limit // 2).decode("utf-8", "replace")
    return f"{head}\n[... {size - limit:,} bytes not shown ...]\n{tail}"


TOOLS.append({
    "name": "bash",
    "description": "Run a shell command and see what it prints.",
    "input_schema": {
        "type": "object",
        "properties": {"command": {"type": "string"}},
        "required": ["command"],
    },
})
HANDLERS["bash"] = bash


# ---- Tools for files: a tool is a schema and a handler -------------------------------

JSON_TYPES = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
STRING = {"type": "string"}
INTEGER = {"type": "integer"}


def add_tool(handler, description, properties, required):
    """Put a tool into both tables; its name is the handler's.

    properties: {argument: its schema}.  required: the arguments that must be given.
    """
    schema = {"type": "object", "properties": properties, "required": required}
    name = handler.__name__
    TOOLS.append({"name": name, "description": description, "input_schema": schema})
    HANDLERS[name] = handler


def checked_arguments(call):
    """The arguments of a call, once its tool's schema has been asked.  A null counts as left out.

    Raises ValueError in words that tell the model which argument to mend, and how.
    """
    schemas = {tool["name"]: tool["input_schema"] for tool in TOOLS}
    schema = schemas[call["name"]]
    arguments = {}
    for name, value in call["input"].items():
        if name not in schema["properties"]:
            known = ", ".join(schema["properties"]) or "nothing"
            raise ValueError(f"there is no argument {name!r}; {call['name']} takes: {known}")
        if value is not None:
            arguments[name] = checked_value(name, value, schema["properties"][name])
    for name in schema["required"]:
        if name not in arguments:
            wanted = json.dumps(schema["properties"][name])
            raise ValueError(f"the argument {name!r} is missing: {wanted}")
    return arguments


def checked_value(name, value, schema):
    """``value``, if its type is the schema's; a number or a list may come as text."""
    wanted = JSON_TYPES[schema["type"]]
    if isinstance(value, str) and wanted is not str:
        with contextlib.suppress(ValueError):  # no JSON: it stays a text, and is refused below
            value = json.loads(value)
    if type(value) is not wanted:  # isinstance would take True for an integer
        got = str(value)[:200]
        raise ValueError(f"{name!r} must be like {json.dumps(schema)}; got {got!r}")
    return value


LINE_LIMIT = 10_000  # characters; a longer line counts as several
READ_LIMIT = 50_000  # characters that read_file returns


def read_file(path, offset=1, limit=2000):
    """A file's text from line ``offset`` on, at most ``limit`` lines; then how to go on."""
    if offset < 1 or limit < 1:
        raise ValueError("offset and limit must be 1 or more")
    text = ""
    number = 0
    for number, line in numbered_lines(safe_path(path)):
        if number < offset:
            continue
        if number >= offset + limit or len(text) + len(line) > READ_LIMIT:
            return f"{text}\n[there is more: go on with offset={number}]"
        text += line
    if offset > number and offset > 1:  # an empty file may be read from line 1
        raise ValueError(f"{path} ends at line {number}")
    return text


def write_file(path, content):
    """Write ``content`` as it is, in UTF-8, making folders on the way."""
    target = safe_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8", newline="")
    return f"wrote {len(content):,} characters to {path}"


def edit_file(path, old_text, new_text):
    """Replace the one occurrence of ``old_text``; every other byte of the file stays."""
    target = safe_path(path)
    # surrogateescape: a byte that is not UTF-8 gets a stand-in, and writing undoes it.
    text = target.read_bytes().decode("utf-8", "surrogateescape")
    if text.count("\r\n") > text.count("\n") / 2:  # most lines end so; models write \n
        # First all to \n, or a \r\n would become \r\r\n.
        old_text = old_text.replace("\r\n", "\n").replace("\n", "\r\n")
        new_text = new_text.replace("\r\n", "\n").replace("\n", "\r\n")
    if not old_text:
        raise ValueError("old_text must not be empty")
    # At each place by itself, as two occurrences may overlap.
    found = sum(text.startswith(old_text, place) for place in range(len(text)))
    if found != 1:
        raise ValueError(f"old_text must occur exactly once in {path}; found {found}")
    new = text.replace(old_text, new_text)
    target.write_bytes(new.encode("utf-8", "surrogateescape"))
    return f"edited {path}"


def glob(pattern):
    """The paths that match ``pattern``; a folder ends in a slash."""
    found = []
    with time_limit():
        for path in search(safe_path("."), pattern, asked=pattern):
            slash = "/" if path.is_dir() else ""
            found.append(path.as_posix() + slash)
    return capped(found)


def grep(pattern, path="."):
    """The lines that match a regular expression, in a file or in all files under a folder."""
    expression = re.compile(pattern)
    found = []
    with time_limit():
        for file in files_under(path):
            for hit in hits_in(file, expression):
                found.append(hit)
                if len(found) > FIND_LIMIT:  # one more than is shown, so that capped tells
                    return capped(found)
    return capped(found)


add_tool(
    read_file,
    "Read `limit` lines of a file from line `offset` on.",
    {"path": STRING, "offset": INTEGER, "limit": INTEGER},
    required=["path"],
)
add_tool(
    write_file,
    "Write a whole text file.",
    {"path": STRING, "content": STRING},
    required=["path", "content"],
)
add_tool(
    edit_file,
    "Replace the one occurrence of old_text.",
    {"path": STRING, "old_text": STRING, "new_text": STRING},
    required=["path", "old_text", "new_text"],
)
add_tool(
    glob,
    "List the paths that match, such as **/*.py.",
    {"pattern": STRING},
    required=["pattern"],
)
add_tool(
    grep,
    "Find the lines that match a regular expression.",
    {"pattern": STRING, "path": STRING},
    required=["pattern"],
)

# What the file tools are made of.

SKIP = {".git"}  # folders that a search enters only when it is asked for them
FIND_LIMIT = 200  # lines that a search returns
SEARCH_TIME = 10  # seconds that it may take


def safe_path(path):
    """``path`` made absolute, links followed.

    Raises PermissionError outside the working directory, and for a pipe or a device: to open
    one could mean to wait for ever.
    """
    full = Path(os.path.realpath(path))
    if not full.is_relative_to(os.path.realpath(".")):
        raise PermissionError(f"{path} is outside the working directory")
    if full.exists() and not full.is_file() and not full.is_dir():
        raise PermissionError(f"{path} is neither a file nor a folder")
    return full


def numbered_lines(path):
    """The lines of a file as they are, one by one, with their numbers."""
    # newline="": the line ends stay as they are.
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        number = 1
        line = file.readline(LINE_LIMIT)
        while line:
            yield number, line  # hands it out; goes on here when the next one is asked for
            number += 1
            line = file.readline(LINE_LIMIT)


def search(folder, pattern, asked):
    """The paths under ``folder`` that match ``pattern``, sorted, as seen from here.

    asked: what the model wrote; a folder in SKIP is entered only if it is named there.
    """
    here = Path(os.path.realpath("."))
    skipped = SKIP - set(Path(asked).parts)  # parts: the names between the slashes
    found = []
    for path in folder.glob(pattern):  # not the tool: each Path has a glob of its own
        if Path(os.path.realpath(path)).is_relative_to(here):  # a link may lead out
            relative = path.relative_to(here)
            if not skipped.intersection(relative.parts):
                found.append(relative)
    return sorted(found)


def files_under(path):
    """The file ``path``, or the files that can be read under the folder ``path``."""
    where = safe_path(path)
    if not where.exists():
        raise FileNotFoundError(f"there is no {path}")
    if where.is_file():
        return [Path(path)]  # as the model wrote it
    found = search(where, "**/*", asked=path)
    return [file for file in found if file.is_file() and os.access(file, os.R_OK)]


def hits_in(file, expression):
    """The lines of ``file`` that match, each with path, number and what is around the match."""
    with open(file, "rb") as head:
        if b"\0" in head.read(1024):
            return  # it is no text, so nothing in it matches
    for number, line in numbered_lines(file):
        match = expression.search(line.rstrip("\r\n"))  # without its end, so that $ fits
        if match:
            first = max(match.start() - 100, 0)
            around = line[first : first + 300].strip()
            yield f"{file.as_posix()}:{number}: {around}"


def capped(found):
    """The strings in ``found``, a line each, and a notice if there are too many."""
    lines = found[:FIND_LIMIT]
    if len(found) > FIND_LIMIT:
        lines.append(f"[only the first {FIND_LIMIT} are shown: ask for less]")
    return "\n".join(lines) or "(nothing found)"


@contextlib.contextmanager  # makes the function below one for "with"
def time_limit():
    """``with time_limit():`` raises TimeoutError in its body after SEARCH_TIME.

    An expression such as (a+)+$ can search for years.  Windows has no such alarm clock.
    """
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, ring)  # when the alarm goes off, Python calls ring
        # Again each second: Path.glob may ignore an OSError, and a TimeoutError is one.
        signal.setitimer(signal.ITIMER_REAL, SEARCH_TIME, 1)
    try:
        yield  # here the body of the "with" runs
    finally:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)  # off


def ring(signal_number, frame):
    """What the alarm clock calls; it tells two things that are of no use here."""
    raise TimeoutError(f"stopped after {SEARCH_TIME} s: try a simpler pattern or a smaller folder")


# ---- The plan: the model keeps it, the harness reminds it ----------------------------


@dataclass
class Plan:
    """What the harness knows of the model's plan."""

    items: list  # as the model last wrote them: {"text": ..., "status": ...}
    rounds: int  # rounds of tools since then


PLAN = Plan(items=[], rounds=0)
MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
ITEM_LIMIT = 20
PATIENCE = 3  # rounds of tools without a todo before the model is reminded
REMINDER = "<reminder>Your todo list has open items: bring it up to date.</reminder>"
SYSTEM += " Work of several steps: keep a list with todo, one step in progress at a time."


def todo(items):
    """Replace the whole list; a bad one raises ValueError, and the old list stands."""
    check_items(items)
    PLAN.items = items
    show("text", drawn(items))
    return drawn(items)


def check_items(items):
    """Raises ValueError in words that tell the model what to mend."""
    if len(items) > ITEM_LIMIT:
        raise ValueError(f"items must be a list of at most {ITEM_LIMIT}")
    active = 0
    for item in items:
        if not is_item(item):  # checked_arguments saw only that items is a list
            wanted = f"a text and a status, one of {', '.join(MARKS)}"
            raise ValueError(f"an item needs {wanted}; got {str(item)[:200]}")
        if item["status"] == "in_progress":
            active += 1
    if active > 1:
        raise ValueError("only one item can be in_progress")


def is_item(item):
    """Whether ``item`` is {"text": some text, "status": a key of MARKS}."""
    if not isinstance(item, dict):
        return False
    text = item.get("text")
    is_text = isinstance(text, str) and text.strip() != ""
    # list(MARKS): to look for a status such as [] in MARKS itself would raise TypeError.
    return is_text and item.get("status") in list(MARKS)


def drawn(items):
    """The list as checkboxes with a count."""
    lines = [f"{MARKS[item['status']]} {item['text']}" for item in items]
    done = [item for item in items if item["status"] == "completed"]
    lines.append(f"({len(done)}/{len(items)} completed)")
    return "\n".join(lines)


def remind(calls):
    """After PATIENCE rounds without a todo, put a reminder into the last result.

    Inside its text: the API refuses a text before the results, and one after them looks like
    the person speaking; a model that often sees that ends its turn to let them speak.
    """
    PLAN.rounds += 1
    for call, result in calls:
        if call["name"] == "todo" and not result["is_error"]:
            PLAN.rounds = 0
    is_open = any(item["status"] != "completed" for item in PLAN.items)
    if is_open and PLAN.rounds >= PATIENCE:  # in each round from now on, until a todo
        last_call, last_result = calls[-1]
        last_result["content"] += f"\n{REMINDER}"
        show("notice", "[the model was reminded of its todo list]")


ITEM = {  # told to the model; is_item sees to it
    "type": "object",
    "properties": {"text": STRING, "status": {"type": "string", "enum": list(MARKS)}},
    "required": ["text", "status"],
}
add_tool(
    todo,
    "Write your list of steps, the whole list each time.",
    {"items": {"type": "array", "items": ITEM}},  # the inner one: what stands in the array
    required=["items"],
)


# ---- Subagents: the same loop on another list ----------------------------------------

READ_TOOLS = ["read_file", "glob", "grep"]
BASE_TOOLS = ["bash", "read_file", "write_file", "edit_file", "glob", "grep"]
MODES = ["isolated", "fork"]
CONTRACT = (
    "Only your last message is seen: five lines of conclusion, sources as paths, "
    "and what you could not verify."
)
CHILD_TURNS = 30
ANSWER_LIMIT = 20_000  # characters of a child's last words
STRINGS = {"type": "array", "items": STRING}
REVIEW = {  # the schema of a reviewer's answer
    "type": "object",
    "properties": {
        "verdict": {"type": "string", "enum": ["pass", "fail"]},
        "findings": STRINGS,
        "not_verified": STRINGS,
    },
    "required": ["verdict", "findings", "not_verified"],
    "additionalProperties": False,
}

# Who verifies starts clean ("isolated", the default); who continues knows all ("fork").
AGENT_TYPES = {
    "explore": {
        "description": "Finds things out.",
        "tools": READ_TOOLS,
        "prompt": "Search and read until you can answer.",
    },
    "plan": {
        "description": "Plans a change.",
        "tools": READ_TOOLS,
        "prompt": "Give the steps in order, each with its file.",
    },
    "review": {
        "description": "Looks at work with fresh eyes and answers as JSON.",
        "tools": READ_TOOLS,
        "prompt": "Check the work that you are shown; look for what is wrong with it.",
        "schema": REVIEW,
    },
    "code": {
        "description": "Makes a change.",
        "tools": BASE_TOOLS,
        "prompt": "Make the change and run it.",
    },
    "fix": {
        "description": "Goes on from here, knowing all that you know.",
        "mode": "fork",
    },
}
# A wrong entry fails at the start.  No child has task or todo: it does not delegate or plan.
for type_name, entry in AGENT_TYPES.items():
    has_mode = entry.get("mode", "isolated") in MODES
    has_tools = set(entry.get("tools", [])).issubset(BASE_TOOLS)
    if not has_mode or not has_tools:
        must = f"the mode must be one of {MODES}, the tools must be of {BASE_TOOLS}"
        raise ValueError(f"agent type {type_name!r}: {must}; it is {entry}")


@dataclass
class Work:
    """What is noted of an agent's work; of a child, the person sees it as one line."""

    title: str  # its type and what it is to do
    started: float  # by time.monotonic(), in seconds
    status: str = "working"  # at the end: why it ended
    tool_count: int = 0  # calls that it made
    tokens_read: int = 0  # of all its requests, from the cache or not
    tokens_returned: int = 0  # of the reply with its last words
    last_words: str = "(no summary)"

    def line(self):
        """The one line that stands for the child on the screen."""
        seconds = time.monotonic() - self.started
        return f"{self.title}: {self.status}, {self.tool_count} tools, {seconds:.1f} s"


@dataclass
class Agent:
    """Who works on a list: the parent is one, and each child is another."""

    system: str  # the system prompt
    tools: list  # the schemas that the model is told
    handlers: dict  # {tool name: function}
    more: dict  # what else goes into each request
    turn_limit: int  # replies until it is stopped
    messages: list  # the list itself, from which a fork starts
    work: Work
    memory: object = None  # a Memory, from the first request on


def task(prompt, agent_type, description=""):
    """Run a child on ``prompt`` and return its last words; nothing else of it comes back.

    Raises ValueError for an unknown type or an empty prompt, and what the child's requests raise.
    """
    if agent_type not in AGENT_TYPES:
        names = ", ".join(AGENT_TYPES)
        raise ValueError(f"unknown agent_type {agent_type!r}; the types are: {names}")
    if not prompt.strip():
        raise ValueError("prompt must be a text that says what to do")
    entry = AGENT_TYPES[agent_type]
    title = " ".join(f"[{agent_type}] {description}".split())[:60]  # on one line
    if entry.get("mode") == "fork":
        child = forked(prompt, title)
    else:
        child = isolated(prompt, title, entry)
    run_child(child)
    answer = child.work.last_words
    missing = len(answer) - ANSWER_LIMIT
    if missing > 0:
        half = ANSWER_LIMIT // 2
        notice = f"[... {missing:,} characters not shown ...]"
        answer = f"{answer[:half]}\n{notice}\n{answer[-half:]}"
    if child.work.status != "done":
        answer += f"\n{child.work.status}"
    return answer


def isolated(prompt, title, entry):
    """A child that knows the prompt and nothing else."""
    more = {}
    if "schema" in entry:
        answer_format = {"type": "json_schema", "schema": entry["schema"]}
        more["output_config"] = {"format": answer_format}  # so the API calls it
    return Agent(
        system=f"{entry['prompt']} {CONTRACT}",
        tools=[tool for tool in TOOLS if tool["name"] in entry["tools"]],
        handlers={name: HANDLERS[name] for name in entry["tools"]},
        more=more,
        turn_limit=CHILD_TURNS,
        messages=[{"role": "user", "content": prompt}],
        work=Work(title, time.monotonic()),
    )


def forked(prompt, title):
    """A child that goes on from the parent's list.

    System prompt, tools and messages are the parent's to the byte: the server has them in
    its cache.  So a fork is offered ``task`` and ``todo`` too, and others answer for them.
    """
    # Not the turn that called task: its calls and their answers, the last two messages.
    before_this_turn = PARENT.messages[:-2]
    words = {"role": "user", "content": f"{prompt}\n\n{CONTRACT}"}
    handlers = dict(HANDLERS)  # a copy: the parent keeps its own task and todo
    handlers["task"] = no_task
    handlers["todo"] = no_todo
    return Agent(
        system=PARENT.system,
        tools=PARENT.tools,
        handlers=handlers,
        more={},
        turn_limit=CHILD_TURNS,
        messages=before_this_turn + [words],
        work=Work(title, time.monotonic()),
    )


def no_task(prompt, agent_type, description=""):
    """What answers a fork that delegates."""
    return "you are a subagent and cannot delegate; do it yourself"


def no_todo(items):
    """What answers a fork that plans: the list is drawn, and the parent's plan stands."""
    check_items(items)
    return drawn(items)


WORKING = []  # holds the child that is at work, or nothing


def run_child(child):
    """Run a child to its end, with one line on the screen for all that it does."""
    work = child.work
    WORKING.append(child)
    try:
        agent_loop(child.messages, child)
    except KeyboardInterrupt:
        work.status = "interrupted"
        raise KeyboardInterrupt  # a new one: the words of the old one are not for the parent
    except Exception:
        work.status = "failed"
        raise
    finally:
        WORKING.pop()
        tokens = f"read {work.tokens_read:,} tokens, returned {work.tokens_returned:,}"
        show("notice", f"{work.line()}, {tokens}")


def note(reply, work):
    """Note what a request and its reply cost, and what the child has to say so far."""
    read, written = tokens_of(reply)
    work.tokens_read += read
    calls = [block for block in reply["content"] if block["type"] == "tool_use"]
    if not calls or reply["stop_reason"] in CUT_OFF:  # the last reply, as agent_loop ends here
        is_done = reply["stop_reason"] in ("end_turn", "stop")  # some servers say "stop"
        work.status = "done" if is_done else f"[{reply['stop_reason']}]"
    else:
        work.tool_count += len(calls)
    words = words_of(reply["content"])
    if words:
        work.last_words = words
        work.tokens_returned = written


def tokens_of(reply):
    """The tokens that a reply's request held and that the reply has, as the server counts.

    Some servers count nothing; that is 0.
    """
    usage = reply.get("usage") or {}
    read = 0
    for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
        read += usage.get(name) or 0
    return read, usage.get("output_tokens") or 0


type_lines = "\n".join(f"- {name}: {AGENT_TYPES[name]['description']}" for name in AGENT_TYPES)
add_tool(
    task,
    "Have a subagent do work.  Unless its type says more, it knows only the prompt.\n" + type_lines,
    {
        "prompt": STRING,
        "agent_type": {"type": "string", "enum": list(AGENT_TYPES)},
        "description": STRING,
    },
    required=["prompt", "agent_type"],
)
PARENT = Agent(
    system=SYSTEM,
    tools=TOOLS,
    handlers=HANDLERS,
    more={},
    turn_limit=sys.maxsize,  # a number that is never reached
    messages=[],
    work=Work("", time.monotonic()),  # noted, but never shown
)


# ---- Compression: forget on purpose, lose nothing ------------------------------------

RESULT_TOKENS = 20_000  # a longer result is offloaded
QUOTE_TOKENS = 4_000  # of a longer request a summary quotes the ends
SHARE_KEPT = 0.1  # the newest part of the window, which stays as it is
SHARE_GROWN = 0.2  # how much of the window must be new before a list is cut again
LONG = {"tool_use": 1_000, "tool_result": 1_000}  # characters that a block may keep
LONG_REFUSED = {"tool_use": 200, "tool_result": 200, "text": 4_000}  # after a refusal
SUM_UP = {
    "role": "user",
    "content": "Sum up, without tools, under these headings: "
    "## Session intent, ## Summary, ## Artifacts, ## Next steps.",
}
FILES = []  # the path of each file of this session; none is used twice
ADVISED = []  # what the person was told of limits that are too low
FOLDER = Path(".agent", f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")  # this session's
SKIP.add(".agent")  # a search enters it only when it is named, as a summary does
try:
    COMPRESS_AT = float(os.environ.get("COMPRESS_AT") or 0.85)
    CONTEXT_WINDOW = int(os.environ.get("CONTEXT_WINDOW") or 0)  # 0: ask the server
    if not 0 < COMPRESS_AT <= 1 or CONTEXT_WINDOW < 0:
        raise ValueError
except ValueError:
    given = [f"{name}={os.environ.get(name)}" for name in ("COMPRESS_AT", "CONTEXT_WINDOW")]
    sys.exit(f"{', '.join(given)}: these must be a share such as 0.85, and a number of tokens.")


@dataclass
class Memory:
    """What compression knows of an agent's list."""

    request: str = ""  # the person's latest request, or a child's prompt
    size: int = 0  # tokens of the list, as the server last counted them
    counted: int = 0  # messages that were in the list then
    history: str = ""  # the path of the file that has everything
    recorded: int = 0  # messages that are in that file
    patience: float = 0  # tokens up to which the list is left alone after a cut


def ask_within_window(messages, agent):
    """ask_model with a list that fits: cut before if it is full, and again if it is refused."""
    take_up(messages, agent)
    asked = asks_to_compress(messages, agent)
    if asked or is_full(messages, agent):
        compress(messages, agent, asked)
    reply = None
    try:
        reply = ask_model(messages, agent)
    except anthropic.APIStatusError as error:
        if not is_too_long(error):
            raise
    if reply is None or reply["stop_reason"] == "model_context_window_exceeded":
        make_room(messages, agent)
        reply = ask_model(messages, agent)
    measure(messages, reply, agent)
    return reply


def compress(messages, agent, asked):
    """Trim, and summarise if that is not enough; the history file has everything first.

    asked: the model asked for a summary, so trimming alone will not do.
    """
    if not record(messages, agent):
        return
    kept = SHARE_KEPT * context_window()
    newest_start = tail_start(messages, kept)
    trimmed = trim(messages[:newest_start], agent, LONG) + messages[newest_start:]
    size = size_after(trimmed, messages, agent)
    if asked or size > full_at() / 2:  # over half, it would soon be full again
        kept = min(kept, estimate(messages) / 4)  # of a short list not all must stay
        start = tail_start(messages, kept)
        summarise(messages, source=messages, start=start, agent=agent)
    else:
        shrink(messages, trimmed, "trimmed", agent)
    have_patience(messages, agent)


def make_room(messages, agent):
    """The server refused the list, so our count is wrong: trim all, sum up the old half."""
    if not record(messages, agent):
        return
    refused = tokens_in(messages, agent)
    trimmed = trim(messages, agent, LONG_REFUSED)
    if trimmed != messages:
        shrink(messages, trimmed, "trimmed", agent)
    if tokens_in(messages, agent) > refused / 2:
        start = tail_start(messages, estimate(messages) / 2)
        if start < 2 and len(messages) > 3:
            # The first reply is most of the list: it goes, and the results of its calls with it.
            start = 3 if holds_results(messages[2]) else 2
        summarise(messages, source=messages[:start], start=start, agent=agent)
    have_patience(messages, agent)


def is_too_long(error):
    """Whether the server refused a request because the list does not fit the window."""
    words = r"prompt is too long|context (size|window|length|limit)"  # also of local servers
    return error.status_code == 413 or re.search(words, explain(error)) is not None


# Step 1: offload.


def offload(output, most=RESULT_TOKENS):
    """A text that is too long goes to a file: head, tail, size and path stay.

    output: a binary file, so that a flood is never in memory.  most: tokens, but never over
    a quarter of the window.
    """
    most = min(most, context_window() // 4)
    size = output.seek(0, os.SEEK_END)
    if size <= 4 * most:  # about four bytes a token
        return head_and_tail(output, size)  # all of it
    try:
        path = new_file("result")
        output.seek(0)
        with open(path, "wb") as file:
            shutil.copyfileobj(output, file)
    except OSError:  # the disk takes nothing: then the ends have to do
        return head_and_tail(output, 4 * most)
    shown = min(1_000, most // 8)  # tokens: a taste, as the file has all
    event = f"[offloaded: {size // 4:,} -> {shown:,} tokens; {path} has all {size:,} bytes]"
    show("notice", event)
    return f"{event}\n{head_and_tail(output, 4 * shown)}"


# Step 2: trim.


def trim(messages, agent, long):
    """A copy of ``messages`` whose long inputs and results are pointers into the history file.

    long: {type of block: characters that it may keep}.  Ids, names and pairs stay, and so do
    the person's words.
    """
    trimmed = json.loads(json.dumps(messages))  # a copy to the bottom
    for message in trimmed:
        for block in blocks_of(message):  # of a string it makes a new one: that stays
            label = block.get("id") or block.get("tool_use_id") or "text"  # as the file has it
            fields = block
            if block["type"] == "tool_use":
                fields = block["input"]  # the long texts of a call are its arguments
            keep = long.get(block["type"], sys.maxsize)
            for name, value in fields.items():
                if isinstance(value, str) and len(value) > keep:
                    where = f"{agent.memory.history} under {label}"
                    fields[name] = f"[{len(value):,} characters in {where}]"
    return trimmed


# Step 3: summarise.


def summarise(messages, source, start, agent):
    """Let a summary take the place of the messages before ``start``.

    source: what the model sums up: the list itself, as that is in the cache, or a part.
    If no summary comes, the list stays as it was, and the person is told.
    """
    if start < 2:
        show("notice", "[not summarised: nothing in the list is old enough]")
        return
    try:
        summary = ask_for_summary(source, messages[:start], agent)
    except (anthropic.APIError, ValueError) as error:
        title = agent.work.title
        show("notice", f"{title} [not summarised, nothing lost: {explain(error)}]".strip())
        return
    first = {"role": "user", "content": summary}
    if record([*messages, first], agent):  # the summary alone is new
        shrink(messages, [first, *messages[start:]], "summarised", agent)


def ask_for_summary(source, replaced, agent):
    """What a summary says in place of the messages ``replaced``.

    The model's words are not trusted with what must stay exact: the harness adds the
    request, the todos and the path.  Raises ValueError if the reply is no use.
    """
    in_words = copy.copy(agent)  # the agent itself stays as it is
    in_words.more = {}  # a child that answers as JSON sums up in words
    reply = ask_model([*source, SUM_UP], in_words)
    agent.work.tokens_read += tokens_of(reply)[0]  # the loop does not see this reply
    text = words_of(reply["content"])
    if reply["stop_reason"] in [*CUT_OFF, "tool_use"] or not text:
        raise ValueError(f"no summary came, but {reply['stop_reason']}")
    if len(text) > len(json.dumps(replaced)):
        raise ValueError("the summary is longer than what it sums up")
    request = offload(io.BytesIO(agent.memory.request.encode()), QUOTE_TOKENS)
    todos = drawn(PLAN.items) if agent is PARENT else "(none)"
    return "\n\n".join([
        text,
        f"## Latest request, word for word\n{request}",
        f"## Todos\n{todos}",
        f"## History\nIn {agent.memory.history} is what is missing here: use grep and read_file. "
        "Go on now; do not ask back.",
    ])


def tail_start(messages, tokens):
    """The index at which the newest ``tokens`` begin: one message at least, no result alone."""
    start = len(messages) - 1
    size = estimate(messages[start:])
    while start > 0:
        size += estimate([messages[start - 1]])
        if size > tokens:
            break
        start -= 1
    if holds_results(messages[start]):
        start -= 1
    return start


def holds_results(message):
    """Whether a message answers calls, so that it cannot stand without the one before."""
    return blocks_of(message)[0]["type"] == "tool_result"


# How full the list is.


@functools.cache  # it is asked once, and the answer kept
def context_window():
    """Tokens that the model can take, by the environment, the Models API, or else 200,000."""
    if CONTEXT_WINDOW:
        return CONTEXT_WINDOW
    window = 0
    faults = (anthropic.APIError, AttributeError, TypeError, ValueError)
    with contextlib.suppress(*faults):  # local servers do not tell, or tell nonsense
        window = int(client.models.retrieve(MODEL, timeout=5).max_input_tokens)
    return window if window >= 1_000 else 200_000


def full_at():
    """The tokens at which a list is full."""
    return COMPRESS_AT * context_window()


def is_full(messages, agent):
    """Whether to compress: it is over the limit, and has grown since it was cut."""
    return tokens_in(messages, agent) > max(full_at(), agent.memory.patience)


def asks_to_compress(messages, agent):
    """Whether the model called ``compact`` in its last reply."""
    if "compact" not in agent.handlers or len(messages) < 2:
        return False
    last_reply = messages[-2]  # if it made calls: the last message has the answers
    return any(block.get("name") == "compact" for block in blocks_of(last_reply))


def estimate(messages):
    """A guess at the tokens in ``messages``: four characters each."""
    return sum(len(json.dumps(message)) for message in messages) // 4


def tokens_in(messages, agent):
    """The size of the list: what the server last counted, and a guess at what came since.

    Only that is looked at: a turn must not cost more as the list grows.
    """
    since = messages[agent.memory.counted :]
    # The reply that follows the counted messages is in size already: measure() added it.
    added = [message for message in since if message["role"] == "user"]
    return agent.memory.size + estimate(added)


def measure(messages, reply, agent):
    """Note the server's count of the list and of the reply that comes into it."""
    read, written = tokens_of(reply)
    agent.memory.size = read + written
    agent.memory.counted = len(messages)
    if agent.memory.size == 0:  # a server that counts nothing
        agent.memory.size = estimate([*messages, reply["content"]])


def size_after(shorter, messages, agent):
    """The size that the list would have as ``shorter``: system prompt and tools remain."""
    overhead = max(tokens_in(messages, agent) - estimate(messages), 0)
    return overhead + estimate(shorter)


def have_patience(messages, agent):
    """Leave the list alone until it has grown by a real share of the window."""
    memory = agent.memory
    size = tokens_in(messages, agent)
    memory.patience = size + SHARE_GROWN * context_window()
    if size > full_at():
        advise(f"still {size:,} tokens, over the limit of {full_at():,.0f}")


def warn_of_small_window():
    """Say it at the start if no compression can help, as the tools alone are too large."""
    overhead = estimate([SYSTEM, TOOLS])
    limit = COMPRESS_AT * (CONTEXT_WINDOW or 200_000)  # without asking the server so early
    if overhead > limit:
        advise(f"the tools alone are {overhead:,} tokens, over the limit of {limit:,.0f}")


def advise(fault):
    """Tell the person what to change, once a session."""
    if not ADVISED:
        ADVISED.append(fault)
        show("notice", f"[{fault}: raise CONTEXT_WINDOW or COMPRESS_AT]")


# What is on disk, and what is in the list.


def take_up(messages, agent):
    """Look at what is new in the list: what is the latest request, and is it too long?"""
    if agent.memory is None:
        agent.memory = Memory()
    if isinstance(messages[-1]["content"], str):  # the person's words, or a child's prompt
        query = io.BytesIO(messages[-1]["content"].encode())
        messages[-1]["content"] = offload(query, context_window())  # a quarter at most stays
        agent.memory.request = messages[-1]["content"]
        # main() may have taken back the words before: then these stand in their place, and
        # are not in the history file yet.
        agent.memory.recorded = min(agent.memory.recorded, len(messages) - 1)


def new_file(kind):
    """The path of a new file of this session, in a folder that git ignores."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER.parent / ".gitignore").write_text("*\n")
    path = FOLDER / f"{len(FILES) + 1:03}-{kind}.txt"
    FILES.append(path)
    return path.as_posix()


def record(messages, agent):
    """Append what is new in ``messages`` to the history file.  Returns whether it is there."""
    memory = agent.memory
    try:
        if not memory.history or not os.path.exists(memory.history):  # or somebody deleted it
            memory.history = new_file("history")
            memory.recorded = 0
        with open(memory.history, "a", encoding="utf-8", newline="") as file:
            for message in messages[memory.recorded:]:
                file.write(as_text(message))
    except OSError as error:
        show("notice", f"[not compressed, as nothing can be written: {explain(error)}]")
        have_patience(messages, agent)
        return False
    memory.recorded = len(messages)
    return True


def as_text(message):
    """A message as plain lines, in which grep and read_file find what it said."""
    lines = [f"role: {message['role']}"]
    for block in blocks_of(message):
        for name, value in block.items():
            if name != "input":
                lines.append(f"{name}: {value}")
        for name, value in block.get("input", {}).items():
            lines.append(f"{name}: {value}")
    return "\n".join(lines) + "\n\n"


def shrink(messages, shorter, what, agent):
    """Make the list the ``shorter`` one, in place, and say what was done."""
    memory = agent.memory
    before = tokens_in(messages, agent)
    memory.size = size_after(shorter, messages, agent)  # while messages is still the old list
    messages[:] = shorter
    memory.counted = len(messages)
    memory.recorded = len(messages)  # the file has it all, and what was cut out too
    event = f"{what}: {before:,} -> {memory.size:,} tokens; {memory.history} has all"
    show("notice", f"{agent.work.title} [{event}]".strip())


def compact():
    """What answers the model; ask_within_window looks for the call."""
    return "It will be compressed before your next message."


add_tool(compact, "Compress this conversation, for example when a part of it is done.", {}, [])


# ---- The terminal --------------------------------------------------------------------

ON_TERMINAL = sys.stdout.isatty()
IN_COLOR = ON_TERMINAL and not os.environ.get("NO_COLOR")
COLORS = {"text": 0, "call": 36, "result": 2, "stop": 2, "notice": 33}  # ANSI codes
CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # characters that would steer the terminal
CLEAR = "\033[K"  # erases the rest of the line
try:
    import readline  # nothing calls it: that it is loaded gives input() editing and history
except ImportError:
    pass  # Windows has none


def show(kind, text):
    """Print ``text`` in the colour of its ``kind``, a key of COLORS.

    "waiting" is for a terminal alone: the next line overwrites it.
    """
    if WORKING and kind != "notice":  # the child's line stands for all that it would print
        kind = "waiting"  # so that the next line overwrites it
        columns = shutil.get_terminal_size().columns
        text = WORKING[-1].work.line()
        room = columns - 1  # a line that wraps could not be overwritten
        if not text.isascii():
            room = columns // 2 - 1  # a character may take two columns, as in Chinese
        text = text[:room]
    text = re.sub(CONTROL, "", text)
    if not text:  # for example a reply that is nothing but calls
        return
    if kind == "waiting":
        if ON_TERMINAL:
            print(text, end=f"{CLEAR}\r", flush=True)
        return
    if IN_COLOR:
        text = f"\033[{COLORS[kind]}m{text}\033[0m"
    if ON_TERMINAL:
        text = f"\r{CLEAR}{text}"  # in place of what was waiting there
    print(text, flush=True)


def words_of(content):
    """The text in a list of content blocks."""
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def blocks_of(message):
    """The content of a message as blocks: a string is short for one text."""
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


def one_line(block, width=100):
    """A content block on one line."""
    keys = ["name", "input", "text", "content"]
    text = " ".join(str(block[key]) for key in keys if key in block)
    return " ".join(text.split())[:width]


def show_messages(messages):
    """The list itself: index, role, types of the blocks, characters of JSON, preview."""
    width = min(100, shutil.get_terminal_size((100, 24)).columns)
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        types = ", ".join(block["type"] for block in blocks)
        preview = " | ".join(one_line(block) for block in blocks)
        size = len(json.dumps(message["content"]))
        row = f"{index:3} {message['role']:9} {types:22.22} {size:7,}  {preview}"
        show("notice", row[:width])


def explain(error):
    """What went wrong, in words that the person or the model can act on."""
    # Without a key or a token, the SDK raises TypeError at the first request.
    if isinstance(error, TypeError) and not (client.api_key or client.auth_token):
        return (
            "No key: put ANTHROPIC_API_KEY into the .env beside the lessons, "
            f"or run there .venv/bin/python tests/offline.py {LESSON}"
        )
    words = getattr(error, "api_message", None) or str(error)  # the server's own, if it said any
    return f"{type(error).__name__}: {words}".strip(": ")


# ---- The session ---------------------------------------------------------------------

try:
    client = anthropic.Anthropic()
except Exception as error:  # for example a server's address that is none
    sys.exit(f"ANTHROPIC_BASE_URL is no use: {error}")


def main():
    """Read what the person types and run the loop on it, until they leave."""
    sys.stdin.reconfigure(errors="replace")  # a character that the terminal does not know
    sys.stdout.reconfigure(errors="replace")
    warn_of_small_window()
    messages = []
    while True:
        query = input(f"{LESSON[:3]} >> ").strip()
        if query in ("", "q", "exit"):
            return
        try:
            if query == "/messages":
                show_messages(messages)
                continue
            messages.append({"role": "user", "content": query})
            agent_loop(messages, PARENT)
        except KeyboardInterrupt:
            show("notice", "[interrupted]")
        except Exception as error:  # costs one line, never the session
            show("notice", " ".join(explain(error).split())[:300])
            is_refused = getattr(error, "status_code", None) in (400, 413)
            if is_refused and isinstance(messages[-1]["content"], str):
                messages.pop()  # the API does not take these words, for example too many


if __name__ == "__main__":
    try:
        with contextlib.suppress(EOFError, KeyboardInterrupt):  # Ctrl-D and Ctrl-C leave
            main()
        print(flush=True)
    except BrokenPipeError:  # who reads our output has left, as in "| head"
        os._exit(1)  # sys.exit would write once more, and fail again
