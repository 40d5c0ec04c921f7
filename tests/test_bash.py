"""bash: what comes back of a command, what it cannot do to the session, what is never run."""

import os
import select
import shutil
import signal
import sys
import tracemalloc

import pytest

from conftest import load
from fake_api import calls, says

pytestmark = pytest.mark.skipif(
    os.name != "posix", reason="the commands are written for a POSIX shell"
)


def bash(command):
    return "bash", {"command": command}


# The two texts of bash that there are.
@pytest.fixture(params=["s01_agent_loop", "s05_context_compression"])
def run(request, start):
    """``run(command, ..., **constants)``: the results as the model gets them.

    The session goes on after them.  constants: of the lesson, with the values to take instead.
    """

    def run(*commands, **constants):
        asked = [bash(command) for command in commands]
        session = start(request.param, [calls(*asked), says("Done.")])
        vars(session.lesson).update(constants)
        session.talk("go", "and now?")
        assert not session.api.refused
        assert session.sent()[-1]["content"] == "and now?"
        return session.sent()[2]["content"]

    return run


@pytest.fixture
def ended(environment):
    """``ended()``: that no process of ``exec 9> held; ...`` lives.

    Each has the pipe ``held`` open until its end.  So this asks no process table, where the dead
    stay listed until somebody collects them.
    """
    os.mkfifo("held")
    held = os.open("held", os.O_RDONLY | os.O_NONBLOCK)

    def ended():
        readable, _, _ = select.select([held], [], [], 5)
        return held in readable  # as it is when there is no more to come

    yield ended
    os.close(held)


# ---- What comes back ---------------------------------------------------------------------------


PRINTS = {
    "echo hi": "hi\n",
    "true": "(no output)",
    "echo out; echo err >&2; echo out; echo err >&2": "out\nerr\nout\nerr\n",
    "echo so; exit 3": "so\n\n[exit status 3]",
    "false": "\n[exit status 1]",
    "kill -9 $$": "\n[exit status -9]",
    r"printf '\377\300a\303\274'": "\ufffd\ufffda\u00fc",
    r"printf 'a\r\nb\rc'": "a\r\nb\rc",
    "echo one; echo two >> /dev/stderr; echo three": "one\ntwo\nthree\n",
    "echo two > /dev/stderr; echo three": "two\nthree\n",
}


def test_what_a_command_prints_is_the_result(run):
    results = run(*PRINTS)
    printed = [result["content"] for result in results]
    assert dict(zip(PRINTS, printed, strict=True)) == PRINTS
    assert not any(result["is_error"] for result in results)


def test_any_bytes_may_be_printed(run):
    [result] = run("head -c 20000 /dev/urandom")
    assert not result["is_error"]


def test_what_is_printed_does_not_steer_the_terminal(start):
    steering = r"printf 'a\033[31mb\007c\302\233d'"
    session = start("s01_agent_loop", [calls(bash(steering))])
    assert "\na[31mbcd\n" in session.talk("go")


@pytest.mark.parametrize(
    "size, missing",
    [
        (50_000, ""),
        (50_001, "\n[... 1 bytes not shown ...]\n"),
        (75_010, "\n[... 25,010 bytes not shown ...]\n"),
    ],
)
def test_of_a_long_output_head_and_tail_are_kept(start, size, missing):
    session = start("s01_agent_loop", [calls(bash("cat long"))])
    lines = [f"{number} e\n" for number in range(size)]
    long = "".join(lines)[:size]
    (session.folder / "long").write_text(long, encoding="utf-8")
    session.talk("go")
    [result] = session.results()
    assert result["content"] == long[:25_000] + missing + long[-25_000:]


def test_400_mb_of_output_cost_no_memory(run):
    tracemalloc.start()
    [result] = run("yes | head -c 400000000")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000
    assert "y\ny\n" in result["content"]
    assert "not shown" in result["content"]


# ---- What a command cannot do ------------------------------------------------------------------


def test_a_background_child_lives_on_and_does_not_hold_the_call(run, ended):
    [result] = run("exec 9> held; sleep 20 & echo $!", TIME_LIMIT=5)
    assert not result["is_error"]
    child = int(result["content"])
    os.kill(child, signal.SIGKILL)  # raises if it lives no more
    assert ended()


def test_a_command_that_reads_gets_nothing_and_eats_no_typing(run):
    reading, typing = os.pipe()
    os.set_blocking(reading, False)  # so that a test that fails does not hang
    os.write(typing, b"typed ahead\n")
    terminal = os.dup(0)
    os.dup2(reading, 0)
    try:
        [result] = run("cat; read line; echo got $line", TIME_LIMIT=5)
        assert os.read(0, 100) == b"typed ahead\n"
    finally:
        os.dup2(terminal, 0)
        for end in (reading, typing, terminal):
            os.close(end)
    assert result["content"] == "got\n"


def test_a_command_that_prints_for_ever_is_killed(run, ended):
    # It does end some time: if it is not killed, it ends well.
    endless = "exec 9> held; yes | head -c 200000000; sleep 5"
    [result] = run(endless, PRINT_LIMIT=1_000_000)
    assert result["is_error"]
    assert "killed" in result["content"]
    assert "y\ny\n" in result["content"]
    assert ended()


# A parent with two children, deaf to the polite signals.
FAMILY = (
    "exec 9> held; trap '' INT TERM HUP; echo before; "
    "(sleep 20; echo never) & sleep 20 & "
)


def test_at_the_time_limit_everything_dies_and_what_was_printed_is_told(run, ended):
    [result] = run(FAMILY + "sleep 20", TIME_LIMIT=0.3)
    assert result["is_error"]
    assert "killed after 0.3 s" in result["content"]
    assert result["content"].endswith("before\n")
    assert ended()


def test_on_ctrl_c_everything_dies_and_what_was_printed_is_told(run, ended):
    [result] = run(FAMILY + "sleep 0.1; kill -INT $PPID; sleep 20")
    assert result["is_error"]
    assert "Interrupted" in result["content"]
    assert result["content"].endswith("before\n")
    assert ended()


@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("pkill"),
    reason="needs a pkill that knows sessions",
)
def test_a_child_in_a_process_group_of_its_own_dies_too(run, ended):
    """As `timeout` makes one, which models like to put before what they run."""
    [result] = run("exec 9> held; timeout 60 sleep 20 | cat", TIME_LIMIT=0.3)
    assert result["is_error"]
    assert ended()


# ---- What is not run ---------------------------------------------------------------------------
# Asked of `is_denied` alone: no test hands these to a shell.

REFUSED = """
    rm -rf /
    rm -fr /
    rm -Rf /
    rm -r -f /
    rm -f --recursive /
    rm --no-preserve-root -rf /
    rm -rf -- /
    rm -rf /*
    rm -rf //
    rm -rf build /
    rm -rf / build
    rm -rf ~
    rm -rf ~/
    rm -rf ~/*
    rm -rf $HOME
    rm -rf "$HOME"
    rm -rf "$HOME"/*
    rm -rf /;
    rm -rf / 2>/dev/null
    rm -rf / # all of it
    /bin/rm -rf /
    sudo rm -rf /
    cd build && rm -rf /
    cd build; rm -rf /
    cd build || rm -rf /
    true | rm -rf /
    sleep 1 & rm -rf /
    (rm -rf /)
    { rm -rf /; }
    echo $(rm -rf /)
    mkfs /dev/sda
    mkfs.ext4 -q /dev/sda1
    dd if=/dev/zero of=/dev/sda bs=1M
    cat image > /dev/sda
    cat image >> /dev/vda1
    cat image >/dev/hdb
    shutdown
    shutdown -h now
    sudo reboot
    sync; poweroff
""".strip().splitlines()

HARMLESS = """
    rm -rf /tmp/x
    rm -rf /tmp/*
    rm -rf /tmp/x /tmp/y
    rm -rf build
    rm -rf build/ dist/
    rm -rf ./build/*
    rm -rf "my build/"
    rm -rf ~/project/build
    rm -rf "$HOME/project/build"
    rm -rf $TMPDIR/x
    rm -rf build 2> /dev/null
    rm -rf build; ls /
    rm -rf build && cd /
    rm -f /tmp/x
    rm notes~
    rm -r notes~
    rm reboot
    ls -R /
    cp -r / backup
    git rm -r --cached .
    docker run --rm -v /:/host -w / image
    ls 2> /dev/null
    ls > /dev/null 2>&1
    echo done > /dev/stderr
    echo done > /dev/tty
    dd if=/dev/sda of=image
    dd if=/dev/zero of=/dev/null count=1
    ls -l /dev/sda
    echo "rm -rf /"
    echo 'a; rm -rf /'
    echo "image > /dev/sda"
    grep -rn "rm -rf /" .
    grep -r reboot .
    git commit -m "It's done; reboot"
    git log --grep shutdown
    echo reboot
    man mkfs
    which mkfs.ext4
    cat shutdown.md
    ./reboot.sh
    python halt.py
    reboot-notes
    npm run shutdown
""".strip().splitlines()


def test_what_the_deny_list_refuses():
    is_denied = load("s01_agent_loop").is_denied
    assert [command for command in REFUSED if not is_denied(command.strip())] == []
    assert is_denied("echo hi\nrm -rf /\n")


def test_what_the_deny_list_lets_pass():
    is_denied = load("s01_agent_loop").is_denied
    assert [command for command in HARMLESS if is_denied(command.strip())] == []


def test_what_is_refused_is_not_run_and_the_model_is_told(run, environment):
    def deny_all(command):
        return True

    [result] = run("echo > made", is_denied=deny_all)
    assert result["is_error"]
    assert "not run: such a command could destroy this machine" in result["content"]
    assert not (environment / "made").exists()
