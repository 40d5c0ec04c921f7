"""A fake Messages API on the loopback interface, for the real SDK to talk to.

It plays a script of replies, keeps every request, and refuses what the API refuses, with its status and its words:

    with FakeAPI([calls(("bash", {"command": "ls"})), says("Done.")]) as api:
        client = anthropic.Anthropic(base_url=api.url, api_key="any")
        ...
    assert not api.refused and len(api.requests) == 2

In reading order: what a script is made of, what the API refuses, what a prompt costs, the server.
"""

import hashlib
import json
import re
import sys
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import chain, count, groupby, takewhile
from socketserver import ThreadingTCPServer
from urllib.parse import unquote, urlsplit

# ---- What a script is made of ----------------------------------------------------------------------------------------


def reply(content, stop_reason="end_turn"):
    """A reply of these content blocks, sent as they are, so a block may be as malformed as a model makes it.

    Only the id of a `tool_use` is looked at: one that has none is given one, and `"id": None` sends the call without.
    """
    return {"content": content, "stop_reason": stop_reason}


def says(*texts):
    """A reply of text blocks that ends the turn."""
    return reply([{"type": "text", "text": text} for text in texts])


def calls(*blocks, text=None):
    """A reply that calls tools, each block a (name, input) pair, after `text` if there is any."""
    words = says(text)["content"] if text else []
    return reply(words + [{"type": "tool_use", "name": name, "input": args} for name, args in blocks], "tool_use")


@dataclass
class Status:
    """An answer with this HTTP status and the API's error body; the message is the usual one unless given."""

    code: int
    message: str | None = None
    headers: dict = field(default_factory=dict)


class Cut:
    """No answer: the connection closes."""


@dataclass
class Wait:
    """The item `then`, once `event` is set or the server closes. `arrived` is set when the request is here."""

    event: threading.Event
    then: object
    arrived: threading.Event = field(default_factory=threading.Event)


@dataclass
class Slow:
    """The item `then`, after so many seconds, or at once when the server closes."""

    seconds: float
    then: object


THE_END = says("(the script has ended)")

# Types: https://platform.claude.com/docs/en/api/errors
ERRORS = {
    400: ("invalid_request_error", "Error"),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "Not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    529: ("overloaded_error", "Overloaded"),
}

# ---- What the API refuses --------------------------------------------------------------------------------------------
# A rule is a generator of complaints, and only the first complaint of all is asked for. So what stands below a `yield`
# sees only requests that passed it, and each rule relies on all before it.

KINDS = {str: "a valid string", int: "a valid integer", list: "a valid list", dict: "an object",
         (str, list): "a valid string or list"}
REQUIRED = {"model": str, "max_tokens": int, "messages": list}
OPTIONAL = {"system": (str, list), "tools": list, "tool_choice": dict}
SAMPLING = ("temperature", "top_p", "top_k")
TOOL_NAME = "^[a-zA-Z0-9_-]{1,128}$"
CALL_ID = "^[a-zA-Z0-9_-]+$"
LONGEST_CALLED_NAME = 200  # longer than a tool's own name may be

# type: (the fields it must have, those it may have, where it may stand)
BLOCKS = {
    "text": ({"text": str}, ("citations",), ("user", "assistant", "tool_result", "system")),
    "image": ({"source": dict}, ("transformations",), ("user", "tool_result")),
    "document": ({"source": dict}, ("citations", "context", "title"), ("user", "tool_result")),
    "tool_use": ({"id": str, "name": str, "input": dict}, ("caller", "toolset_name"), ("assistant",)),
    "tool_result": ({"tool_use_id": str}, ("content", "is_error", "toolset_name"), ("user",)),
    "thinking": ({"thinking": str, "signature": str}, (), ("assistant",)),
    "redacted_thinking": ({"data": str}, (), ("assistant",)),
}
THINKING = ("thinking", "redacted_thinking")


def refusal(request, window):
    """Why the API refuses a request (a parsed body), in its words; None if it does not. window: in tokens."""
    rules = (bad_fields, bad_tools, bad_contents, bad_turns, bad_pairs)
    complaints = chain.from_iterable(rule(request) for rule in rules)
    return next(chain(complaints, too_long(request, window)), None)


def fields(where, value, required, optional=None):
    """Complain of a field that is missing, of the wrong type or, if there is a list of the others, unknown."""
    if not isinstance(value, dict):
        yield f"{where or 'body'}: Input should be an object"
    dot = where and where + "."
    for name, kind in required.items():
        if name not in value:
            yield f"{dot}{name}: Field required"
        if not isinstance(value[name], kind):
            yield f"{dot}{name}: Input should be {KINDS[kind]}"
    if optional is not None:
        known = {*required, *optional}
        yield from (f"{dot}{name}: Extra inputs are not permitted" for name in value if name not in known)


def bad_fields(request):
    yield from fields("", request, REQUIRED)
    yield from fields("", request, {name: kind for name, kind in OPTIONAL.items() if name in request})
    yield from (f"`{name}` is deprecated for this model." for name in SAMPLING if name in request)
    if request["max_tokens"] < 1:
        yield "max_tokens: Input should be greater than or equal to 1"


def bad_tools(request):
    names = set()
    for n, tool in enumerate(request.get("tools", [])):
        where = f"tools.{n}.custom"
        yield from fields(where, tool, {"name": str, "input_schema": dict})
        yield from fields(f"{where}.input_schema", tool["input_schema"], {"type": str})
        if tool["input_schema"]["type"] != "object":
            yield f"{where}.input_schema.type: Input should be 'object'"
        if not re.fullmatch(TOOL_NAME, tool["name"]):
            yield f"{where}.name: String should match pattern '{TOOL_NAME}'"
        if tool["name"] in names:
            yield "tools: Tool names must be unique."
        names.add(tool["name"])


def bad_contents(request):
    for n, block in enumerate(blocks(request.get("system") or [])):
        yield from bad_block(f"system.{n}", block, "system")
    for n, message in enumerate(request["messages"]):
        yield from fields(f"messages.{n}", message, {"role": str, "content": (str, list)}, ())
        if message["role"] not in ("user", "assistant"):
            yield f'messages: Unexpected role "{message["role"]}". Allowed roles are "user" or "assistant".'
        if not message["content"]:
            yield f"messages.{n}: all messages must have non-empty content"
        for m, block in enumerate(blocks(message["content"])):
            yield from bad_block(f"messages.{n}.content.{m}", block, message["role"])


def bad_block(where, block, place):
    yield from fields(where, block, {"type": str})
    kind = block["type"]
    if kind not in BLOCKS:
        yield f"{where}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
    required, optional, places = BLOCKS[kind]
    if place not in places:
        yield f"{where}: `{kind}` blocks can only be in `{places[0]}` messages"
    yield from fields(f"{where}.{kind}", block, required, ("type", "cache_control", *optional))
    if kind == "text" and not block["text"].strip():
        fault = "contain non-whitespace text" if block["text"] else "be non-empty"
        yield f"{where.partition('.')[0]}: text content blocks must {fault}"
    if kind == "tool_use":
        yield from bad_call(f"{where}.tool_use", block)
    if kind == "tool_result":
        yield from bad_result(f"{where}.tool_result", block)


def bad_call(where, block):
    if not re.fullmatch(CALL_ID, block["id"]):
        yield f"{where}.id: String should match pattern '{CALL_ID}'"
    if not block["name"]:
        yield f"{where}.name: String should have at least 1 character"
    if len(block["name"]) > LONGEST_CALLED_NAME:
        yield f"{where}.name: String should have at most {LONGEST_CALLED_NAME} characters"


def bad_result(where, block):
    content = block.get("content", "")
    yield from fields(where, {"content": content}, {"content": (str, list)})
    if block.get("is_error") and not content:
        yield f"{where}: content cannot be empty if `is_error` is true"
    for n, inner in enumerate(content if isinstance(content, list) else []):
        yield from bad_block(f"{where}.content.{n}", inner, "tool_result")


def bad_turns(request):
    if not request["messages"]:
        yield "messages: at least one message is required"
    if request["messages"][0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    if request["messages"][-1]["role"] != "user":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    for n, content in enumerate(turns(request["messages"])):
        if content[-1]["type"] in THINKING:
            yield f"messages.{n}: The final block in an assistant message cannot be `thinking`."


def bad_pairs(request):
    used, asked = Counter(), []
    for n, content in enumerate(turns(request["messages"])):
        # Only the results that open a turn answer calls: behind a text they are as good as missing.
        opening = {block["tool_use_id"] for block in takewhile(is_result, content)}
        if missing := [name for name in asked if name not in opening]:
            yield (f"messages.{n - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                   f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                   "next message.")
        for name, times in Counter(block["tool_use_id"] for block in content if is_result(block)).items():
            if name not in asked:
                yield (f"messages.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. Each "
                       "`tool_result` block must have a corresponding `tool_use` block in the previous message.")
            if times > 1:
                yield (f"messages.{n}: each tool_use must have a single result. Found multiple `tool_result` blocks "
                       f"with id: {name}")
        asked = [block["id"] for block in content if block["type"] == "tool_use"]
        used.update(asked)
        if any(used[name] > 1 for name in asked):
            yield f"messages.{n}: `tool_use` ids must be unique"


def too_long(request, window):
    size = sum(tokens(text) for _, text in prompt(request))
    if size > window:
        yield f"prompt is too long: {size} tokens > {window} maximum"


def is_result(block):
    return block["type"] == "tool_result"


def blocks(content):
    """Content as a list: a string is short for one text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def turns(messages):
    """The blocks of each turn: consecutive messages of one role are one turn."""
    for _, group in groupby(messages, key=lambda message: message["role"]):
        yield [block for message in group for block in blocks(message["content"])]


# ---- What a prompt costs ---------------------------------------------------------------------------------------------


def tokens(text):
    """The size of a text in tokens: four characters each, the rule of thumb for English."""
    return len(text) // 4 + 1


as_json = json.JSONEncoder(ensure_ascii=False).encode


def prompt(request):
    """The (piece, text) pairs of a prompt, in the order that the cache compares them.

    A piece's mark for the cache is no part of its text: to move the mark changes nothing.
    """
    pieces = [("tools", tool) for tool in request.get("tools", [])]
    pieces += [("system", block) for block in blocks(request.get("system") or [])]
    pieces += [("tool_choice", request["tool_choice"])] if "tool_choice" in request else []
    pieces += [(message["role"], block) for message in request["messages"] for block in blocks(message["content"])]
    for place, piece in pieces:
        bare = {name: value for name, value in piece.items() if name != "cache_control"}
        yield piece, as_json([place, bare])


def measure(request, content, cache):
    """The `usage` of a reply, in tokens.

    cache: the hash of every prefix seen up to a `cache_control` mark; this request's are added. Simpler than the real
    cache: nothing expires, no prompt is too short, and a match is found however far back.
    """
    size, marked, prefixes, prefix = 0, 0, [], hashlib.sha256(request["model"].encode())
    for piece, text in prompt(request):
        size += tokens(text)
        prefix.update(text.encode())
        prefixes.append((prefix.digest(), size))
        if piece.get("cache_control") or request.get("cache_control"):
            marked = size
    read = max((end for key, end in prefixes if end <= marked and key in cache), default=0)
    cache.update(key for key, end in prefixes if end <= marked)
    return {
        "input_tokens": size - marked,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": marked - read,
        "output_tokens": tokens(as_json(content)),
    }


# ---- The server ------------------------------------------------------------------------------------------------------


class FakeAPI(ThreadingTCPServer):
    """The server; it runs on a free port inside its `with` block, whose end raises what went wrong in the script.

    script: an iterable of items, one for each accepted request, or a function from the request (a dict) to an item.
        An item is a `reply` (so `says`, `calls`), a `Status`, a `Cut`, a `Wait` or a `Slow`.
    window: the longest prompt, in tokens; may be changed at any time.
    models: False for a server without a Models API (404).

    Every key is good but "wrong". To look at afterwards, each in order: `requests`, the body of every POST to
    /v1/messages (None if it was not JSON); `raw`, its bytes; `refused`, why a request was invalid; `usage`, of each
    reply; `model_requests`, paths.
    """

    daemon_threads = True

    def __init__(self, script, window=200_000, models=True):
        # Not an HTTPServer: that asks DNS for its own name, which can take seconds.
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.script = script if callable(script) else lambda request, items=iter(script): next(items, THE_END)
        self.window, self.models = window, models
        self.requests, self.raw, self.refused, self.usage, self.model_requests = [], [], [], [], []
        self.cache, self.thoughts, self.ids = set(), set(), count(1)
        self.lock, self.closing, self.failure = threading.Lock(), threading.Event(), None

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.001,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.shutdown()
        self.server_close()
        if self.failure:
            raise self.failure

    def handle_error(self, *_):
        """Keep the error for `__exit__`; that a client went away is none."""
        if not isinstance(error := sys.exc_info()[1], ConnectionError):
            self.failure = self.failure or error

    def receive(self, raw, denied):
        """Record a request; return its JSON and the item to play: `denied` if there is one."""
        request, complaint = parsed(raw)
        with self.lock:
            self.raw.append(raw)
            self.requests.append(request)
            if denied:
                return request, denied
            complaint = complaint or refusal(request, self.window) or self.forged(request)
            if complaint:
                self.refused.append(complaint)
                return request, Status(400, complaint)
            return request, self.script(request)

    def forged(self, request):
        """Complain of a thinking block that this server never sent."""
        for block in chain.from_iterable(turns(request["messages"])):
            if is_thought(block) and thought(block) not in self.thoughts:
                return "messages: `thinking` or `redacted_thinking` blocks cannot be modified."

    def answer(self, request, content, stop_reason):
        """The body of a reply, recorded."""
        with self.lock:
            content = [self.named(block) for block in content]
            self.thoughts.update(thought(block) for block in content if is_thought(block))
            self.usage.append(measure(request, content, self.cache))
            return {"id": f"msg_{len(self.usage):04}", "type": "message", "role": "assistant", "content": content,
                    "model": request["model"], "stop_reason": stop_reason, "stop_sequence": None,
                    "usage": self.usage[-1]}

    def named(self, block):
        """The block as it is sent: see `reply`."""
        if not isinstance(block, dict) or block.get("type") != "tool_use":
            return block
        if "id" not in block:
            return {"id": f"toolu_{next(self.ids):04}", **block}
        return {name: value for name, value in block.items() if name != "id" or value is not None}


def parsed(raw):
    """The JSON of a body and None, or None and the complaint. An escaped lone surrogate is JSON for Python alone."""
    try:
        body = json.loads(raw.decode())
        as_json(body).encode()
        return body, None
    except ValueError as error:
        return None, f"The request body is not valid JSON: {error}"


def is_thought(block):
    return isinstance(block, dict) and block.get("type") in THINKING


def thought(block):
    """What must come back unchanged of a thinking block."""
    return tuple(block.get(name) for name in ("type", "thinking", "data", "signature"))


class Handler(BaseHTTPRequestHandler):
    """One client's connection."""

    protocol_version = "HTTP/1.1"  # stays open between requests
    disable_nagle_algorithm = True  # or an answer may wait 40 ms for the client's acknowledgement

    def log_message(self, *_):
        """Nothing: the terminal is the script's."""

    def do_POST(self):
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        if urlsplit(self.path).path == "/v1/messages":
            self.play(*self.server.receive(raw, self.denied()))
        else:
            self.play(None, self.denied() or Status(404))

    def do_GET(self):
        model = unquote(self.path.partition("/v1/models/")[2])
        if model:
            self.server.model_requests.append(self.path)
        missing = None if model and self.server.models else Status(404)
        if failed := self.denied() or missing:
            self.play(None, failed)
        else:
            self.send(200, {"type": "model", "id": model, "display_name": model, "created_at": "2026-01-01T00:00:00Z",
                            "lifecycle": "active", "max_input_tokens": self.server.window, "max_tokens": 128_000})

    def denied(self):
        key = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        if key in ("", "wrong"):
            return Status(401, None if key else "x-api-key header is required")

    def play(self, request, item):
        match item:
            case Cut():
                self.close_connection = True
            case Wait(event, then, arrived):
                arrived.set()
                while not (event.wait(0.01) or self.server.closing.is_set()):
                    pass
                self.play(request, then)
            case Slow(seconds, then):
                self.server.closing.wait(seconds)
                self.play(request, then)
            case Status(code, message, headers):
                kind, words = ERRORS.get(code, ERRORS[500])
                error = {"type": "error", "error": {"type": kind, "message": message or words}}
                self.send(code, error, {"retry-after-ms": 1, **headers})
            case _:
                self.send(200, self.server.answer(request, **item))

    def send(self, code, body, headers={}):
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"content-type": "application/json", "content-length": len(data), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
