"""An agent is a language model in a loop: it asks for tools, the harness runs them and appends what came out.
Then the model is called again, with all of it.  The turn ends when the model stops asking.

    person --> messages --> model --> words --> person
                  ^           |
                  |           | tool_use
      tool_result |           v
                  +-------- tools   s01  bash
New: everything
Changed: nothing
"""
import contextlib, json, os, pathlib, re, shutil, subprocess, sys, tempfile, time

# What ends the script says so in one line, also Ctrl-C while the SDK loads; a pipe's reader that left needs no words.
sys.excepthook = lambda kind, error, trace: os._exit(kind is BrokenPipeError or print(
    f"{kind.__name__}: {error} (line {trace.tb_lineno})", file=sys.stderr) or 1)

import anthropic, dotenv

with contextlib.suppress(ImportError):  # Windows has none
    import readline  # nothing calls it: that it is loaded gives input() line editing and history

dotenv.load_dotenv(override=True)  # the .env beside the lessons wins over what the shell exports
LESSON = pathlib.Path(__file__).resolve().parent.name
MODEL = os.environ.get("MODEL") or "claude-sonnet-5-5"
SYSTEM = f"You are a coding agent in {os.getcwd()!r}. Do what you are asked with your tools; act rather than explain."
client = anthropic.Anthropic()


# ---- The terminal: what the person sees -----------------------------------------------------------------

PAINT = "\033[{}m{}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else "{1}"
STYLE = {"text": 0, "call": 36, "result": 2, "stop": 2, "notice": 33}  # ANSI codes


def show(kind, text):
    """Print ``text`` in the style of its ``kind``, a key of STYLE; no file and no model steers the terminal."""
    print(PAINT.format(STYLE[kind], re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)), flush=True)


def gist(block, width=100):
    """One line about a content block."""
    return " ".join(" ".join(str(block.get(key, "")) for key in ("name", "input", "text", "content")).split())[:width]


def show_messages(messages):
    """The microscope, the same in every lesson: index, role, block types, characters of JSON, preview."""
    for index, (role, content) in enumerate((message["role"], message["content"]) for message in messages):
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        types, preview = ", ".join(block["type"] for block in blocks), " | ".join(gist(block, 60) for block in blocks)
        show("notice", f"{index:3} {role:9} {types:22} {len(json.dumps(content)):7,}  {preview:.60}")


def explain(error):
    """What went wrong, in words that the person or the model can act on."""
    if isinstance(error, TypeError) and "resolve authentication" in str(error):  # the SDK has found no key
        return f"No key: put ANTHROPIC_API_KEY into .env, or run .venv/bin/python tests/offline.py {LESSON}"
    return f"{type(error).__name__}: {getattr(error, 'api_message', None) or error}".rstrip(": ")


# ---- Tools: what the model can do -----------------------------------------------------------------------

TIMEOUT, MAX_OUTPUT, LIMIT = 120, 100_000_000, 50_000  # seconds to run, bytes to print, characters in a result
KILL = "(kill -9 -{0}; pkill -9 -s {0}) 2>&-" if os.name == "posix" else "taskkill /F /T /PID {0} >nul"
# Held back: writing to a disk and, where a command begins, mkfs, shutdown and the like, and rm -r of / or the home.
DENIED = re.compile(r"""(?mx) (>\|?|\bof=)[ ]*/dev/([shv]d[a-z]|xvd[a-z]|(nvme|mmcblk|disk)\d\w*)\d*(?!\w)
    | (^|[;&|({`])[ \t]*((sudo|env|nohup|time|then|do|-\S+|\w+=\S*)\s+)*(/\S*/)?((mkfs\S*|shutdown|reboot|halt|poweroff)
    | rm\s(?=.*-(\w*[rR]|-recursive))([^;&|\n]*\s)?(/|~|\$HOME|\${HOME})[/.*]*)(?=[\s;&|)`]|$)""")


def denied(command):
    """Whether the seat belt holds ``command`` back.  A quoted phrase is data: ``echo "rm -rf /"`` passes."""
    return DENIED.search(re.sub(r"""(?s)(["'])(?:([\w/~${}*.-]+)|.*?)\1""", r"\2", command)) is not None


def clip(text, limit):
    """All of ``text``, or its head and tail around a line that says how much is missing.

    text: a file, so that a flood is never in memory.  limit: characters to keep.
    """
    text.seek(0)
    head, tail, rest = text.read(limit // 2), "", 0
    while piece := text.read(limit):
        tail, rest = (tail + piece)[-(limit // 2):], rest + len(piece)
    return head + (f"\n[... {rest - len(tail):,} characters not shown ...]\n" if rest > len(tail) else "") + tail


def bash(command):
    """What ``command`` printed, and its exit status if that is not 0.

    It prints into a file, not into a pipe: a background child that keeps it open does not hold the call.
    Raises PermissionError for a command on the deny-list; TimeoutError at a limit and KeyboardInterrupt on
    Ctrl-C, both with what it printed so far.
    """
    if denied(command):
        raise PermissionError("this command could destroy the machine; it was not run")
    deadline = time.monotonic() + TIMEOUT
    # os.defpath is where POSIX systems keep bash; on Windows there is none in it, and the system's own shell is taken.
    with (tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace", newline="") as output,
          subprocess.Popen(command, shell=True, executable=shutil.which("bash", path=os.defpath), stdout=output,
                           stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True) as process):
        try:
            while process.poll() is None:
                time.sleep(0.01)
                if time.monotonic() > deadline or os.fstat(output.fileno()).st_size > MAX_OUTPUT:
                    raise TimeoutError(f"killed: over {TIMEOUT} s or over {MAX_OUTPUT:,} bytes. It printed:")
        except (KeyboardInterrupt, TimeoutError) as stop:
            # In a session of its own, where a second Ctrl-C cannot stop the killing.
            subprocess.Popen(KILL.format(process.pid), shell=True, start_new_session=True).wait()
            raise type(stop)(f"{stop}\n{clip(output, LIMIT)}")
        return clip(output, LIMIT) + (f"\n[exit status {process.returncode}]" if process.returncode else "")


TOOLS = [{"name": "bash", "description": "Run a shell command and see what it prints.", "input_schema": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}]
HANDLERS = {"bash": bash}


# ---- The loop -------------------------------------------------------------------------------------------

# Without cache_control each request would pay for the whole history again.
REQUEST = dict(model=MODEL, max_tokens=16_000, system=SYSTEM, tools=TOOLS, cache_control={"type": "ephemeral"})


def plain(reply):
    """The content of ``reply`` as plain JSON, without what the API would refuse to take back."""
    text = json.dumps(reply.to_dict(warnings=False)["content"], ensure_ascii=False).encode("utf-8", "replace")
    blocks = [block for block in json.loads(text) if block["type"] != "text" or block["text"].strip()]
    return blocks if any(block["type"] in ("text", "tool_use") for block in blocks) else []  # cut off while thinking


def run_tool(call, result, handlers):
    """Run one call and put what came of it into ``result``, whatever happens."""
    result["content"] = "Interrupted while it ran: it may have had effects."
    try:
        if call["name"] not in handlers:
            raise ValueError(f"there is no tool {call['name']!r}; the tools are: {', '.join(handlers)}")
        # A null argument counts as left out.
        text = handlers[call["name"]](**{name: value for name, value in call["input"].items() if value is not None})
        result.update(content=text.encode("utf-8", "replace").decode() or "(no output)", is_error=False)
    except KeyboardInterrupt as interrupt:
        result["content"] += str(interrupt)
        raise
    except Exception as error:  # whatever a tool trips over, the model is told and the session goes on
        result["content"] = f"Error: {explain(error)}"


def agent_loop(messages):
    """Call the model and run its tools until it stops asking.

    messages: a valid history that ends with the person's words.  It grows in place and is valid at every moment:
    a call goes in together with an answer that says it did not run, and running it improves the answer.
    """
    while True:
        reply = client.messages.create(messages=messages, **REQUEST)
        content, not_run = plain(reply), f"Not run: the turn ended first ({reply.stop_reason})."
        calls = [block for block in content if block["type"] == "tool_use"]
        results = [dict(type="tool_result", tool_use_id=call["id"], content=not_run, is_error=True) for call in calls]
        # Both turns in one statement, so that nothing can come between them; the API refuses an empty one.
        messages += [dict(role=who, content=turn) for who, turn in (("assistant", content), ("user", results)) if turn]
        if words := "\n".join(block["text"] for block in content if block["type"] == "text"):
            show("text", words)
        if reply.stop_reason != "tool_use" or not calls:
            return show("stop", f"[{reply.stop_reason}]")
        for call, result in zip(calls, results):
            show("call", gist(call))
            run_tool(call, result, HANDLERS)
            show("result", gist(result))


# ---- The session ----------------------------------------------------------------------------------------

def main():
    """Read what the person types and run the loop on it, until they leave."""
    for stream in (sys.stdin, sys.stdout):  # a character that the terminal does not know is no crash
        stream.reconfigure(errors="replace")
    messages = []
    while (query := input(f"{LESSON[:3]} >> ").strip()) not in ("", "q", "exit"):
        try:
            if query == "/messages":
                show_messages(messages)
            else:
                messages.append({"role": "user", "content": query})
                agent_loop(messages)
        except (KeyboardInterrupt, Exception) as error:  # costs one line, never the session
            show("notice", " ".join(explain(error).split())[:300])
            if re.search("too long|context (size|length|limit)", str(error)) and messages[-1]["content"] == query:
                messages.pop()  # with these words the list is too long: take them back


if __name__ == "__main__":
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        main()
    print(flush=True)
