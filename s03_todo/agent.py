"""Over many steps a model loses its thread, so it keeps its own plan: todo writes the whole list each time.
The person sees the list.  When the model forgets it, the harness reminds it, inside the last tool_result.

    person --> messages --> model --> words --> person
                  ^           |
                  |           | tool_use
      tool_result |           v
                  +-------- tools   s01  bash
                                    s02  read_file, write_file, edit_file, glob, grep
                                    s03  todo, and a reminder in the last tool_result
New: PLAN, MARKS, board, todo, remind
Changed: SYSTEM, TOOLS, HANDLERS, agent_loop
"""
import contextlib, itertools, json, os, pathlib, re, shutil, subprocess, sys, tempfile, time

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


# ---- Tools for files: a tool is a schema and a handler --------------------------------------------------

SKIP, CAP = {".git"}, 200  # folders that a search enters only when asked by name; lines that it returns


def safe_path(path):
    """``path`` made absolute, links followed.  Raises PermissionError outside the working directory, or for a pipe."""
    full, root = pathlib.Path(os.path.realpath(path)), pathlib.Path(os.path.realpath("."))
    if not full.is_relative_to(root):
        raise PermissionError(f"{path} is outside the working directory")
    if full.exists() and not full.is_file() and not full.is_dir():  # opening a pipe could wait for ever
        raise PermissionError(f"{path} is neither a file nor a folder")
    return full


def lines(path):
    """The lines of a file as they are, numbered from 1; one over 10,000 characters counts as several."""
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        yield from enumerate(iter(lambda: file.readline(10_000), ""), 1)


def read_file(path, offset=1, limit=2000):
    """A file's text from line ``offset`` on: at most ``limit`` lines and LIMIT characters, then how to go on."""
    first, end, text, number = int(offset), int(offset) + int(limit), "", 0
    if not 1 <= first < end:
        raise ValueError("offset and limit must be 1 or more")
    for number, line in lines(safe_path(path)):
        if number >= end or len(text) + len(line) > LIMIT:
            return f"{text}\n[there is more: go on with offset={number}]"
        text += line if number >= first else ""
    if first > max(number, 1):
        raise ValueError(f"{path} ends at line {number}")
    return text


def write_file(path, content):
    """Write ``content`` as it is, in UTF-8, making folders on the way."""
    target = safe_path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content, encoding="utf-8", newline="")
    return f"wrote {len(content):,} characters to {path}"


def edit_file(path, old_text, new_text):
    """Replace the one occurrence of ``old_text``; line endings, and bytes that are not UTF-8, stay as they are."""
    target = safe_path(path)
    text = target.read_bytes().decode("utf-8", "surrogateescape")
    if text.count("\r\n") * 2 > text.count("\n"):  # models write \n, this file ends its lines with \r\n
        old_text, new_text = (re.sub("\r?\n", "\r\n", part) for part in (old_text, new_text))
    found = len(re.findall(f"(?={re.escape(old_text)})", text)) if old_text else 0  # (?=...) also counts overlaps
    if found != 1:
        raise ValueError(f"old_text must occur exactly once in {path}, and it must not be empty; found {found}")
    target.write_bytes(text.replace(old_text, new_text).encode("utf-8", "surrogateescape"))
    return f"edited {path}"


def search(folder, pattern, asked):
    """What matches ``pattern`` under ``folder``, sorted, without the folders in SKIP that ``asked`` does not name."""
    root, skip = safe_path("."), SKIP - set(pathlib.PurePath(asked).parts)
    inside = [path for path in folder.glob(pattern) if pathlib.Path(os.path.realpath(path)).is_relative_to(root)]
    return sorted(path for path in (path.relative_to(root) for path in inside) if not skip & set(path.parts))


def capped(found):
    """The strings in ``found``, a line each: the first CAP of them, and a notice if there are more."""
    first = list(itertools.islice(found, CAP + 1))
    notice = [f"[only the first {CAP} are shown: ask for less]"] if len(first) > CAP else []
    return "\n".join(first[:CAP] + notice) or "(nothing found)"


def glob(pattern):
    """The paths that match ``pattern``; a folder ends in a slash."""
    return capped(path.as_posix() + "/" * path.is_dir() for path in search(safe_path("."), pattern, pattern))


def grep(pattern, path="."):
    """The lines that match a regular expression, in a file or in all files under a folder, with path and number."""
    expression, where = re.compile(pattern), safe_path(path)
    if not where.exists():
        raise FileNotFoundError(f"there is no {path}")
    files = [pathlib.Path(path)] if where.is_file() else [
        file for file in search(where, "**/*", path) if file.is_file() and os.access(file, os.R_OK)]

    def hits():
        for file in files:
            with open(file, "rb") as start:
                if b"\0" in start.read(1024):  # binary
                    continue
            for number, line in lines(file):
                if match := expression.search(line):
                    yield f"{file.as_posix()}:{number}: {line[max(match.start() - 100, 0):][:300].strip()}"

    return capped(hits())


def tool(name, description, /, **kinds):
    """A tool's schema.  kinds: the JSON type of each argument, with a "?" if it may be left out."""
    return {"name": name, "description": description, "input_schema": {
        "type": "object", "properties": {key: {"type": kind.rstrip("?")} for key, kind in kinds.items()},
        "required": [key for key, kind in kinds.items() if not kind.endswith("?")]}}


TOOLS += [
    tool("read_file", "Read limit lines from line offset on.", path="string", offset="integer?", limit="integer?"),
    tool("write_file", "Write a whole text file.", path="string", content="string"),
    tool("edit_file", "Replace the one occurrence of old_text.", path="string", old_text="string", new_text="string"),
    tool("glob", "List the paths that match, such as **/*.py.", pattern="string"),
    tool("grep", "Find lines that match a regular expression.", pattern="string", path="string?"),
]
HANDLERS.update(read_file=read_file, write_file=write_file, edit_file=edit_file, glob=glob, grep=grep)


# ---- The plan: the model keeps it, the harness reminds it -----------------------------------------------

PLAN = {"items": [], "rounds": 0}  # the list, and the rounds of tools since the model last wrote it
MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}
SYSTEM += " Work of several steps: keep a list with todo, one step in progress at a time, and finish every step."


def board(items):
    """The list drawn as checkboxes with a count.  Raises ValueError in words that tell the model what to mend."""
    if not isinstance(items, list) or len(items) > 20:
        raise ValueError("items must be a list of at most 20")
    for item in items:
        text, status = (item.get("text"), item.get("status")) if isinstance(item, dict) else ("", "")
        if not isinstance(text, str) or not text.strip() or status not in list(MARKS):
            raise ValueError(f"an item needs a text and a status, one of {', '.join(MARKS)}; got {str(item)[:200]}")
    if sum(item["status"] == "in_progress" for item in items) > 1:
        raise ValueError("only one item can be in_progress")
    done = sum(item["status"] == "completed" for item in items)
    rows = [f"{MARKS[item['status']]} {item['text']}" for item in items]
    return "\n".join([*rows, f"({done}/{len(items)} completed)"])


def todo(items):
    """Replace the whole list; a bad one raises ValueError, and the old list stands."""
    show("text", board(items))
    PLAN["items"] = items
    return board(items)


def remind(calls, results):
    """After 3 rounds of tools without a todo, put a reminder into the last result while an item is open."""
    written = any(call["name"] == "todo" and not result["is_error"] for call, result in zip(calls, results))
    PLAN["rounds"] = 0 if written else PLAN["rounds"] + 1
    if PLAN["rounds"] >= 3 and any(item["status"] != "completed" for item in PLAN["items"]):
        results[-1]["content"] += "\n<reminder>Your todo list has open items: bring it up to date.</reminder>"


TOOLS += [{"name": "todo", "description": "Write your list of steps, the whole list each time.", "input_schema": {
    "type": "object", "required": ["items"], "properties": {"items": {"type": "array", "items": {
        "type": "object", "required": ["text", "status"], "properties": {
            "text": {"type": "string"}, "status": {"type": "string", "enum": list(MARKS)}}}}}}}]
HANDLERS.update(todo=todo)


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
        remind(calls, results)


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
