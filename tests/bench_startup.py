"""How long each lesson takes to start, against the imports that all of them need.  Run by hand:

    python tests/bench_startup.py [rounds]
"""
import subprocess
import sys
import time

from conftest import LESSONS, ROOT, clean_environment

LIMIT = 1.15  # times what the imports alone take
IMPORTS = "import anthropic, dotenv"


def seconds(*arguments):
    """The time from the start of Python to its end, with an empty line at the prompt."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], input=b"\n", capture_output=True, check=True, env=clean_environment())
    return time.perf_counter() - began


def main(rounds=7):
    commands = {IMPORTS: ["-c", IMPORTS], **{lesson: [ROOT / lesson / "agent.py"] for lesson in LESSONS}}
    taken = [{name: seconds(*arguments) for name, arguments in commands.items()} for _ in range(rounds)]
    best = {name: min(times[name] for times in taken) for name in commands}  # the rest is what else the machine did
    for name, least in best.items():
        print(f"{name:24} {least:6.3f} s  {least / best[IMPORTS]:.3f}")
    sys.exit(max(best.values()) > LIMIT * best[IMPORTS])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
