"""What the scripted model of offline.py says: for each lesson the requests it knows, and its reply at each step.

A step is a reply as fake_api.py makes them, or a function from the request to one, for what a script cannot know.
"""
import json
import os
import re

from dataclasses import dataclass

from fake_api import calls, says


@dataclass
class Script:
    who: str
    steps: list


LOOK = "ls" if os.name == "posix" else "dir /b"
PYTHON = '"$PYTHON"' if os.name == "posix" else '"%PYTHON%"'  # offline.py sets it, and so every machine tells the same
PAUSE = "$PAUSE" if os.name == "posix" else "%PAUSE%"  # seconds; 0 in a tour, where nobody wants to press Ctrl-C
CHECK = ("bash", {"command": f"{PYTHON} check_till.py"})
FIX = ("edit_file", {"path": "till.py", "old_text": "cents > 2000", "new_text": "cents >= 2000"})
FIX_BY_SHELL = ("bash", {"command": f"{PYTHON} -c \"import pathlib; till = pathlib.Path('till.py'); "
                                    "till.write_text(till.read_text().replace('> 2000', '>= 2000'))\""})


def plan(*statuses):
    texts = ["find out why a check fails", "mend it", "write NOTES.md"]
    return "todo", {"items": [{"text": text, "status": status} for text, status in zip(texts, statuses)]}


def delegate(agent_type, prompt, description):
    return "task", {"prompt": prompt, "agent_type": agent_type, "description": description}


def kept_file(request):
    """The path of the newest file that the lesson's compression has told the model of."""
    return re.findall(r"\.agent/[\w./-]+?\.txt", json.dumps(request["messages"]))[-1]


def read_the_middle(request):
    return calls(("read_file", {"path": kept_file(request), "offset": 1000, "limit": 3}),
                 text="That was long, so only its ends are here. I look at the middle in the file.")


def search_the_history(request):
    return calls(("grep", {"pattern": "blue pot", "path": kept_file(request)}),
                 text="I do not have that any more; the history file does.")


def count_slowly():
    return "bash", {"command": f'{PYTHON} -c "for n in range(1, 11): import time; print(n, flush=True); time.sleep({PAUSE})"'}


def print_lines(count):
    return "bash", {"command": f"{PYTHON} -c \"for n in range({count}): print('sale', n, 'of', 40 * n, 'cents')\""}


EXPLORE = "How is the sum of a purchase made? Name the files."
MEND = "Mend the discount: 20 euros exactly should get it. Run the checks."
REVIEW = "Is the discount in till.py right? The rule is in README.md."
COUNT = "How many lines of Python are in this folder?"
TOUR = {
    "s01_agent_loop": {
        "What is in this folder?": [
            calls(("bash", {"command": LOOK}), text="I will look."),
            says("A small till in Python, its prices, and a script that checks it."),
        ],
        "Do the checks pass?": [
            calls(CHECK),
            says("One of the three fails: 50 apples cost 20 euros exactly, and the discount is not taken off."),
        ],
        "Fix it.": [
            calls(FIX_BY_SHELL, CHECK, text="The comparison leaves out 20 euros itself. I change it, then I check again."),
            says("Mended: the discount now starts at 20 euros exactly, and all checks pass."),
        ],
        "Count to ten, slowly.": [
            calls(count_slowly()),
            says("Counted to ten."),
        ],
    },
    "s02_tools": {
        "What does till.py do?": [
            calls(("read_file", {"path": "till.py"})),
            says("It adds up prices in cents and takes a tenth off above 20 euros."),
        ],
        "Where are prices used?": [
            calls(("glob", {"pattern": "*"}), ("grep", {"pattern": "prices"}), text="Two looks at once."),
            says("In till.py, which reads prices.csv; the README names it too."),
        ],
        "Give the discount at 20 euros exactly.": [
            calls(("edit_file", {"path": "till.py", "old_text": "cents", "new_text": "cent"})),
            calls(FIX, CHECK, text="That text occurs too often. I quote more of the line."),
            says("Done, and all checks pass."),
        ],
        "Show me /etc/passwd.": [
            calls(("read_file", {"path": "/etc/passwd"})),
            says("My file tools stay inside this folder. (bash would not: it is no sandbox.)"),
        ],
    },
    "s03_todo": {
        "Find out why a check fails, mend it, and write down what changed.": [
            calls(plan("in_progress", "pending", "pending"), CHECK),
            calls(("read_file", {"path": "till.py"})),
            calls(("read_file", {"path": "check_till.py"})),
            calls(("read_file", {"path": "README.md"})),
            calls(plan("completed", "in_progress", "pending"), text="Right, the list."),
            calls(FIX, CHECK),
            calls(plan("completed", "completed", "in_progress"),
                  ("write_file", {"path": "NOTES.md", "content": "The discount now starts at 20 euros exactly.\n"})),
            calls(plan("completed", "completed", "completed")),
            says("All three done. The discount started above 20 euros; now it starts at 20 euros."),
        ],
        "What did you write down?": [
            calls(("read_file", {"path": "NOTES.md"})),
            says("That the discount now starts at 20 euros exactly."),
        ],
    },
    "s04_subagent": {
        "How does the till work? Let a subagent find out.": [
            calls(delegate("explore", EXPLORE, "how the sum is made")),
            says("till.py adds up the prices from prices.csv and takes a tenth off above 20 euros."),
        ],
        "Mend the discount; go on from what you know.": [
            calls(delegate("fix", MEND, "mend the discount")),
            says("The discount now starts at 20 euros exactly."),
        ],
        "Have that looked at by somebody who has not seen it.": [
            calls(delegate("review", REVIEW, "is the discount right")),
            says("The review passed."),
        ],
    },
    "s05_context_compression": {
        "The spare key of the till is under the blue pot. Now print 2,000 sales and read the middle.": [
            calls(print_lines(2000)),
            read_the_middle,
            says("Noted. Sale 1,000 is of 40,000 cents."),
        ],
        "Print 200 sales four times, one time after the other, and in between let a subagent count the lines of code.": [
            calls(print_lines(200)),
            calls(delegate("code", COUNT, "count lines")),
            calls(print_lines(200)),
            calls(print_lines(200)),
            calls(print_lines(200)),
            says("Printed four times; the subagent counted the lines of code."),
        ],
        "Sum up what we did, in ten steps.": [
            *[calls(("bash", {"command": f"echo step {n}"}), text=f"Step {n}. " + "This takes some words. " * 40)
              for n in range(1, 11)],
            says("That was it."),
        ],
        "Where is the spare key?": [
            search_the_history,
            says("Under the blue pot: the first thing that you told me."),
        ],
    },
}
CHILDREN = {  # prompt: (agent type, steps)
    EXPLORE: Script("explore", [
        calls(("glob", {"pattern": "*"})),
        calls(("read_file", {"path": "till.py"}), ("read_file", {"path": "prices.csv"})),
        says("till.py looks each item up in prices.csv and adds up the cents.\nAbove 2000 cents a tenth comes off.\n"
             "Sources: till.py, prices.csv. Not verified: nothing was run."),
    ]),
    MEND: Script("fix", [
        calls(FIX, CHECK),
        says("In till.py `>` became `>=`; 3 of 3 checks pass."),
    ]),
    REVIEW: Script("review", [
        calls(("read_file", {"path": "till.py"}), ("read_file", {"path": "README.md"})),
        says(json.dumps({"verdict": "pass", "findings": ["till.py: a tenth comes off once, from 2000 cents on"],
                         "not_verified": ["the checks were not run"]})),
    ]),
    COUNT: Script("code", [
        calls(print_lines(150)),
        calls(print_lines(150)),
        calls(("bash", {"command": f"{PYTHON} -c \"import pathlib; print(sum(len(p.read_text().splitlines()) "
                                   "for p in pathlib.Path('.').glob('*.py')))\""})),
        says("About 30 lines in till.py and check_till.py."),
    ]),
}
SUMMARY = says("## Session intent\nTry out the till.\n\n## Summary\nSales were printed and some of them read.\n\n"
               "## Artifacts\nNone.\n\n## Next steps\nAnswer the latest request.")
