"""Run a lesson with no key and no network:

    python tests/offline.py s01_agent_loop [--tour] [--trace] [--slow]

The script, the SDK, HTTP and the tools are real; only the model's words are scripted (tours.py).
In reading order: the scripted model, the trace, the keyboard, the run.
"""

import argparse
import builtins
import contextlib
import os
import pathlib
import runpy
import shutil
import sys
import tempfile
from dataclasses import dataclass

from fake_api import FakeAPI, Slow, measure, says
from tours import CHILDREN, TOUR, Script, sum_up

HERE = pathlib.Path(__file__).resolve().parent
WINDOW = 8_000  # tokens: small, so that s05 compresses within a tour
COMPRESS_AT = 0.7
SLOW = 3  # seconds that a reply takes with --slow: time for a Ctrl-C


# ---- The scripted model ------------------------------------------------------------------------


class Model:
    """The script of the fake API: finds the text it is asked about, and plays that text's next step.

    requests: {text: steps}, as the lesson's tour has them.  trace: where each request is noted.
    seconds: that each reply takes.
    """

    def __init__(self, requests, trace, seconds):
        self.scripts = dict(CHILDREN)
        for text, steps in requests.items():
            self.scripts[text] = Script("parent", steps)
        self.menu = menu(requests)
        self.trace = trace
        self.seconds = seconds
        self.played = {}  # text: how many of its steps were played

    def __call__(self, request):
        user_turns = [turn for turn in request["messages"] if turn["role"] == "user"]
        words = [spoken(turn["content"]) for turn in user_turns]
        if len(words) > 1 and "## Session intent" in words[-1][:200]:
            who = "summary"
            step = sum_up
        else:
            text = self.newest_text(words)
            who = self.scripts[text].who if text else "parent"
            step = self.next_step(text, words[-1])
        self.trace.note(who, request)
        reply = step(request) if callable(step) else step
        return Slow(self.seconds, reply) if self.seconds else reply

    def newest_text(self, words):
        """The text that was asked about last; None if nothing was said that has a script."""
        for said in reversed(words):
            for text in self.scripts:
                if text in said:
                    return text
        return None

    def next_step(self, text, last_words):
        if text is None:
            return self.what_there_is()
        if last_words.startswith(text):
            self.played[text] = 0  # it was said just now, maybe not for the first time
        steps = self.scripts[text].steps
        number = self.played.get(text, 0)
        self.played[text] = number + 1
        return steps[number] if number < len(steps) else self.what_there_is()

    def what_there_is(self):
        return says("I am a script and know only these requests, by number:\n" + self.menu)


def menu(requests):
    return "\n".join(f"  {number}  {text}" for number, text in enumerate(requests, 1))


def spoken(content):
    """What a person, or a parent, wrote into a user turn; nothing of what tools returned."""
    if isinstance(content, str):
        return content
    return " ".join(block.get("text", "") for block in content)


# ---- The trace ---------------------------------------------------------------------------------


@dataclass
class Drawn:
    """A request as the trace shows it."""

    who: str  # "parent", "summary" or a child's type
    tokens: int  # of the whole prompt

    @property
    def glyph(self):
        if self.who == "parent":
            return "█"
        if self.who == "summary":
            return "░"
        return "▒"


class Trace:
    """Prints each request as a bar, and at the end all of them as a picture.

    block: the tokens that a block of a bar stands for, or a row of the picture.
    shown: False for a trace of nothing.
    """

    def __init__(self, block, shown):
        self.block = block
        self.shown = shown
        self.drawn = []

    def note(self, who, request):
        if not self.shown:
            return
        usage = measure(request, [], set())
        drawn = Drawn(who, usage["input_tokens"] + usage["cache_creation_input_tokens"])
        self.drawn.append(drawn)
        messages = len(request["messages"])
        tools = len(request.get("tools", []))
        if sys.stdout.isatty():
            print("\033[K", end="")  # erase what a lesson left there while it waits
        print(
            f"{who:>8} {messages:3} messages {tools:2} tools {drawn.tokens:6,} tokens",
            drawn.glyph * (drawn.tokens // self.block),
            sep="  ",
            flush=True,
        )

    def picture(self, limit):
        """The context over the requests, one column each.

        limit: in tokens, where compression bites.
        """
        lines = [
            f"tokens in the context, over {len(self.drawn)} requests:"
            " █ parent  ░ summary of it  ▒ child"
        ]
        highest = max(drawn.tokens for drawn in self.drawn)
        for row in range(highest // self.block, 0, -1):
            level = row * self.block
            empty = "╌╌" if row == limit // self.block else "  "
            line = f"{level:6,} ┤"
            for drawn in self.drawn:
                line += drawn.glyph * 2 if drawn.tokens >= level else empty
            lines.append(line)
        lines.append(f"{0:6} └" + "──" * len(self.drawn))
        return "\n".join(lines)


# ---- The keyboard ------------------------------------------------------------------------------


class Keyboard:
    """What stands in for input(): a number becomes its request; a tour types all of them."""

    def __init__(self, requests, tour):
        self.requests = list(requests)
        self.tour = tour
        self.untyped = [*requests, "/messages"]  # by the tour
        self.input = builtins.input

    def __call__(self, prompt):
        if not self.tour:
            typed = self.input(prompt)
            line = self.request_for(typed)
            if line == typed:
                return line
        elif self.untyped:
            line = self.untyped.pop(0)
        else:
            raise EOFError
        print(f"{prompt}{line}", flush=True)
        return line

    def request_for(self, typed):
        number = typed.strip()
        if number.isdecimal() and 1 <= int(number) <= len(self.requests):
            return self.requests[int(number) - 1]
        return typed


@contextlib.contextmanager
def typing(keyboard):
    builtins.input = keyboard
    try:
        yield
    finally:
        builtins.input = keyboard.input


# ---- The run -----------------------------------------------------------------------------------


@contextlib.contextmanager
def workplace(variables):
    """A copy of the sample project as working directory, and an environment for the fake API."""
    folder = os.getcwd()
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        os.environ.update(variables)
        os.environ.pop("ANTHROPIC_AUTH_TOKEN", None)
        try:
            os.chdir(shutil.copytree(HERE / "sample", pathlib.Path(place, "till")))
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)


def run(lesson, tour=False, trace=False, slow=False):
    """Run the lesson's script against the scripted model; a trace ends in its picture."""
    requests = TOUR[lesson]
    compressing = "compression" in lesson
    print(
        "Offline: no key, no network.",
        "The script, the SDK, HTTP and the tools are real; the model's words are scripted.",
    )
    print(
        "Type these by their numbers, in this order;",
        "/messages shows the list; an empty line leaves.",
    )
    print(menu(requests))
    block = 250 if compressing else 60
    bars = Trace(block, shown=trace)
    model = Model(requests, bars, seconds=SLOW if slow else 0)
    with FakeAPI(model, window=WINDOW * 2) as api:
        variables = {
            "ANTHROPIC_API_KEY": "offline",
            "ANTHROPIC_BASE_URL": api.url,
            "MODEL": "scripted",
            "NO_PROXY": "127.0.0.1",
            "PAUSE": "0" if tour else "1",  # seconds, for a command that takes its time
            "PYTHON": sys.executable,
            "PYTHON_DOTENV_DISABLED": "1",
        }
        if compressing:
            variables["CONTEXT_WINDOW"] = str(WINDOW)
            variables["COMPRESS_AT"] = str(COMPRESS_AT)
        with workplace(variables), typing(Keyboard(requests, tour)):
            runpy.run_path(str(HERE.parent / lesson / "agent.py"), run_name="__main__")
    if bars.drawn:
        print(bars.picture(limit=WINDOW * COMPRESS_AT))


def lesson_name(word):
    return word.rstrip("/")  # as a shell's completion types it


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lesson", choices=sorted(TOUR), type=lesson_name)
    parser.add_argument("--tour", action="store_true", help="type all the requests and leave")
    parser.add_argument(
        "--trace", action="store_true", help="show each request as a bar, and all as a picture"
    )
    parser.add_argument(
        "--slow", action="store_true", help=f"let each reply take {SLOW} seconds: time for a Ctrl-C"
    )
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # the bars, also on a Windows pipe
    arguments = parser.parse_args()
    run(arguments.lesson, arguments.tour, arguments.trace, arguments.slow)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:  # before the lesson's own handling of it began
        print()
