"""What a turn costs the harness itself, early and late in a session:  python tests/bench_turns.py [lesson]

A turn is a request, its reply and a tool. The window is large, so nothing is compressed, and the cost must not grow
with the history. What stands in for the client takes no time that counts, and does not even look at the list: the SDK
and the fake API read all of it, and so leave cold caches behind that slow down what is measured after them.
"""

import contextlib
import io
import os
import sys
import time
from statistics import median

from anthropic.types import Message

EARLY, LATE, AROUND = 50, 1_000, 20  # turns, and how many on each side are looked at


def reply(turn):
    """The reply of this turn: a call, until there were enough of them."""
    content = [{"type": "text", "text": "I look."},
               {"type": "tool_use", "id": f"toolu_{turn}", "name": "bash", "input": {}}]  # a bad call starts no process
    last = turn >= LATE + AROUND
    return Message.model_validate({
        "id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "scripted", "stop_sequence": None,
        "content": content[:1] if last else content, "stop_reason": "end_turn" if last else "tool_use",
        "usage": {"input_tokens": 100 * turn, "output_tokens": 40}})


def turns(lesson):
    """The harness's own seconds in each turn of one session."""
    own, left = [], time.perf_counter()

    def create(**request):
        nonlocal left
        own.append(time.perf_counter() - left)
        answer = reply(len(own))
        left = time.perf_counter()
        return answer

    lesson.client.messages.create = create
    with contextlib.redirect_stdout(io.StringIO()):
        lesson.agent_loop([{"role": "user", "content": "Look a thousand times."}])
    return own


def main(name="s05_context_compression"):
    os.environ.update(ANTHROPIC_API_KEY="test", CONTEXT_WINDOW=str(10**9), PYTHON_DOTENV_DISABLED="1")
    from conftest import load
    own = turns(load(name))
    early, late = (median(own[turn - AROUND:turn + AROUND]) for turn in (EARLY, LATE))
    for turn, seconds in ((EARLY, early), (LATE, late)):
        print(f"turn {turn:5,}: {seconds * 1e6:6,.0f} µs, the median of the {2 * AROUND} turns around it")
    print(f"ratio: {late / early:.2f} (at most 1.5)")


if __name__ == "__main__":
    main(*sys.argv[1:])
