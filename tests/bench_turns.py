"""What a turn costs the harness itself, early and late in a session.  Run by hand:

    python tests/bench_turns.py [lesson]

A turn is a request, its reply and a tool.  The window is large, so nothing is compressed, and the
cost must not grow with the history.  What stands in for the client takes no time that counts, and
does not even look at the list: the SDK and the fake API read all of it, and so leave cold caches
behind that slow down what is measured after them.
"""

import contextlib
import io
import os
import sys
import time
from statistics import median

from anthropic.types import Message

from conftest import load

EARLY = 50  # the turn that is looked at, with those around it
LATE = 1_000
AROUND = 20  # turns on each side

WORDS = {"type": "text", "text": "I look."}


class Model:
    """What stands in for the client; `own` has the seconds that the harness took for each turn."""

    def __init__(self):
        self.own = []
        self.left = time.perf_counter()  # when the harness got the last reply

    def create(self, **request):
        self.own.append(time.perf_counter() - self.left)
        answer = reply(len(self.own))
        self.left = time.perf_counter()
        return answer


def reply(turn):
    """The reply of this turn: a call, until there were enough of them."""
    content = [WORDS]
    stop_reason = "end_turn"
    if turn < LATE + AROUND:
        content = [WORDS, bad_call(turn)]
        stop_reason = "tool_use"
    return Message.model_validate({
        "id": f"msg_{turn}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 100 * turn, "output_tokens": 40},
    })


def bad_call(turn):
    """A call without its argument, which starts no process."""
    return {"type": "tool_use", "id": f"toolu_{turn}", "name": "bash", "input": {}}


def seconds_a_turn(lesson):
    """The harness's own seconds in each turn of one session."""
    model = Model()
    lesson.client.messages.create = model.create
    sys.stdin = io.TextIOWrapper(io.BytesIO(b"Look a thousand times.\nq\n"), encoding="utf-8")
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
        lesson.main()
    return model.own


def typical(own, turn):
    """The median of the turns around this one, printed."""
    seconds = median(own[turn - AROUND:turn + AROUND])
    print(f"turn {turn:5,}: {seconds * 1e6:6,.0f} µs, median of the {2 * AROUND} turns around it")
    return seconds


def main(name="s05_context_compression"):
    os.environ["ANTHROPIC_API_KEY"] = "test"
    os.environ["CONTEXT_WINDOW"] = str(10**9)
    os.environ["PYTHON_DOTENV_DISABLED"] = "1"
    own = seconds_a_turn(load(name))
    early = typical(own, EARLY)
    late = typical(own, LATE)
    print(f"ratio: {late / early:.2f} (at most 1.5)")


if __name__ == "__main__":
    main(*sys.argv[1:])
