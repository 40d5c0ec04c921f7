"""The fake API itself, asked through the real SDK.

In reading order: how the tests ask, what it refuses, what it plays, what it counts.
"""

import contextlib
import http.client
import threading
import time

import anthropic
import pytest
from anthropic.types import Message

from fake_api import Cut, FakeAPI, Slow, Status, Wait, calls, reply, says

# ---- How the tests ask -------------------------------------------------------------------------


def client(api, api_key="test"):
    return anthropic.Anthropic(base_url=api.url, api_key=api_key, max_retries=0)


def user(content):
    return {"role": "user", "content": content}


def model(content):
    return {"role": "assistant", "content": content}


def text(words):
    return {"type": "text", "text": words}


def call(identifier="toolu_a", **change):
    return {"type": "tool_use", "id": identifier, "name": "bash", "input": {}, **change}


def result(name="toolu_a", **change):
    return {"type": "tool_result", "tool_use_id": name, "content": "ok", **change}


def tool(name="bash", schema={"type": "object"}):
    return {"name": name, "description": "Run a command.", "input_schema": schema}


def talk(*messages):
    return {"messages": list(messages)}


def called(*answer):
    """A request whose last turn answers the call `toolu_a`."""
    return talk(user("go"), model([call()]), user(list(answer)))


BASE = {
    "model": "m",
    "max_tokens": 100,
    "system": "Be brief.",
    "tools": [tool()],
    **talk(user("go")),
}
AUTOMATIC = {"cache_control": {"type": "ephemeral"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s1"}
REDACTED = {"type": "redacted_thinking", "data": "d1"}


def send(client, change={}, **more):
    """Send the base request with some fields changed, or left out when they are `...`."""
    fields = {**BASE, **change, **more}
    body = {name: value for name, value in fields.items() if value is not ...}
    return client.post("/v1/messages", body=body, cast_to=Message)


@contextlib.contextmanager
def refused(words):
    """The block in this `with` sends a request that is refused, with these words."""
    with pytest.raises(anthropic.BadRequestError) as failure:
        yield failure
    assert words in failure.value.api_message


# ---- What it refuses ---------------------------------------------------------------------------

ACCEPTED = {
    "the base": {},
    "no system, no tools": {"system": ..., "tools": ...},
    "an empty system": {"system": ""},
    "a system of blocks": {"system": [{**text("Be brief."), **AUTOMATIC}]},
    "no tools but calls": {"tools": ..., **called(result())},
    "two tools": {"tools": [tool("a"), tool("b")]},
    "results, then text": called(result(), text("and now?")),
    "a result without content": called(
        {"type": "tool_result", "tool_use_id": "toolu_a"}
    ),
    "an empty result": called(result(content="")),
    "a result of blocks": called(result(content=[text("ok")], is_error=True)),
    "two calls, results the other way round": talk(
        user("go"), model([call("a"), call("b")]), user([result("b"), result("a")])
    ),
    "turns in several messages": talk(
        user("go"),
        user("on"),
        model("Yes."),
        model([call("a")]),
        model([call("b")]),
        user([result("a")]),
        user([result("b")]),
        user("more"),
    ),
    "a call of a long name": talk(
        user("go"), model([call(name="x" * 200)]), user([result()])
    ),
    "fields that model_dump adds": talk(
        user("go"), model([call(caller=None, toolset_name=None)]), user([result()])
    ),
}

UNANSWERED = (
    "messages.1: `tool_use` ids were found without `tool_result` blocks "
    "immediately after: toolu_a"
)
UNASKED = "messages.2: unexpected `tool_use_id` found in `tool_result` blocks: toolu_b"

REFUSED = {
    "no model": (
        {"model": ...},
        "model: Field required",
    ),
    "no max_tokens": (
        {"max_tokens": ...},
        "max_tokens: Field required",
    ),
    "no messages": (
        {"messages": ...},
        "messages: Field required",
    ),
    "messages no list": (
        {"messages": "go"},
        "messages: Input should be a valid list",
    ),
    "max_tokens no number": (
        {"max_tokens": "9"},
        "max_tokens: Input should be a valid integer",
    ),
    "max_tokens 0": (
        {"max_tokens": 0},
        "max_tokens: Input should be greater than or equal to 1",
    ),
    "temperature": (
        {"temperature": 0.5},
        "`temperature` is deprecated for this model.",
    ),
    "top_p": (
        {"top_p": 0.5},
        "`top_p` is deprecated for this model.",
    ),
    "top_k": (
        {"top_k": 5},
        "`top_k` is deprecated for this model.",
    ),
    "system a number": (
        {"system": 1},
        "system: Input should be a valid string or list",
    ),
    "system an empty block": (
        {"system": [text("")]},
        "system: text content blocks must be non-empty",
    ),
    "tools no list": (
        {"tools": {}},
        "tools: Input should be a valid list",
    ),
    "a tool's name": (
        {"tools": [tool("run it")]},
        "tools.0.custom.name: String should match pattern",
    ),
    "a tool's long name": (
        {"tools": [tool("x" * 129)]},
        "tools.0.custom.name: String should match pattern",
    ),
    "a tool without schema": (
        {"tools": [{"name": "bash"}]},
        "tools.0.custom.input_schema: Field required",
    ),
    "a schema without type": (
        {"tools": [tool(schema={})]},
        "tools.0.custom.input_schema.type: Field required",
    ),
    "a schema of no object": (
        {"tools": [tool(schema={"type": "array"})]},
        "schema.type: Input should be 'object'",
    ),
    "two tools of one name": (
        {"tools": [tool(), tool()]},
        "tools: Tool names must be unique.",
    ),
    "empty messages": (
        talk(),
        "messages: at least one message is required",
    ),
    "a message of text": (
        talk("go"),
        "messages.0: Input should be an object",
    ),
    "no role": (
        talk({"content": "go"}),
        "messages.0.role: Field required",
    ),
    "an unknown role": (
        talk({"role": "system", "content": "go"}),
        'messages: Unexpected role "system"',
    ),
    "an unknown field": (
        talk({**user("go"), "time": 1}),
        "messages.0.time: Extra inputs are not permitted",
    ),
    "content null": (
        talk(user(None)),
        "messages.0.content: Input should be a valid string or list",
    ),
    "content of text": (
        talk(user(["go"])),
        "messages.0.content.0: Input should be an object",
    ),
    "content an empty list": (
        talk(user([])),
        "messages.0: all messages must have non-empty content",
    ),
    "content an empty string": (
        talk(user("")),
        "messages.0: all messages must have non-empty content",
    ),
    "content white": (
        talk(user(" \n")),
        "messages: text content blocks must contain non-whitespace text",
    ),
    "an empty text": (
        talk(user([text("go"), text("")])),
        "messages: text content blocks must be non-empty",
    ),
    "an empty text in a result": (
        called(result(content=[text("")])),
        "text content blocks must be non-empty",
    ),
    "a result null": (
        called(result(content=None)),
        "tool_result.content: Input should be a valid string or list",
    ),
    "an unknown block": (
        talk(user([{"type": "txt"}])),
        "messages.0.content.0: Input tag 'txt' found",
    ),
    "an unknown field of a block": (
        called(result(status=0)),
        "tool_result.status: Extra inputs are not",
    ),
    "the first turn not the user's": (
        talk(model("Hi."), user("go")),
        'first message must use the "user" role',
    ),
    "a prefill": (
        talk(user("go"), model("Sure")),
        "The conversation must end with a user message.",
    ),
    "a call in the end": (
        talk(user("go"), model([call()])),
        "The conversation must end with a user message.",
    ),
    "a call by the user": (
        talk(user([call()])),
        "`tool_use` blocks can only be in `assistant` messages",
    ),
    "no result": (
        called(text("well?")),
        UNANSWERED,
    ),
    "a result behind a text": (
        called(text("here:"), result()),
        UNANSWERED,
    ),
    "a result one turn late": (
        talk(*called(text("?"))["messages"], model("Oh."), user([result()])),
        UNANSWERED,
    ),
    "a result nobody asked for": (
        called(result(), result("toolu_b")),
        UNASKED,
    ),
    "two results for a call": (
        called(result(), result()),
        "each tool_use must have a single result",
    ),
    "one id twice in a turn": (
        talk(user("go"), model([call(), call()]), user([result()])),
        "ids must be unique",
    ),
    "one id in two turns": (
        talk(*called(result())["messages"], model([call()]), user([result()])),
        "must be unique",
    ),
    "an error without words": (
        called(result(content="", is_error=True)),
        "content cannot be empty if `is_error`",
    ),
    "thinking in the end": (
        talk(user("go"), model([text("x"), THOUGHT]), user("on")),
        "cannot be `thinking`.",
    ),
    "thinking unsigned": (
        talk(
            user("go"),
            model([{"type": "thinking", "thinking": "x"}, text("x")]),
            user("on"),
        ),
        "messages.1.content.0.thinking.signature: Field required",
    ),
    "thinking never sent": (
        talk(user("go"), model([THOUGHT, text("x")]), user("on")),
        "blocks cannot be modified",
    ),
}


CALL = "messages.1.content.0.tool_use"
MALFORMED = {  # what a model may send, and why the API does not take it back
    "a call's input a string": (
        call(input='{"command": "ls"'),
        f"{CALL}.input: Input should be an object",
    ),
    "a call's input a list": (
        call(input=["ls"]),
        f"{CALL}.input: Input should be an object",
    ),
    "a call's input a number": (
        call(input=7),
        f"{CALL}.input: Input should be an object",
    ),
    "a call's input null": (
        call(input=None),
        f"{CALL}.input: Input should be an object",
    ),
    "a call without input": (
        {"type": "tool_use", "id": "toolu_a", "name": "bash"},
        f"{CALL}.input: Field required",
    ),
    "a call with an empty id": (
        call(""),
        f"{CALL}.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "a call with an odd id": (
        call("call:1\n"),
        f"{CALL}.id: String should match pattern",
    ),
    "a call's id a number": (
        call(1),
        f"{CALL}.id: Input should be a valid string",
    ),
    "a call without name": (
        {"type": "tool_use", "id": "toolu_a", "input": {}},
        f"{CALL}.name: Field required",
    ),
    "a call's name null": (
        call(name=None),
        f"{CALL}.name: Input should be a valid string",
    ),
    "a call's name empty": (
        call(name=""),
        f"{CALL}.name: String should have at least 1 character",
    ),
    "a call's name long": (
        call(name="x" * 201),
        f"{CALL}.name: String should have at most 200 characters",
    ),
    "a block of an unknown type": (
        {"type": "tool_call", "id": "toolu_a"},
        "messages.1.content.0: Input tag 'tool_call'",
    ),
    "a block without type": (
        {"text": "Hi."},
        "messages.1.content.0.type: Field required",
    ),
    "a text block without text": (
        {"type": "text"},
        "messages.1.content.0.text.text: Field required",
    ),
    "a text block's text null": (
        text(None),
        "messages.1.content.0.text.text: Input should be a valid string",
    ),
    "a text block's text empty": (
        text(""),
        "messages: text content blocks must be non-empty",
    ),
    "a block of plain words": (
        "Hi.",
        "messages.1.content.0: Input should be an object",
    ),
}


@pytest.fixture(scope="module")
def lasting():
    with FakeAPI(ok) as api, client(api) as asker:
        yield api, asker


def ok(request):
    return says("ok")


@pytest.mark.parametrize("change", ACCEPTED.values(), ids=ACCEPTED)
def test_accepted(lasting, change):
    api, asker = lasting
    assert send(asker, change).content[0].text == "ok"


@pytest.mark.parametrize("change, words", REFUSED.values(), ids=REFUSED)
def test_refused(lasting, change, words):
    api, asker = lasting
    with refused(words) as failure:
        send(asker, change)
    assert failure.value.type == "invalid_request_error"
    assert failure.value.api_message == api.refused[-1]
    assert len(api.requests) == len(api.raw)


@pytest.mark.parametrize("block, words", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_block_is_sent_and_refused_when_it_comes_back(block, words):
    with FakeAPI([reply([block], "tool_use")]) as api, client(api) as asker:
        sent = asker.messages.create(**BASE).to_dict(warnings=False)["content"]
        assert sent == [block]
        with refused(words):
            send(asker, talk(user("go"), model(sent), user("on")))


def test_a_call_whose_id_is_none_is_sent_without_one():
    with FakeAPI([reply([call(None)], "tool_use")]) as api, client(api) as asker:
        sent = asker.messages.create(**BASE).to_dict(warnings=False)["content"]
        assert sent == [{"type": "tool_use", "name": "bash", "input": {}}]
        with refused("messages.1.content.0.tool_use.id: Field required"):
            send(asker, talk(user("go"), model(sent), user("on")))


NO_CLEAN_OBJECT = [
    b"{",
    b"\xff",
    b'{"model": "\\ud83d"}',
    b'{"model": "\xed\xa0\xbd"}',
    b"[]",
]


@pytest.mark.parametrize("raw", NO_CLEAN_OBJECT)
def test_a_body_that_is_no_object_of_clean_text_is_refused(raw):
    with FakeAPI([]) as api:
        assert post(api, raw, {"x-api-key": "test"}) == 400
    assert api.raw == [raw] and len(api.refused) == 1


def test_thinking_comes_back_as_it_went():
    with FakeAPI([reply([THOUGHT, REDACTED, text("x")])]) as api, client(api) as asker:
        sent = [block.model_dump() for block in send(asker).content]
        assert send(asker, talk(user("go"), model(sent), user("on")))
        words = {**THOUGHT, "thinking": "Ha."}
        signature = {**THOUGHT, "signature": "s2"}
        data = {**REDACTED, "data": "d2"}
        for changed in (words, signature, data):
            with refused("blocks cannot be modified"):
                send(asker, talk(user("go"), model([changed, text("x")]), user("on")))


def test_a_prompt_may_fill_the_window_and_no_more():
    with FakeAPI([]) as api, client(api) as asker:
        size = send(asker).usage.input_tokens
        api.window = size
        assert send(asker)
        api.window = size - 1
        with refused(f"prompt is too long: {size} tokens > {size - 1} maximum"):
            send(asker)


# ---- What it plays -----------------------------------------------------------------------------


def test_replies_of_each_kind_in_order():
    items = [says("a", "b"), calls(("ls", {}), text="Look."), reply([], "refusal")]
    with FakeAPI(iter(items)) as api, client(api) as asker:
        words, tools, nothing, end = [send(asker, model="m1") for _ in range(4)]
    assert (types_of(words), words.stop_reason) == (["text", "text"], "end_turn")
    assert (types_of(tools), tools.stop_reason) == (["text", "tool_use"], "tool_use")
    assert (types_of(nothing), nothing.stop_reason) == ([], "refusal")
    assert (types_of(end), end.stop_reason) == (["text"], "end_turn")
    assert end.content[0].text == "(the script has ended)"
    assert (words.id, end.id, words.model) == ("msg_0001", "msg_0004", "m1")
    assert api.usage[1]["output_tokens"] == tools.usage.output_tokens


def types_of(message):
    return [block.type for block in message.content]


def test_calls_get_ids_unless_they_have_one():
    item = calls(("ls", {}), ("ls", {}))
    mine = reply([call("mine")], "tool_use")
    with FakeAPI([item, item, mine]) as api, client(api) as asker:
        ids = []
        for _ in range(3):
            ids += [block.id for block in send(asker).content]
    assert ids == ["toolu_0001", "toolu_0002", "toolu_0003", "toolu_0004", "mine"]


def test_a_refused_request_leaves_the_script_where_it_is():
    with FakeAPI([says("first")]) as api, client(api) as asker:
        with refused("max_tokens"):
            send(asker, max_tokens=0)
        assert send(asker).content[0].text == "first"
    assert [request["max_tokens"] for request in api.requests] == [0, 100]
    assert len(api.usage) == 1


STATUSES = [
    (400, anthropic.BadRequestError, "invalid_request_error"),
    (401, anthropic.AuthenticationError, "authentication_error"),
    (403, anthropic.PermissionDeniedError, "permission_error"),
    (404, anthropic.NotFoundError, "not_found_error"),
    (413, anthropic.APIStatusError, "request_too_large"),
    (429, anthropic.RateLimitError, "rate_limit_error"),
    (500, anthropic.InternalServerError, "api_error"),
    (529, anthropic.InternalServerError, "overloaded_error"),
]


@pytest.mark.parametrize("code, kind, name", STATUSES)
def test_statuses(code, kind, name):
    script = [Status(code), Status(code, "my words", {"x-mine": "1"})]
    with FakeAPI(script) as api, client(api) as asker:
        with pytest.raises(kind) as usual:
            send(asker)
        with pytest.raises(kind) as given:
            send(asker)
    assert given.value.api_message == "my words"
    assert (usual.value.status_code, usual.value.type) == (code, name)
    assert usual.value.api_message
    assert given.value.response.headers["x-mine"] == "1" and not api.refused


def test_the_sdk_tries_again_after_529():
    with FakeAPI([Status(529), says("back")]) as api, client(api) as asker:
        patient = asker.with_options(max_retries=1)
        assert send(patient).content[0].text == "back"
    assert len(api.requests) == 2 and len(api.usage) == 1


def test_cut():
    with FakeAPI([Cut(), says("back")]) as api, client(api) as asker:
        with pytest.raises(anthropic.APIConnectionError):
            send(asker)
        assert send(asker).content[0].text == "back"


class Asking(threading.Thread):
    """A request in the background; `answer` or `error` is what came of it."""

    def __init__(self, asker):
        super().__init__()
        self.asker = asker
        self.answer = None
        self.error = None
        self.start()

    def run(self):
        try:
            self.answer = send(self.asker)
        except anthropic.APIConnectionError as error:
            self.error = error


def test_wait_holds_the_answer_until_its_event():
    wait = Wait(threading.Event(), says("late"))
    with FakeAPI([wait]) as api, client(api) as asker:
        asking = Asking(asker)
        assert wait.arrived.wait(10) and asking.answer is None
        wait.event.set()
        asking.join(10)
    assert asking.answer.content[0].text == "late"


def test_closing_ends_a_wait():
    wait = Wait(threading.Event(), Cut())
    with FakeAPI([wait]) as api, client(api) as asker:
        asking = Asking(asker)
        assert wait.arrived.wait(10)
    asking.join(10)
    assert asking.error


def test_slow_takes_its_seconds():
    with FakeAPI([Slow(0.2, says("late"))]) as api, client(api) as asker:
        began = time.monotonic()
        assert send(asker).content[0].text == "late"
    assert time.monotonic() - began >= 0.2


def test_closing_hurries_a_slow_answer():
    with FakeAPI([Slow(60, says("hurried"))]) as api, client(api) as asker:
        asking = Asking(asker)
        while not api.requests:
            time.sleep(0.01)
        api.closing.set()
        asking.join(10)
    assert asking.answer.content[0].text == "hurried"


def test_a_client_that_goes_away_makes_no_noise(capfd):
    wait = Wait(threading.Event(), says("x" * 10_000_000))
    with FakeAPI([wait]) as api, client(api) as asker:
        with pytest.raises(anthropic.APITimeoutError):
            send(asker.with_options(timeout=0.1))
        assert wait.arrived.wait(10)
        wait.event.set()
        assert send(asker).content[0].text == "(the script has ended)"
    assert capfd.readouterr() == ("", "")


def test_an_error_in_the_script_is_raised_at_the_end(capfd):
    def script(request):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        with FakeAPI(script) as api, client(api) as asker:
            with pytest.raises(anthropic.APIConnectionError):
                send(asker)
    assert capfd.readouterr() == ("", "")


def post(api, raw, headers, path="/v1/messages"):
    """Post raw bytes without the SDK, which would refuse to; return the status."""
    connection = http.client.HTTPConnection(api.url.removeprefix("http://"))
    connection.request("POST", path, raw, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_who_asks_and_where():
    with FakeAPI([]) as api, client(api, api_key="wrong") as stranger:
        with pytest.raises(anthropic.AuthenticationError) as failure:
            send(stranger)
        assert failure.value.api_message == "invalid x-api-key"
        assert post(api, b"{}", {}) == 401
        assert post(api, b"{}", {"authorization": "Bearer test"}, "/v1/complete") == 404
    assert len(api.requests) == 2 and not api.refused


def test_models():
    with FakeAPI([], window=50_000) as api, client(api) as asker:
        found = asker.models.retrieve("a/b:c")
        assert found.id == "a/b:c"
        assert (found.max_input_tokens, found.max_tokens) == (50_000, 128_000)
        with pytest.raises(anthropic.NotFoundError):
            asker.models.list()
    assert api.model_requests == ["/v1/models/a%2Fb:c"] and not api.requests


def test_a_server_without_a_models_api():
    with FakeAPI([], models=False) as api, client(api) as asker:
        with pytest.raises(anthropic.NotFoundError):
            asker.models.retrieve("m")


# ---- What it counts ----------------------------------------------------------------------------


def share_read(**settings):
    """The part of its input that a session of 40 turns reads from the cache."""
    script = [calls(("bash", {"command": "ls"}))] * 40
    with FakeAPI(script) as api, client(api) as asker:
        messages = [user("go")]
        for _ in range(40):
            asked = send(asker, settings, messages=messages).content[0]
            messages.append(model([asked.model_dump()]))
            messages.append(user([result(asked.id, content="a file\n" * 20)]))
    assert not api.refused
    read = sum(usage["cache_read_input_tokens"] for usage in api.usage)
    written = sum(usage["cache_creation_input_tokens"] for usage in api.usage)
    plain = sum(usage["input_tokens"] for usage in api.usage)
    return read / (read + written + plain)


def test_a_session_reads_its_history_from_the_cache_when_it_asks_to():
    assert share_read(**AUTOMATIC) > 0.9
    assert share_read() == 0


FIRST = user([text("one"), text("two")])
FIRST_MARKED = user([text("one"), {**text("two"), **AUTOMATIC}])
SECOND = model("Yes.")
THIRD = user("three")
LONG = talk(FIRST, SECOND, THIRD)

CHANGES = [  # and how much of the cached prefix is still read
    ({}, "all"),
    (talk(FIRST, SECOND, THIRD, model("No."), user("four")), "all"),
    (talk(FIRST, SECOND, user([text("three")])), "all"),
    (talk(FIRST_MARKED, SECOND, THIRD), "all"),
    (talk(FIRST, SECOND, user("3")), "some"),
    (talk(user("1"), SECOND, THIRD), "some"),
    ({"tool_choice": {"type": "none"}}, "some"),
    ({"system": "Be long."}, "some"),
    ({"tools": [tool("sh")]}, "none"),
    ({"model": "m2"}, "none"),
]


@pytest.mark.parametrize("change, kept", CHANGES)
def test_a_change_voids_the_cache_from_there_on(change, kept):
    with FakeAPI([]) as api, client(api) as asker:
        before = send(asker, LONG, **AUTOMATIC).usage
        after = send(asker, {**LONG, **change}, **AUTOMATIC).usage
    assert (
        before.cache_read_input_tokens == before.input_tokens == after.input_tokens == 0
    )
    whole = before.cache_creation_input_tokens
    read = after.cache_read_input_tokens
    if kept == "all":
        assert read == whole
    elif kept == "some":
        assert 0 < read < whole
    else:
        assert read == 0


def test_a_mark_on_a_block_keeps_what_is_before_it():
    with FakeAPI([]) as api, client(api) as asker:
        before = send(asker, talk(FIRST_MARKED, SECOND, THIRD)).usage
        after = send(asker, talk(FIRST_MARKED, SECOND, THIRD)).usage
    assert before.cache_creation_input_tokens == after.cache_read_input_tokens > 0
    assert before.input_tokens == after.input_tokens > 0
    assert after.cache_creation_input_tokens == 0
