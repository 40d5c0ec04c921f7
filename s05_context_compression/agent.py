"""The context window fills up, so the harness forgets on purpose and loses nothing.  Before anything
leaves the list it is on disk.  Results are offloaded as they come, then old ones trimmed, then all is summarised.

    person --> messages --> model --> words --> person
                  ^           |
                  |           | tool_use
      tool_result |           v
                  +-------- tools   s01  bash
                                    s02  read_file, write_file, edit_file, glob, grep
                                    s03  todo, and a reminder in the last tool_result
                                    s04  task: the same loop on another list, its last words are the tool_result
                                    s05  compact; before each request the list is made to fit
New: FOLDER, TOO_LONG, SUM_UP, COMPRESS_AT, CONTEXT_WINDOW, context_window, estimate, new_file, offload, flat, record, boundary, trimmed, create, summarised, compress, ask
Changed: SKIP, TOOLS, HANDLERS, bash, Agent, run_tool, agent_loop, main
"""
import contextlib, functools, io, itertools, json, os, pathlib, re, shutil, subprocess, sys, tempfile, time

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
            raise type(stop)(f"{stop}\n{offload(output)}")
        return offload(output) + (f"\n[exit status {process.returncode}]" if process.returncode else "")


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


# ---- Subagents: the same loop on another list -----------------------------------------------------------

READ = ["read_file", "glob", "grep"]
BASE = ["bash", "write_file", "edit_file", *READ]
CONTRACT = "Only your last message is seen: five lines of conclusion, sources as paths, what you could not verify."
TEXTS = {"type": "array", "items": {"type": "string"}}
REVIEW = {"type": "object", "additionalProperties": False, "required": ["verdict", "findings", "not_verified"],
          "properties": {"verdict": {"enum": ["pass", "fail"]}, "findings": TEXTS, "not_verified": TEXTS}}
AGENT_TYPES = {  # mode "isolated" (the default) for who verifies: starts clean; "fork" for who continues: knows all
    "explore": {"description": "Finds things out.", "tools": READ, "prompt": "Search and read until you can answer."},
    "plan": {"description": "Plans a change.", "tools": READ, "prompt": "Give the steps in order, each with its file."},
    "review": {"description": "Looks at work with fresh eyes and answers as JSON.", "tools": READ,
               "prompt": "Check the work that you are shown; look for what is wrong with it.",
               "answer": {"output_config": {"format": {"type": "json_schema", "schema": REVIEW}}}},
    "code": {"description": "Makes a change.", "tools": BASE, "prompt": "Make the change and run it."},
    "fix": {"description": "Goes on from here, knowing all that you know.", "mode": "fork"},
}
for name, kind in AGENT_TYPES.items():
    if kind.get("mode", "isolated") not in ("isolated", "fork") or not set(kind.get("tools", [])) <= set(BASE):
        raise ValueError(f"agent type {name!r}: the mode must be isolated or fork, the tools of {BASE}; it is {kind}")


class Agent:
    """What a run of the loop has of its own: its request, its handlers, its messages, its accounts.

    title: of the line that stands for a child on the terminal; the parent has none and prints what it says.
    turns: how many requests a run may take.
    """

    def __init__(self, request, handlers, title="", turns=sys.maxsize):
        self.request, self.handlers, self.title, self.turns, self.messages = request, handlers, title, turns, []
        self.said, self.status, self.started = "(no summary)", "failed", time.monotonic()
        self.tools = self.read = self.output = self.returned = 0

    def meter(self, reply):
        """Count the tokens of a request and its reply, as the server's ``usage`` gives them."""
        usage = reply.to_dict(warnings=False).get("usage") or {}
        self.output = usage.get("output_tokens") or 0
        self.read += (read := sum(count or 0 for name, count in usage.items() if name.endswith("input_tokens")))
        self.size, self.counted = read + self.output, len(self.messages)

    def tokens(self, messages):
        """The size of the list: what the server counted at the last reply, and an estimate of what came since."""
        return self.size + estimate(new for new in messages[self.counted:] if new["role"] == "user" or not self.size)

    def show(self, kind, text):
        """Print it, or for a child: note it and rewrite the child's line."""
        if not self.title:
            return show(kind, text)
        self.tools += kind == "call"
        if kind == "text":
            self.said, self.returned = text, self.output
        if kind == "stop":
            self.status = "done" if text == "[end_turn]" else text
        if sys.stdout.isatty():
            line = filter(str.isprintable, self.line("working"))
            print("".join(line)[:shutil.get_terminal_size().columns - 1], end="\033[K\r", flush=True)

    def line(self, status):
        return f"{self.title}: {status}, {self.tools} tools, {time.monotonic() - self.started:.1f} s"


def task(prompt=None, agent_type=None, description=""):
    """Run a child on ``prompt`` and return its last words; nothing else of it enters the parent's list.

    Raises ValueError for an unknown type or an empty prompt, and whatever the child's requests raise.
    """
    if agent_type not in list(AGENT_TYPES):
        raise ValueError(f"unknown agent_type {agent_type!r}; the types are: {', '.join(AGENT_TYPES)}")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError("prompt must be a text that says what to do")
    kind = AGENT_TYPES[agent_type]
    if kind.get("mode") == "fork":  # up to the turn that called this task, and with the parent's tools for its cache
        request, messages = REQUEST, PARENT.messages[:-2]
        handlers = dict(HANDLERS, todo=board, task=lambda **_: "you are a subagent and cannot delegate; do it yourself")
    else:
        request, messages = {**REQUEST, "system": f"{kind['prompt']} {CONTRACT}", **kind.get("answer", {}),
                             "tools": [schema for schema in TOOLS if schema["name"] in kind["tools"]]}, []
        handlers = {name: HANDLERS[name] for name in kind["tools"]}
    child = Agent(request, handlers, " ".join(f"[{agent_type}] {description}".split())[:60], turns=30)
    try:
        agent_loop([*messages, {"role": "user", "content": prompt}], child)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None  # without what the child's command printed: that stays with the child
    finally:
        show("notice", f"{child.line(child.status)}, read {child.read:,} tokens, returned {child.returned:,}")
    answer = clip(io.StringIO(child.said), 20_000)
    return answer if child.status == "done" else f"{answer}\n{child.status}"


TOOLS += [tool("task", "Have a subagent do a piece of work; it knows only the prompt. Types:\n" + "\n".join(
    f"- {name}: {kind['description']}" for name, kind in AGENT_TYPES.items()),
    prompt="string", agent_type="string", description="string?")]
TOOLS[-1]["input_schema"]["properties"]["agent_type"]["enum"] = list(AGENT_TYPES)
HANDLERS.update(task=task)


# ---- Compression: forget on purpose, lose nothing -------------------------------------------------------

SKIP.add(".agent")
FOLDER = pathlib.Path(".agent", f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")  # this session's
TOO_LONG = re.compile("prompt is too long|context (size|window|length|limit)")  # the API's words, and local servers'
SUM_UP = {"role": "user", "content": "Sum up: ## Session intent, ## Summary, ## Artifacts, ## Next steps. No tools."}
COMPRESS_AT, CONTEXT_WINDOW = os.environ.get("COMPRESS_AT") or "0.85", os.environ.get("CONTEXT_WINDOW") or "0"
if not re.fullmatch(r"0?\.\d*[1-9]\d*|1(\.0*)?", COMPRESS_AT) or not re.fullmatch("[0-9]{1,12}", CONTEXT_WINDOW):
    sys.exit(f"COMPRESS_AT={COMPRESS_AT} must be a share up to 1, CONTEXT_WINDOW={CONTEXT_WINDOW} a number of tokens.")
COMPRESS_AT, CONTEXT_WINDOW = float(COMPRESS_AT), int(CONTEXT_WINDOW)


@functools.cache
def context_window():
    """Tokens that the model can take: what the environment says, else the Models API, else 200,000."""
    with contextlib.suppress(Exception):  # local servers have no Models API
        return CONTEXT_WINDOW or int(client.models.retrieve(MODEL, timeout=5).max_input_tokens)
    return 200_000


def estimate(messages):
    """A guess at the tokens in ``messages``: four characters each."""
    return sum(len(json.dumps(message)) for message in messages) // 4


def new_file(kind, numbers=itertools.count(1)):  # subtle: one counter for all calls
    """The path of a new file of this session, in a folder that git ignores."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    FOLDER.with_name(".gitignore").write_text("*\n")
    return (FOLDER / f"{next(numbers):03}-{kind}.txt").as_posix()


def offload(text, limit=80_000):
    """All of ``text``, or its head, tail and size, and the path of the file that keeps it.

    text: a file.  limit: in bytes, about four a token; never over a quarter of the window.
    """
    limit = min(limit, context_window())
    text.seek(0)
    if len((said := text.read(limit + 1)).encode()) <= limit:
        return said
    ends, note = min(4_000, limit // 8), ""
    with contextlib.suppress(OSError), open(new_file("result"), "w", encoding="utf-8", newline="") as file:
        file.write(said)
        shutil.copyfileobj(text, file)
        note = f"[offloaded: {file.tell() // 4:,} -> {ends // 4:,} tokens; {file.name} has all {file.tell():,} bytes]\n"
        show("notice", note.strip())
    return note + clip(text, ends)  # the ends alone if the disk takes nothing


def flat(key, value):
    """A message as lines of plain text, which grep and read_file can handle."""
    value = dict(enumerate(value)) if isinstance(value, list) else value
    return "".join(itertools.starmap(flat, value.items())) if isinstance(value, dict) else f"{key}: {value}\n"


def record(messages, agent):
    """Append ``messages`` to the agent's history file."""
    with open(agent.history, "a", encoding="utf-8", newline="") as file:
        file.writelines(flat("", message) + "\n" for message in messages)
    agent.recorded += len(messages)


def boundary(messages, tokens):
    """The index at which the newest ``tokens`` begin: the newest message at least, and no result without its call."""
    sizes = itertools.accumulate(estimate([message]) for message in reversed(messages))
    start = len(messages) - max(1, sum(size <= tokens for size in sizes))
    return start - 1 if "tool_use_id" in messages[start]["content"][0] else start  # of a text, [0] is a letter


def trimmed(messages, agent, hard):
    """A copy of ``messages`` in which long inputs and results, if ``hard`` also words, point into the history file."""
    most = dict(tool_use=200, tool_result=200, text=4_000) if hard else dict(tool_use=1_000, tool_result=1_000)
    copy = json.loads(json.dumps(messages))
    for block in [block for message in copy if isinstance(message["content"], list) for block in message["content"]]:
        fields, call = block.get("input", block), block.get("id", block.get("tool_use_id", "text"))
        for key, value in fields.items():
            if isinstance(value, str) and len(value) > most.get(block["type"], float("inf")):
                fields[key] = f"[{len(value):,} characters in {agent.history} under {call}]"
    return copy


def create(messages, request):
    """One request.  Raises OverflowError if the messages are too long for the window, or what the request raises."""
    try:
        reply = client.messages.create(messages=messages, **request)
    except anthropic.APIStatusError as error:
        raise OverflowError(explain(error)) if error.status_code == 413 or TOO_LONG.search(str(error)) else error
    if reply.stop_reason == "model_context_window_exceeded":
        raise OverflowError(reply.stop_reason)
    return reply


def summarised(messages, agent, tokens):
    """One message that sums up ``messages``, and the newest ``tokens`` of them.

    Raises ValueError if the model writes no summary, and whatever the request raises.
    """
    request = {key: value for key, value in agent.request.items() if key != "output_config"}
    start = boundary(messages, tokens)
    try:
        reply = create([*messages, SUM_UP], request)  # the whole list, for the cache holds it
    except OverflowError:
        start = boundary(messages, estimate(messages) // 2)
        reply = create([*messages[:start], SUM_UP], request)
    text = "\n".join(block["text"] for block in plain(reply) if block["type"] == "text")
    if reply.stop_reason != "end_turn" or not text or not start:
        raise ValueError(f"no summary came: the reply ended with {reply.stop_reason}")
    agent.meter(reply)
    goal, todos = offload(io.StringIO(agent.goal), 16_000), board(PLAN["items"]) if agent is PARENT else "(none)"
    text += (f"\n\n## Latest request, word for word\n{goal}\n\n## Todos\n{todos}\n\n## History\n"
             f"In {agent.history} is what is missing here: use grep and read_file. Go on now; do not ask back.")
    record([{"role": "user", "content": text}], agent)
    return [{"role": "user", "content": text}, *messages[start:]]


def compress(messages, agent, why):
    """Trim, and summarise if that is not enough.  The history file has it all first.

    If no summary comes, the list stays as it was; if the server had refused it, trimmed to the last message.

    why: "limit", "asked" (the model called compact) or "overflow" (the server refused the list).
    """
    before, length = agent.tokens(messages), estimate(messages)
    keep, overhead = min(context_window() / 10, length / 4), max(before - length, 0)  # overhead: system prompt, tools
    if why == "limit" and boundary(messages, keep) < 2:
        return
    try:
        if not agent.history or not os.path.exists(agent.history):  # none yet, or deleted on the way
            agent.history, agent.recorded = new_file("history"), 0
        record(messages[agent.recorded:], agent)
        start = len(messages) if why == "overflow" else boundary(messages, context_window() / 10)
        what, new = "trimmed", trimmed(messages[:start], agent, why == "overflow") + messages[start:]
        enough = before / 2 if why == "overflow" else 0.5 * COMPRESS_AT * context_window()
        if why == "overflow":  # kept even without a summary: as it was, it would be refused again
            messages[:] = new
        if why == "asked" or overhead + estimate(new) > enough:
            what, new = "summarised", summarised(messages, agent, keep)
        messages[:], agent.size, agent.counted, agent.recorded = new, overhead + estimate(new), len(new), len(new)
        show("notice", f"{agent.title} [{what}: {before:,} -> {agent.size:,} tokens; {agent.history} has all]".strip())
    except Exception as error:
        show("notice", f"{agent.title} [not summarised, nothing lost: {explain(error)}]".strip())


def ask(messages, agent):
    """The reply to ``messages``, compressed first if need be, and once more if the server finds them too long."""
    asked = "compact" in [block["name"] for turn in messages[-2:-1] for block in turn["content"] if "name" in block]
    if (asked and "compact" in agent.handlers) or agent.tokens(messages) > COMPRESS_AT * context_window():
        compress(messages, agent, "asked" if asked else "limit")
    try:
        return create(messages, agent.request)
    except OverflowError:
        compress(messages, agent, "overflow")
    return create(messages, agent.request)


TOOLS += [tool("compact", "Compress this conversation, for example when a part of the work is done.")]
HANDLERS.update(compact=lambda: "It will be compressed before your next message.")


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
        text = offload(io.StringIO(text.encode("utf-8", "replace").decode()))
        result.update(content=text or "(no output)", is_error=False)
    except KeyboardInterrupt as interrupt:
        result["content"] += str(interrupt)
        raise
    except Exception as error:  # whatever a tool trips over, the model is told and the session goes on
        result["content"] = f"Error: {explain(error)}"


PARENT = Agent(REQUEST, HANDLERS)


def agent_loop(messages, agent=PARENT):
    """Call the model and run its tools until it stops asking.

    messages: a valid history that ends with the person's words.  It grows in place and is valid at every moment:
    a call goes in together with an answer that says it did not run, and running it improves the answer.
    """
    if agent.messages is not messages:
        agent.size, agent.counted, agent.recorded, agent.history = 0, 0, 0, None
    agent.messages, agent.goal, show = messages, messages[-1]["content"], agent.show
    agent.recorded = min(agent.recorded, len(messages) - 1)  # words before these may have been taken back
    for _ in range(agent.turns):
        reply = ask(messages, agent)
        agent.meter(reply)
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
            run_tool(call, result, agent.handlers)
            show("result", gist(result))
        if agent is PARENT:
            remind(calls, results)
    show("stop", f"[stopped after {agent.turns} turns]")


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
                messages.append({"role": "user", "content": offload(io.StringIO(query), 10**9)})
                agent_loop(messages)
        except (KeyboardInterrupt, Exception) as error:  # costs one line, never the session
            show("notice", " ".join(explain(error).split())[:300])
            if re.search("too long|context (size|length|limit)", str(error)) and messages[-1]["content"] == query:
                messages.pop()  # with these words the list is too long: take them back


if __name__ == "__main__":
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        main()
    print(flush=True)
