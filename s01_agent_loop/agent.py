"""An agent is a language model in a loop.  The model asks for tools, the harness runs them and
appends what came out, and the model is called again with all of it.  The turn ends when the
model stops asking.

    person --> messages --> model --> words --> person
                  ^           |
                  |           | tool_use
      tool_result |           v
                  +-------- tools   s01  bash
New: everything
Changed: nothing
"""
import contextlib
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


def agent_loop(messages):
    """Call the model and run its tools until it stops asking.

    messages: ends with the person's words; it grows in place and is valid at every moment.
    """
    while True:
        reply = ask_model(messages)
        calls = add_turn(messages, reply)
        show("text", words_of(reply["content"]))
        if not calls or reply["stop_reason"] in CUT_OFF:
            show("stop", f"[{reply['stop_reason']}]")
            return
        for call, result in calls:
            run_tool(call, result, HANDLERS)


def ask_model(messages):
    """One request.  It holds the whole list: the API remembers nothing in between."""
    show("waiting", "thinking ...")
    reply = client.messages.create(
        model=MODEL,
        max_tokens=16_000,
        messages=messages,
        # The server keeps what it has read; without this each request pays for the whole list.
        cache_control={"type": "ephemeral"},
        system=SYSTEM,
        tools=TOOLS,
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
        output = handler(**call["input"])
        output = output.encode("utf-8", "replace").decode()  # half an emoji becomes "?"
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
            raise type(stop)(f"{stop}\n{head_and_tail(output)}")
        printed = head_and_tail(output)
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
            agent_loop(messages)
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
