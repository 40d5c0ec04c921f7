"""The lessons as text: their lines of code, the diff from one to the next, and their definitions."""

import ast
import io
import os
import subprocess
import tokenize

from conftest import ROOT


def path(lesson):
    return ROOT / lesson / "agent.py"


def source(lesson):
    return path(lesson).read_text(encoding="utf-8")


# ---- Lines of code -----------------------------------------------------------------------------

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(lesson):
    """How many lines hold code: no blanks, no comments, no docstrings."""
    text = source(lesson)
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstring_lines(text))


def code_tokens(lesson):
    """The size of the code, whatever its layout: its names, numbers, strings and signs.

    Since Python 3.12 the parts of an f-string are tokens of their own; here it counts as one.
    """
    text = source(lesson)
    skipped = docstring_lines(text)
    count = 0
    depth = 0  # of f-strings in one another
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        name = tokenize.tok_name[token.type]
        is_end = name.endswith("STRING_END")
        if is_end:
            depth -= 1
        is_code = token.type not in NOT_CODE and token.start[0] not in skipped
        if is_code and depth == 0 and not is_end:
            count += 1
        if name.endswith("STRING_START"):
            depth += 1
    return count


def docstring_lines(text):
    lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, docstring.end_lineno + 1))
    return lines


# ---- The diff ----------------------------------------------------------------------------------

DIFF = [
    "git",
    "diff",
    "--no-index",
    "--no-ext-diff",
    "--no-color",
    "--inter-hunk-context=0",
    "-U0",
]
# Whoever runs it, one diff: nobody's settings count.
NO_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def hunks(before, after):
    """The hunks between two lessons, as `git diff -U0` cuts them.

    Each is a text whose lines begin with - or +.
    """
    done = subprocess.run(
        [*DIFF, path(before), path(after)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **NO_SETTINGS},
    )
    assert done.returncode < 2, done.stderr
    pieces = done.stdout.split("\n@@ ")[1:]
    return [piece.partition("\n")[2] for piece in pieces]  # without the line numbers


def kept(before, after):
    """The share of the lines of one lesson that stand in the next."""
    gone = 0
    for hunk in hunks(before, after):
        for line in hunk.splitlines():
            gone += line.startswith("-")
    return 1 - gone / len(source(before).splitlines())


# ---- The definitions ---------------------------------------------------------------------------


def definitions(lesson):
    """name: all lines at the top level that define it or alter it, in the order of the first.

    These are functions, classes and assignments, and then `X += ...`, `X.add(...)` and
    `X["key"] = ...`.  What stands alone, such as a loop that checks a table, belongs to what is
    defined above it.  Imports are left out.
    """
    text = source(lesson)
    found = {}
    above = [""]  # the names that the statement above defined or altered
    for statement in ast.parse(text).body[1:]:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            continue
        above = names(statement, found) or above
        for name in above:
            found[name] = found.get(name, "") + lines_of(statement, text)
    return found


def lines_of(statement, text):
    first = statement.lineno
    for decorator in getattr(statement, "decorator_list", []):
        first = min(first, decorator.lineno)
    lines = text.splitlines(keepends=True)
    return "".join(lines[first - 1:statement.end_lineno])


def names(statement, known):
    """What a statement at the top level defines, or alters of what is `known`."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            return roots_of_all(targets)
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            return roots(target)
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
            return [name for name in roots(method) if name in known]
    return []


def roots(target):
    """The names that a target begins with: `X` for `X["key"].y`, both for `X, Y`."""
    match target:
        case ast.Name(id=name):
            return [name]
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return roots_of_all(parts)
        case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Starred(value=inner):
            return roots(inner)
        case ast.Call(func=function):
            return roots(function)
    return []


def roots_of_all(targets):
    found = []
    for target in targets:
        found += roots(target)
    return found
