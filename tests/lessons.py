"""The lessons as text: their lines of code, their definitions, and the diff from one to the next."""
import ast
import io
import os
import subprocess
import tokenize

from conftest import ROOT

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def path(lesson):
    return ROOT / lesson / "agent.py"


def source(lesson):
    return path(lesson).read_text(encoding="utf-8")


def code_lines(lesson):
    """How many lines hold code: no blanks, no comments, no docstrings."""
    text = source(lesson)
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, DOCUMENTED)]
    docs = {line for node in documented if ast.get_docstring(node) is not None
            for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)}
    code = {line for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in NO_CODE
            for line in range(token.start[0], token.end[0] + 1)}
    return len(code - docs)


def hunks(before, after):
    """The texts of the hunks between two lessons, as `git diff -U0` cuts them: lines that begin with - or +."""
    git = ["git", "diff", "--no-index", "--no-ext-diff", "--no-color", "--inter-hunk-context=0", "-U0"]
    plain = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}  # whoever runs it, one diff
    done = subprocess.run([*git, path(before), path(after)], capture_output=True, encoding="utf-8", env=plain)
    assert done.returncode < 2, done.stderr
    return [hunk.partition("\n")[2] for hunk in done.stdout.split("\n@@ ")[1:]]


def kept(before, after):
    """The share of the lines of one lesson that stand in the next."""
    gone = sum(line.startswith("-") for hunk in hunks(before, after) for line in hunk.splitlines())
    return 1 - gone / len(source(before).splitlines())


def definitions(lesson):
    """name: all lines at the top level that define it or alter it, in the order of the first of them.

    These are functions, classes and assignments, and then `X += ...`, `X.add(...)`, `X["key"] = ...`. What stands
    alone, such as a loop that checks a table, belongs to what is defined above it. Imports are left out.
    """
    text, found, above = source(lesson), {}, [""]
    for statement in ast.parse(text).body[1:]:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            continue
        above = names(statement, found) or above
        first = min(node.lineno for node in (statement, *getattr(statement, "decorator_list", [])))
        lines = text.splitlines(keepends=True)[first - 1:statement.end_lineno]
        for name in above:
            found[name] = found.get(name, "") + "".join(lines)
    return found


def names(statement, known):
    """What a statement at the top level defines, or alters of what is `known`."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [name for target in targets for name in roots(target)]
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.Delete(targets=[target]):
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
            return [name for part in parts for name in roots(part)]
        case ast.Subscript(value=inner) | ast.Attribute(value=inner) | ast.Starred(value=inner) | ast.Call(func=inner):
            return roots(inner)
    return []
