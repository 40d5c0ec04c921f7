"""How long each lesson takes to start, against the imports that all of them need.  Run by hand:

    python tests/bench_startup.py [rounds]
"""

import subprocess
import sys
import time

from conftest import LESSONS, ROOT, clean_environment

LIMIT = 1.15  # times what the imports alone take
IMPORTS = "import anthropic, dotenv"


def seconds(arguments):
    """The time from the start of Python to its end, with an empty line at the prompt."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        input=b"\n",
        capture_output=True,
        check=True,
        env=clean_environment(),
    )
    return time.perf_counter() - began


def fastest(rounds):
    """The least seconds of each in so many rounds: the rest is what else the machine did."""
    commands = {IMPORTS: ["-c", IMPORTS]}
    for lesson in LESSONS:
        commands[lesson] = [ROOT / lesson / "agent.py"]
    best = {}
    for _ in range(rounds):
        for name, arguments in commands.items():
            taken = seconds(arguments)
            best[name] = min(taken, best.get(name, taken))
    return best


def main(rounds=7):
    best = fastest(rounds)
    for name, least in best.items():
        print(f"{name:24} {least:6.3f} s  {least / best[IMPORTS]:.3f}")
    if max(best.values()) > LIMIT * best[IMPORTS]:
        sys.exit(f"one takes over {LIMIT} times as long as the imports")


if __name__ == "__main__":
    main(*[int(word) for word in sys.argv[1:]])
