"""A fake Messages API on the loopback interface, for the real SDK to talk to.

It plays a script of replies, keeps every request, and refuses what the API refuses, with its
status and its words:

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
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from itertools import count
from socketserver import ThreadingTCPServer
from urllib.parse import unquote, urlsplit

# ---- What a script is made of ------------------------------------------------------------------


def reply(content, stop_reason="end_turn"):
    """A reply of these content blocks.

    They are sent as they are, so a block may be as malformed as a model makes it.  Only the id of
    a `tool_use` is looked at: a call without one is given one, and with `"id": None` it is sent
    without.
    """
    return {"content": content, "stop_reason": stop_reason}


def says(*texts):
    """A reply of text blocks that ends the turn."""
    return reply([{"type": "text", "text": text} for text in texts])


def calls(*tools, text=None):
    """A reply that calls tools, each a (name, input) pair, after `text` if there is any."""
    content = []
    if text:
        content.append({"type": "text", "text": text})
    for name, arguments in tools:
        content.append({"type": "tool_use", "name": name, "input": arguments})
    return reply(content, "tool_use")


THE_END = says("(the script has ended)")


@dataclass
class Status:
    """An answer with this HTTP status and the API's error body."""

    code: int
    message: str | None = None  # None: the usual one
    headers: dict = field(default_factory=dict)


class Cut:
    """No answer: the connection closes."""


@dataclass
class Wait:
    """The item `then`, once `event` is set or the server closes."""

    event: threading.Event
    then: object
    arrived: threading.Event = field(default_factory=threading.Event)  # set when the request is here


@dataclass
class Slow:
    """The item `then`, after so many seconds, or at once when the server closes."""

    seconds: float
    then: object


# Status: (error type, usual message), as in https://platform.claude.com/docs/en/api/errors
NO_PERMISSION = "Your API key does not have permission to use the specified resource."
ERRORS = {
    400: ("invalid_request_error", "Error"),
    401: ("authentication_error", "invalid x-api-key"),
    403: ("permission_error", NO_PERMISSION),
    404: ("not_found_error", "Not found"),
    413: ("request_too_large", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your organization's rate limit."),
    500: ("api_error", "Internal server error"),
    529: ("overloaded_error", "Overloaded"),
}


# ---- What the API refuses ----------------------------------------------------------------------
# Each check raises Refused at the first fault, and relies on what the checks before it let pass.


class Refused(Exception):
    """Why the API refuses a request, in its words."""


def check(request, window):
    """Raise Refused if the API would refuse this request, a parsed body.  window: in tokens."""
    check_fields(request)
    check_tools(request.get("tools", []))
    check_system(request.get("system") or [])
    for number, message in enumerate(request["messages"]):
        check_message(number, message)
    check_turns(request["messages"])
    check_pairs(request["messages"])
    check_size(request, window)


# The fields of a request and their types.
REQUIRED = {"model": str, "max_tokens": int, "messages": list}
OPTIONAL = {"system": (str, list), "tools": list, "tool_choice": dict}
SAMPLING = ("temperature", "top_p", "top_k")

TYPE_NAMES = {
    str: "a valid string",
    int: "a valid integer",
    list: "a valid list",
    dict: "an object",
    (str, list): "a valid string or list",
}


def check_fields(request):
    check_object("body", request)
    for name, kind in REQUIRED.items():
        check_field(name, request, name, kind)
    for name, kind in OPTIONAL.items():
        if name in request:
            check_field(name, request, name, kind)
    for name in SAMPLING:
        if name in request:
            raise Refused(f"`{name}` is deprecated for this model.")
    if request["max_tokens"] < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")


def check_object(where, value):
    if not isinstance(value, dict):
        raise Refused(f"{where}: Input should be an object")


def check_field(where, value, name, kind):
    if name not in value:
        raise Refused(f"{where}: Field required")
    if not isinstance(value[name], kind):
        raise Refused(f"{where}: Input should be {TYPE_NAMES[kind]}")


def check_known(where, value, known):
    for name in value:
        if name not in known:
            raise Refused(f"{where}.{name}: Extra inputs are not permitted")


def check_pattern(where, text, pattern):
    if not re.fullmatch(pattern, text):
        raise Refused(f"{where}: String should match pattern '{pattern}'")


def check_tools(tools):
    names = set()
    for number, tool in enumerate(tools):
        where = f"tools.{number}.custom"
        check_object(where, tool)
        check_field(f"{where}.name", tool, "name", str)
        check_field(f"{where}.input_schema", tool, "input_schema", dict)
        check_field(f"{where}.input_schema.type", tool["input_schema"], "type", str)
        if tool["input_schema"]["type"] != "object":
            raise Refused(f"{where}.input_schema.type: Input should be 'object'")
        check_pattern(f"{where}.name", tool["name"], "^[a-zA-Z0-9_-]{1,128}$")
        if tool["name"] in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(tool["name"])


def check_system(system):
    for number, block in enumerate(blocks(system)):
        check_block(f"system.{number}", block, "system")


def check_message(number, message):
    where = f"messages.{number}"
    check_object(where, message)
    check_field(f"{where}.role", message, "role", str)
    check_field(f"{where}.content", message, "content", (str, list))
    check_known(where, message, ("role", "content"))
    role = message["role"]
    if role not in ("user", "assistant"):
        allowed = 'Allowed roles are "user" or "assistant".'
        raise Refused(f'messages: Unexpected role "{role}". {allowed}')
    if not message["content"]:
        raise Refused(f"{where}: all messages must have non-empty content")
    for index, block in enumerate(blocks(message["content"])):
        check_block(f"{where}.content.{index}", block, role)


@dataclass
class BlockRule:
    """What a content block of one type looks like."""

    places: tuple  # where it may stand: a role's message, a "tool_result", the "system" prompt
    required: dict  # field: type
    optional: tuple = ()  # fields


BLOCK_RULES = {
    "text": BlockRule(
        ("user", "assistant", "tool_result", "system"), {"text": str}, ("citations",)
    ),
    "image": BlockRule(("user", "tool_result"), {"source": dict}, ("transformations",)),
    "document": BlockRule(
        ("user", "tool_result"), {"source": dict}, ("citations", "context", "title")
    ),
    "tool_use": BlockRule(
        ("assistant",), {"id": str, "name": str, "input": dict}, ("caller", "toolset_name")
    ),
    "tool_result": BlockRule(
        ("user",), {"tool_use_id": str}, ("content", "is_error", "toolset_name")
    ),
    "thinking": BlockRule(("assistant",), {"thinking": str, "signature": str}),
    "redacted_thinking": BlockRule(("assistant",), {"data": str}),
}
THINKING = ("thinking", "redacted_thinking")


def check_block(where, block, place):
    """place: one of BlockRule.places."""
    check_object(where, block)
    check_field(f"{where}.type", block, "type", str)
    kind = block["type"]
    if kind not in BLOCK_RULES:
        expected = "does not match any of the expected tags"
        raise Refused(f"{where}: Input tag '{kind}' found using 'type' {expected}")
    rule = BLOCK_RULES[kind]
    if place not in rule.places:
        raise Refused(f"{where}: `{kind}` blocks can only be in `{rule.places[0]}` messages")
    inside = f"{where}.{kind}"
    for name, field_type in rule.required.items():
        check_field(f"{inside}.{name}", block, name, field_type)
    check_known(inside, block, ("type", "cache_control", *rule.required, *rule.optional))
    if kind == "text":
        check_text(where, block["text"])
    elif kind == "tool_use":
        check_call(inside, block)
    elif kind == "tool_result":
        check_result(inside, block)


def check_text(where, text):
    part = where.split(".")[0]  # "messages" or "system"
    if not text:
        raise Refused(f"{part}: text content blocks must be non-empty")
    if not text.strip():
        raise Refused(f"{part}: text content blocks must contain non-whitespace text")


def check_call(where, call):
    check_pattern(f"{where}.id", call["id"], "^[a-zA-Z0-9_-]+$")
    if not call["name"]:
        raise Refused(f"{where}.name: String should have at least 1 character")
    if len(call["name"]) > 200:
        raise Refused(f"{where}.name: String should have at most 200 characters")


def check_result(where, result):
    if "content" in result:
        check_field(f"{where}.content", result, "content", (str, list))
    content = result.get("content", "")
    if result.get("is_error") and not content:
        raise Refused(f"{where}: content cannot be empty if `is_error` is true")
    if isinstance(content, list):
        for number, block in enumerate(content):
            check_block(f"{where}.content.{number}", block, "tool_result")


def check_turns(messages):
    if not messages:
        raise Refused("messages: at least one message is required")
    if messages[0]["role"] != "user":
        raise Refused('messages: first message must use the "user" role')
    if messages[-1]["role"] != "user":
        raise Refused(
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )
    for number, content in enumerate(turns(messages)):
        if content[-1]["type"] in THINKING:
            raise Refused(
                f"messages.{number}: The final block in an assistant message cannot be `thinking`."
            )


def check_pairs(messages):
    """Each call has an id of its own and one result, in the turn that follows."""
    used_ids = set()
    asked_ids = []  # of the calls in the turn before
    for number, content in enumerate(turns(messages)):
        check_answers(number, content, asked_ids)
        asked_ids = [block["id"] for block in content if block["type"] == "tool_use"]
        for call_id in asked_ids:
            if call_id in used_ids:
                raise Refused(f"messages.{number}: `tool_use` ids must be unique")
            used_ids.add(call_id)


def check_answers(number, content, asked_ids):
    """The results in turn `number` are those of the calls that the turn before asked for."""
    answered = [block["tool_use_id"] for block in content if is_result(block)]
    missing = [call_id for call_id in asked_ids if call_id not in opening_results(content)]
    if missing:
        raise Refused(
            f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks "
            f"immediately after: {', '.join(missing)}. Each `tool_use` block must have a "
            "corresponding `tool_result` block in the next message."
        )
    for call_id in answered:
        if call_id not in asked_ids:
            raise Refused(
                f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{call_id}. Each `tool_result` block must have a corresponding `tool_use` block "
                "in the previous message."
            )
        if answered.count(call_id) > 1:
            raise Refused(
                f"messages.{number}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {call_id}"
            )


def opening_results(content):
    """The ids of the results that open a turn: behind a text a result is as good as missing."""
    ids = []
    for block in content:
        if not is_result(block):
            break
        ids.append(block["tool_use_id"])
    return ids


def is_result(block):
    return block["type"] == "tool_result"


def check_size(request, window):
    size = sum(tokens(piece.text) for piece in prompt(request))
    if size > window:
        raise Refused(f"prompt is too long: {size} tokens > {window} maximum")


def blocks(content):
    """Content as a list: a string is short for one text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


def turns(messages):
    """The blocks of each turn: consecutive messages of one role are one turn."""
    found = []
    role = None
    for message in messages:
        if message["role"] != role:
            found.append([])
        role = message["role"]
        found[-1].extend(blocks(message["content"]))
    return found


# ---- What a prompt costs -----------------------------------------------------------------------


def tokens(text):
    """The size of a text in tokens: four characters each, the rule of thumb for English."""
    return len(text) // 4 + 1


as_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass
class Piece:
    """A part of a prompt: a tool, or a block of the system prompt or of a message."""

    text: str  # as the cache compares it
    is_marked: bool  # with `cache_control`


def prompt(request):
    """The pieces of a prompt, in the order that the cache compares them."""
    pieces = []
    for tool in request.get("tools", []):
        pieces.append(piece_of("tools", tool))
    for block in blocks(request.get("system") or []):
        pieces.append(piece_of("system", block))
    if "tool_choice" in request:
        pieces.append(piece_of("tool_choice", request["tool_choice"]))
    for message in request["messages"]:
        for block in blocks(message["content"]):
            pieces.append(piece_of(message["role"], block))
    return pieces


def piece_of(place, value):
    """The mark for the cache is no part of the text: to move it changes nothing."""
    bare = {name: part for name, part in value.items() if name != "cache_control"}
    return Piece(as_json([place, bare]), bool(value.get("cache_control")))


def measure(request, content, cache):
    """The `usage` of a reply, in tokens.

    cache: the hash of every prefix seen up to a `cache_control` mark; this request's are added.
    Simpler than the real cache: nothing expires, no prompt is too short, and a match is found
    however far back.
    """
    size = 0
    marked_size = 0  # up to the last mark
    prefixes = {}  # hash of a prefix: its size
    prefix = hashlib.sha256(request["model"].encode())
    for piece in prompt(request):
        size += tokens(piece.text)
        prefix.update(piece.text.encode())
        prefixes[prefix.digest()] = size
        if piece.is_marked or request.get("cache_control"):
            marked_size = size
    read = 0
    for key, prefix_size in prefixes.items():
        if prefix_size <= marked_size:
            if key in cache:
                read = prefix_size
            cache.add(key)
    return {
        "input_tokens": size - marked_size,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": marked_size - read,
        "output_tokens": tokens(as_json(content)),
    }


# ---- The server --------------------------------------------------------------------------------


class FakeAPI(ThreadingTCPServer):
    """The server; it runs on a free port inside its `with` block, whose end raises what went wrong
    in the script.

    script: an iterable of items, one for each accepted request, or a function from the request
        (a dict) to an item.  An item is a `reply` (so `says`, `calls`), a `Status`, a `Cut`, a
        `Wait` or a `Slow`.
    window: the longest prompt, in tokens; may be changed at any time.
    models: False for a server without a Models API (404).

    Every key is good but "wrong".
    """

    daemon_threads = True

    def __init__(self, script, window=200_000, models=True):
        # Not an HTTPServer: that asks DNS for its own name, which can take seconds.
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.script = script if callable(script) else in_order(script)
        self.window = window
        self.models = models
        # To look at afterwards, each in order.
        self.requests = []  # the body of every POST to /v1/messages; None if it was not JSON
        self.raw = []  # the bytes of each of them
        self.refused = []  # why a request was invalid
        self.usage = []  # of each reply
        self.model_requests = []  # paths
        # What the server remembers.
        self.cache = set()  # see measure
        self.thoughts = set()  # those that were sent
        self.call_numbers = count(1)
        self.lock = threading.Lock()  # a client may have several connections
        self.closing = threading.Event()
        self.failure = None

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
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError) and self.failure is None:
            self.failure = error

    def receive(self, raw, denied):
        """Record a request; return its JSON and the item to play: `denied` if there is one."""
        request = None
        refusal = None
        with self.lock:
            self.raw.append(raw)
            try:
                request = parsed(raw)
                check(request, self.window)
                self.check_thoughts(request["messages"])
            except Refused as refused:
                refusal = str(refused)
            self.requests.append(request)
            if denied:
                return request, denied
            if refusal:
                self.refused.append(refusal)
                return request, Status(400, refusal)
            return request, self.script(request)

    def check_thoughts(self, messages):
        """Each thinking block is one that this server sent."""
        for content in turns(messages):
            for block in content:
                if is_thought(block) and thought(block) not in self.thoughts:
                    raise Refused(
                        "messages: `thinking` or `redacted_thinking` blocks cannot be modified."
                    )

    def answer(self, request, content, stop_reason):
        """The body of a reply, recorded."""
        with self.lock:
            content = [self.with_id(block) for block in content]
            self.thoughts.update(thought(block) for block in content if is_thought(block))
            usage = measure(request, content, self.cache)
            self.usage.append(usage)
            return {
                "id": f"msg_{len(self.usage):04}",
                "type": "message",
                "role": "assistant",
                "content": content,
                "model": request["model"],
                "stop_reason": stop_reason,
                "stop_sequence": None,
                "usage": usage,
            }

    def with_id(self, block):
        """A block as it is sent: `reply` says what becomes of the id of a call."""
        if not isinstance(block, dict) or block.get("type") != "tool_use":
            return block
        if "id" not in block:
            return {"id": f"toolu_{next(self.call_numbers):04}", **block}
        if block["id"] is None:
            return {name: value for name, value in block.items() if name != "id"}
        return block


def in_order(script):
    """A function that plays the items of a script, one for each request."""
    items = iter(script)

    def next_item(request):
        return next(items, THE_END)

    return next_item


def parsed(raw):
    """The JSON of a body.  Raises Refused if it is none."""
    try:
        body = json.loads(raw.decode())
        as_json(body).encode()  # half an emoji, escaped, is JSON for Python alone
    except ValueError as error:
        raise Refused(f"The request body is not valid JSON: {error}")
    return body


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
            request, item = self.server.receive(raw, self.denied())
            self.play(request, item)
        else:
            self.play(None, self.denied() or Status(404))

    def do_GET(self):
        """The Models API."""
        model = unquote(self.path.partition("/v1/models/")[2])
        if model:
            self.server.model_requests.append(self.path)
        denied = self.denied()
        if denied:
            self.play(None, denied)
        elif not model or not self.server.models:
            self.play(None, Status(404))
        else:
            self.send(200, {
                "type": "model",
                "id": model,
                "display_name": model,
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
                "max_input_tokens": self.server.window,
                "max_tokens": 128_000,
            })

    def denied(self):
        """The answer to a client with no key or a wrong one; None for any other."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = self.headers.get("x-api-key") or bearer
        if not key:
            return Status(401, "x-api-key header is required")
        if key == "wrong":
            return Status(401)
        return None

    def play(self, request, item):
        match item:
            case Cut():
                self.close_connection = True
            case Wait():
                item.arrived.set()
                while not self.server.closing.is_set():
                    if item.event.wait(0.01):
                        break
                self.play(request, item.then)
            case Slow():
                self.server.closing.wait(item.seconds)
                self.play(request, item.then)
            case Status():
                kind, usual = ERRORS.get(item.code, ERRORS[500])
                error = {"type": kind, "message": item.message or usual}
                headers = {"retry-after-ms": 1, **item.headers}
                self.send(item.code, {"type": "error", "error": error}, headers)
            case _:
                body = self.server.answer(request, item["content"], item["stop_reason"])
                self.send(200, body)

    def send(self, code, body, headers={}):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", len(data))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)
