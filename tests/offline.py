"""Run a lesson with no key and no network:  python tests/offline.py s01_agent_loop [--tour] [--trace]

The script, the SDK, HTTP and the tools are real; only the model's words are scripted (tours.py).
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

from fake_api import FakeAPI, measure, says
from tours import CHILDREN, SUMMARY, TOUR

HERE = pathlib.Path(__file__).resolve().parent
WINDOW = 8_000  # tokens: small, so that s05 compresses within a tour
COMPRESS_AT = 0.7
GLYPH = {"parent": "█", "summary": "░"}  # any other is a child's


class Model:
    """The scripted model: finds the text it is asked about, and plays that text's next step.

    requests: of this lesson.  block: the tokens that a block of a bar stands for, 0 for no trace.
    drawn: what the trace noted, a (who, tokens) pair a request.
    """

    def __init__(self, requests, block):
        self.scripts = {**{text: ("parent", steps) for text, steps in requests.items()}, **CHILDREN}
        self.requests, self.block, self.step, self.drawn = list(requests), block, {}, []

    def __call__(self, request):
        said = [message["content"] for message in request["messages"] if message["role"] == "user"]
        text = next((text for content in reversed(said) for text in self.scripts if text in spoken(content)), None)
        who, steps = self.scripts.get(text, ("parent", []))
        if "## Session intent" in spoken(said[-1])[:200] and len(said) > 1:
            who, reply = "summary", SUMMARY
        else:
            self.step[text] = number = 0 if said[-1] == text else self.step.get(text, -1) + 1
            reply = steps[number] if number < len(steps) else says(
                "I am a script and know only these requests, by number:\n" + "\n".join(self.menu()))
        self.trace(who, request)
        return reply(request) if callable(reply) else reply

    def menu(self):
        return [f"  {number}  {text}" for number, text in enumerate(self.requests, 1)]

    def trace(self, who, request):
        if self.block:
            usage = measure(request, [], set())
            tokens = usage["input_tokens"] + usage["cache_creation_input_tokens"]
            self.drawn.append((who, tokens))
            print("\033[K" * sys.stdout.isatty() + f"{who:>8} {len(request['messages']):3} messages "
                  f"{len(request.get('tools', [])):2} tools {tokens:6,} tokens  "
                  + GLYPH.get(who, "▒") * (tokens // self.block), flush=True)


def spoken(content):
    """What a person, or a parent, wrote into a user turn; nothing of what tools returned."""
    return content if isinstance(content, str) else " ".join(block.get("text", "") for block in content)


def picture(drawn, block, limit):
    """The context over the requests, one column each, as lines of text.

    block: the tokens that a row stands for.  limit: in tokens, where compression bites.
    """
    yield f"tokens in the context, over {len(drawn)} requests: █ parent  ░ summary of it  ▒ child"
    for level in range(max(tokens for _, tokens in drawn) // block * block, 0, -block):
        empty = "╌╌" if level == limit // block * block else "  "
        columns = [GLYPH.get(who, "▒") * 2 if tokens >= level else empty for who, tokens in drawn]
        yield f"{level:6,} ┤{''.join(columns)}"
    yield f"{0:6} └" + "──" * len(drawn)


def typist(requests, tour):
    """What stands in for input(): a number becomes the request that it stands for; a tour types them all."""
    keyboard, left = builtins.input, [*requests, "/messages"]

    def typed(prompt):
        if tour and not left:
            raise EOFError
        line = left.pop(0) if tour else keyboard(prompt)
        if line.strip().isdecimal() and 1 <= int(line) <= len(requests):
            line = requests[int(line) - 1]
        if tour or line in requests:
            print(f"{prompt}{line}", flush=True)
        return line
    return typed


@contextlib.contextmanager
def workplace(**variables):
    """A copy of the sample project as working directory, and an environment that leads to the fake API alone."""
    before, folder = dict(os.environ), os.getcwd()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        os.environ.update(variables)
        os.environ.pop("ANTHROPIC_AUTH_TOKEN", None)
        try:
            os.chdir(shutil.copytree(HERE / "sample", pathlib.Path(place, "till")))
            yield
        finally:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(before)


def run(lesson, tour=False, trace=False):
    """Run the lesson's script against the scripted model, and draw the picture at the end if there is a trace."""
    compressing = "compression" in lesson
    block = 250 if compressing else 60
    model = Model(TOUR[lesson], block if trace else 0)
    print("Offline: no key, no network. The script, the SDK, HTTP and the tools are real; the model's words are scripted.")
    print("\n".join(["Type these by their numbers, in this order; /messages shows the list; an empty line leaves.", *model.menu()]))
    settings = {"CONTEXT_WINDOW": str(WINDOW), "COMPRESS_AT": str(COMPRESS_AT)} if compressing else {}
    with FakeAPI(model, window=WINDOW * 2) as api, workplace(
            ANTHROPIC_BASE_URL=api.url, ANTHROPIC_API_KEY="offline", MODEL="scripted", NO_PROXY="127.0.0.1",
            PYTHON_DOTENV_DISABLED="1", PYTHON=sys.executable, **settings):
        keyboard, builtins.input = builtins.input, typist(model.requests, tour)
        try:
            runpy.run_path(str(HERE.parent / lesson / "agent.py"), run_name="__main__")
        finally:
            builtins.input = keyboard
    if model.drawn:
        print("\n".join(picture(model.drawn, block, WINDOW * COMPRESS_AT)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lesson", choices=sorted(TOUR), type=lambda name: name.rstrip("/"))  # as completion types it
    parser.add_argument("--tour", action="store_true", help="type all the requests and leave")
    parser.add_argument("--trace", action="store_true", help="show each request as a bar, and the whole as a picture")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # the bars, also on a Windows pipe
    run(**vars(parser.parse_args()))


if __name__ == "__main__":
    main()
