"""What the scripted model of offline.py says: its reply at each step of each request that it knows.

A step is a reply as fake_api.py makes them, or a function from the request to one.  A reply that
claims something about a result is such a function: it looks at the result first.
In reading order: steps that look, the calls, the tour of each lesson, the children and the summary.
"""

import json
import os
import re
from dataclasses import dataclass

from fake_api import calls, says

# ---- Steps that look at the request ------------------------------------------------------------


def says_if(expected, words):
    """A step: these words, if the newest results hold each text in `expected`."""
    return if_found(expected, says(words))


def if_found(expected, then, otherwise=None):
    """A step: the reply `then`, if the newest results hold each text in `expected`.

    If one is missing: the reply `otherwise`, by default that it was not found.
    """

    def step(request):
        results = newest_results(request)
        for text in expected:
            if text not in results:
                return otherwise or says(f"I looked for {text!r} in the result and did not find it.")
        return then

    return step


def newest_results(request):
    """The text of all results since somebody last spoke to the model."""
    results = []
    for message in reversed(request["messages"]):
        if message["role"] == "user":
            if isinstance(message["content"], str):
                break
            results.extend(str(block.get("content", "")) for block in message["content"])
    return "\n".join(results)


def kept_file(kind, text):
    """The path of the newest file of this kind that `text` names, "result" or "history"; or None."""
    paths = re.findall(r"\.agent/[\w./-]+\.txt", text)
    paths = [path for path in paths if path.endswith(f"-{kind}.txt")]
    return paths[-1] if paths else None


def read_the_middle(request):
    path = kept_file("result", newest_results(request))
    if path is None:
        return says("The result names no file that has all of it, so I have no middle to read.")
    return calls(
        ("read_file", {"path": path, "offset": 1000, "limit": 3}),
        text="That was long, so only its ends are here. I look at the middle in the file.",
    )


def search_the_history(request):
    path = kept_file("history", json.dumps(request["messages"][0]))
    if path is None:
        return says("Nothing was summed up yet: my first message names no history file to search.")
    return calls(
        ("grep", {"pattern": "blue pot", "path": path}),
        text="I do not have that any more; the history file does.",
    )


def sum_up(request):
    printed = "Nothing was printed yet."
    if "sale 199 of 7960 cents" in json.dumps(request["messages"]):
        printed = "Sales were printed and some of them read."
    return says(
        f"## Session intent\nTry out the till.\n\n## Summary\n{printed}\n\n"
        "## Artifacts\nNone.\n\n## Next steps\nAnswer the latest request."
    )


# ---- The calls ---------------------------------------------------------------------------------
# offline.py sets these variables: commands name them, and so every machine shows the same words.

IS_POSIX = os.name == "posix"
PYTHON = '"$PYTHON"' if IS_POSIX else '"%PYTHON%"'
PAUSE = "$PAUSE" if IS_POSIX else "%PAUSE%"  # in seconds; 0 in a tour, which nobody interrupts
LOOK = "ls" if IS_POSIX else "dir /b"


def bash(command):
    return "bash", {"command": command}


def python(code):
    """A command that runs `code`, which has no double quotes."""
    return bash(f'{PYTHON} -c "{code}"')


def read_file(path):
    return "read_file", {"path": path}


def edit_till(old_text, new_text):
    return "edit_file", {"path": "till.py", "old_text": old_text, "new_text": new_text}


def plan(*statuses):
    items = []
    for text in ("find out why a check fails", "mend it", "write NOTES.md"):
        items.append({"text": text, "status": statuses[len(items)]})
    return "todo", {"items": items}


def delegate(agent_type, prompt, description):
    return "task", {"prompt": prompt, "agent_type": agent_type, "description": description}


def print_lines(count):
    return python(f"for n in range({count}): print('sale', n, 'of', 40 * n, 'cents')")


CHECK = bash(f"{PYTHON} check_till.py")
ALL_PASS = "3 of 3 checks passed"
FIX = edit_till("cents > 2000", "cents >= 2000")
FIX_BY_SHELL = python(
    "import pathlib; till = pathlib.Path('till.py'); "
    "till.write_text(till.read_text().replace('> 2000', '>= 2000'))"
)
COUNT_SLOWLY = python(
    f"for n in range(1, 11): import time; print(n, flush=True); time.sleep({PAUSE})"
)
COUNT_LINES = python(
    "import pathlib; texts = [p.read_text() for p in pathlib.Path('.').glob('*.py')]; "
    "print('lines:', sum(len(text.splitlines()) for text in texts))"
)
NOTE = "The discount now starts at 20 euros exactly."
WRITE_NOTE = ("write_file", {"path": "NOTES.md", "content": f"{NOTE}\n"})


# ---- The tour of each lesson -------------------------------------------------------------------

S01 = {
    "What is in this folder?": [
        calls(bash(LOOK), text="I will look."),
        says_if(
            ["till.py", "prices.csv", "check_till.py"],
            "A small till in Python, its prices, and a script that checks it.",
        ),
    ],
    "Do the checks pass?": [
        calls(CHECK),
        says_if(
            ["FAILED: 50 items should cost 1800 cents, not 2000", "2 of 3 checks passed"],
            "One of the three fails: 50 apples cost 20 euros exactly, "
            "and the discount is not taken off.",
        ),
    ],
    "Fix it.": [
        calls(
            FIX_BY_SHELL,
            CHECK,
            text="The comparison leaves out 20 euros itself. I change it, then I check again.",
        ),
        says_if(
            [ALL_PASS],
            "Mended: the discount now starts at 20 euros exactly, and all checks pass.",
        ),
    ],
    "Count to ten, slowly.": [
        calls(COUNT_SLOWLY),
        says_if(["10"], "Counted to ten."),
    ],
}

S02 = {
    "What does till.py do?": [
        calls(read_file("till.py")),
        says_if(
            ["cents > 2000", "cents -= cents // 10"],
            "It adds up prices in cents and takes a tenth off above 20 euros.",
        ),
    ],
    "Where are prices used?": [
        calls(
            ("glob", {"pattern": "*"}),
            ("grep", {"pattern": "prices"}),
            text="Two looks at once.",
        ),
        says_if(
            ["till.py:", "README.md:", "prices.csv"],
            "In till.py, which reads prices.csv; the README names it too.",
        ),
    ],
    "Give the discount at 20 euros exactly.": [
        calls(edit_till("cents", "cent")),
        if_found(
            ["exactly once", "found 7"],
            calls(FIX, CHECK, text="That text occurs too often. I quote more of the line."),
            otherwise=calls(FIX, CHECK),
        ),
        says_if([ALL_PASS], "Done, and all checks pass."),
    ],
    "Show me /etc/passwd.": [
        calls(read_file("/etc/passwd")),
        says_if(
            ["outside the working directory"],
            "My file tools stay inside this folder. (bash would not: it is no sandbox.)",
        ),
    ],
}

S03 = {
    "Find out why a check fails, mend it, and write down what changed.": [
        calls(plan("in_progress", "pending", "pending"), CHECK),
        calls(read_file("till.py")),
        calls(read_file("check_till.py")),
        calls(read_file("README.md")),
        calls(plan("completed", "in_progress", "pending"), text="Right, the list."),
        calls(FIX, CHECK),
        calls(plan("completed", "completed", "in_progress"), WRITE_NOTE),
        calls(plan("completed", "completed", "completed")),
        says_if(
            ["cents > 2000", ALL_PASS],
            "All three done. The discount started above 20 euros; now it starts at 20 euros.",
        ),
    ],
    "What did you write down?": [
        calls(read_file("NOTES.md")),
        says_if([NOTE], "That the discount now starts at 20 euros exactly."),
    ],
}

# What the subagents are asked, and what they say that the parent looks for.
EXPLORE = "How is the sum of a purchase made? Name the files."
MEND = "Mend the discount: 20 euros exactly should get it. Run the checks."
REVIEW = "Is the discount in till.py right? The rule is in README.md."
COUNT = "How many lines of Python are in this folder?"
EXPLORED = "Above 2000 cents a tenth comes off."
MENDED = "In till.py `>` became `>=`; 3 of 3 checks pass."
COUNTED = "About 30 lines in till.py and check_till.py."

S04 = {
    "How does the till work? Let a subagent find out.": [
        calls(delegate("explore", EXPLORE, "how the sum is made")),
        says_if(
            [EXPLORED],
            "till.py adds up the prices from prices.csv and takes a tenth off above 20 euros.",
        ),
    ],
    "Mend the discount; go on from what you know.": [
        calls(delegate("fix", MEND, "mend the discount")),
        says_if([MENDED], NOTE),
    ],
    "Have that looked at by somebody who has not seen it.": [
        calls(delegate("review", REVIEW, "is the discount right")),
        says_if(['"pass"'], "The review passed."),
    ],
}

TEN_STEPS = []
for number in range(1, 11):
    words = f"Step {number}. " + "This takes some words. " * 40
    TEN_STEPS.append(calls(bash(f"echo step {number}"), text=words))

S05 = {
    "The spare key of the till is under the blue pot. Now print 2,000 sales and read the middle.": [
        calls(print_lines(2000)),
        read_the_middle,
        says_if(["sale 1000 of 40000 cents"], "Noted. Sale 1,000 is of 40,000 cents."),
    ],
    "Print 200 sales four times, one time after the other, "
    "and in between let a subagent count the lines of code.": [
        calls(print_lines(200)),
        calls(delegate("code", COUNT, "count lines")),
        calls(print_lines(200)),
        calls(print_lines(200)),
        calls(print_lines(200)),
        says_if(
            [COUNTED, "sale 199 of 7960 cents"],
            "Printed four times; the subagent counted the lines of code.",
        ),
    ],
    "Sum up what we did, in ten steps.": [*TEN_STEPS, says("That was it.")],
    "Where is the spare key?": [
        search_the_history,
        says_if(
            ["under the blue pot"],
            "Under the blue pot: the first thing that you told me.",
        ),
    ],
}

TOUR = {
    "s01_agent_loop": S01,
    "s02_tools": S02,
    "s03_todo": S03,
    "s04_subagent": S04,
    "s05_context_compression": S05,
}


# ---- The children ------------------------------------------------------------------------------


@dataclass
class Script:
    """What is played for a text that somebody says to the model."""

    who: str  # "parent", or a child's agent type
    steps: list


def review(verdict, finding):
    answer = {
        "verdict": verdict,
        "findings": [finding],
        "not_verified": ["the checks were not run"],
    }
    return says(json.dumps(answer))


EXPLORE_STEPS = [
    calls(("glob", {"pattern": "*"})),
    calls(read_file("till.py"), read_file("prices.csv")),
    says_if(
        ["cents > 2000", "cents -= cents // 10", "item,cents"],
        f"till.py looks each item up in prices.csv and adds up the cents.\n{EXPLORED}\n"
        "Sources: till.py, prices.csv. Not verified: nothing was run.",
    ),
]
MEND_STEPS = [
    calls(FIX, CHECK),
    says_if([ALL_PASS], MENDED),
]
REVIEW_STEPS = [
    calls(read_file("till.py"), read_file("README.md")),
    if_found(
        ["cents >= 2000", "from 20 euros on"],
        review("pass", "till.py: a tenth comes off once, from 2000 cents on"),
        otherwise=review("fail", "till.py: 2000 cents exactly do not get the discount"),
    ),
]
COUNT_STEPS = [
    calls(print_lines(150)),
    calls(print_lines(150)),
    calls(COUNT_LINES),
    says_if(["lines: 28"], COUNTED),
]
CHILDREN = {  # prompt: its script
    EXPLORE: Script("explore", EXPLORE_STEPS),
    MEND: Script("fix", MEND_STEPS),
    REVIEW: Script("review", REVIEW_STEPS),
    COUNT: Script("code", COUNT_STEPS),
}
