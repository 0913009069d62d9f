"""Runs the commands in our documentation pages in a clone, and compares their output with what the page shows.

A page uses this notation, which readers need as well:

- A command is a line of a code block that begins with `$ `. In a block without such lines it is a line that begins with
a program of `PROGRAM`.
- Its exit code is 0, unless the comment behind it says `exit code N`.
- A comment `until Ctrl-C` marks a command that runs until it is interrupted. The test interrupts it once the shown
output has been printed.
- Lines below it in the block, and in following blocks without a language or a command, are its output. Each must be in
the real output, in this order; other lines may be between them, and `...` matches anything. Line breaks do not count.
- All ids of runs are equal. A simulation repeats its figures, so they are compared; those of other commands are not
(`REPEATS`).
- `<!-- not played: REASON -->` above a block exempts it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:\./squall|squall|\.venv/bin/\S+|pip|npm|eval|git|curl|docker(?:-compose)?|cat|printf|cd|cp"
    r"|systemctl|bin/\S+|python3?|compose/\S+\.sh|tests/\S+\.sh|\.ci/\S+)(?: .*|$)"
)
NOT_PLAYED = re.compile(r"<!-- not played: (.+) -->")
CODE, UNTIL = re.compile(r"#.*\bexit code (\d+)"), re.compile(r"#.*\buntil Ctrl-C")
REPEATS = re.compile(r"\./squall (?:sim|replay|shrink|explain|guarantees|faults)\b")
"""Matches commands that print the same figures each time."""
RUN, UNKNOWN = re.compile(r"\./squall run\b"), 2
ID, NUMBER = re.compile(r"\d{8}T\d{6}"), re.compile(r"\d[\d,.]*\d|\d")
LIMIT_S = 1800.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page: where it is, the text to type, its comment, and the output lines that the page shows."""

    place: str
    text: str
    shown: tuple[str, ...] = ()
    not_played: str = ""

    @property
    def code(self) -> int:
        """Return the exit code that the page gives."""
        said = CODE.search(self.text)
        return int(said[1]) if said else 0

    @property
    def until_ctrl_c(self) -> bool:
        """Return whether the command runs until it is interrupted."""
        return UNTIL.search(self.text) is not None


def pages() -> list[str]:
    """Return the paths of all our pages below the checkout, those of the index first."""
    return [each.relative_to(ROOT).as_posix() for each in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))]


def commands(text: str, page: str = "page") -> list[Command]:
    """Return the commands in a page's text, in order."""
    found: list[Command] = []
    for block in _blocks(text):
        typed = False
        for number, line in block.lines:
            if line.startswith("$ ") if block.prompts else PROGRAM.fullmatch(line.strip()):
                found.append(Command(f"{page}:{number}", line.strip().removeprefix("$ "), (), block.not_played))
                typed = True
            elif found and line.strip() and (typed or block.continues) and not block.not_played:
                found[-1] = replace(found[-1], shown=(*found[-1].shown, line.strip()))
    return found


@dataclass(frozen=True, slots=True)
class _Block:
    """A code block. `lines` have their line numbers, and lines continued by a backslash are joined. `continues` says
    whether it may show more output of the command before it.
    """

    lines: list[tuple[int, str]]
    continues: bool
    not_played: str

    @property
    def prompts(self) -> bool:
        """Return whether its commands begin with `$ `."""
        return any(line.startswith("$ ") for _, line in self.lines)


def _blocks(text: str) -> Iterator[_Block]:
    """Yield fenced blocks without a language, and indented blocks."""
    lines, at, exempt = text.splitlines(), 0, ""
    while at < len(lines):
        line = lines[at]
        if said := NOT_PLAYED.match(line.strip()):
            exempt = said[1]
        fenced = line.strip().startswith("```")
        if not fenced and not line.startswith("    "):
            if line.strip() and not said:
                exempt = ""
            at += 1
            continue
        end = at + 1
        while end < len(lines) and (
            not lines[end].strip().startswith("```") if fenced else lines[end].startswith("    ")
        ):
            end += 1
        inside = [(number + 1, lines[number]) for number in range(at + fenced, end)]
        if line.strip() in ("```", "```sh") or not fenced:
            yield _Block(_joined(inside), fenced and line.strip() == "```", exempt)
        exempt, at = "", end + fenced


def _joined(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Join each line that ends with a backslash with the next one."""
    found: list[tuple[int, str]] = []
    for number, line in lines:
        if found and found[-1][1].endswith("\\"):
            found[-1] = (found[-1][0], found[-1][1][:-1] + line.strip())
        else:
            found.append((number, line))
    return found


def missing(command: Command, printed: str) -> str:
    """Return the first shown line that is not in the output behind the lines before it; empty if there is none."""
    exact = REPEATS.match(command.text) is not None
    text, at = _plain(printed, exact), 0
    for line in command.shown:
        parts = [re.escape(part.strip()) for part in _plain(line, exact).split("...")]
        there = re.compile(".*?".join(parts)).search(text, at)
        if there is None:
            return line
        at = there.end()
    return ""


def _plain(text: str, exact: bool) -> str:
    """Return the text without what differs from call to call: ids, widths and, unless `exact`, figures."""
    text = ID.sub("ID", re.sub(r"\x1b\[[\d;]*m", "", text))
    return " ".join((text if exact else NUMBER.sub("#", text)).split())


def played(typed: Iterable[Command], clone: Path, environment: Mapping[str, str]) -> list[str]:
    """Type the commands in a clone, in their order. Returns a sentence for each difference from the page."""
    wrong = []
    for command in typed:
        began = time.monotonic()
        code, printed = _typed(command, clone, environment)
        sys.stdout.write(f"{command.place}: {command.text}\n  exit code {code}, {time.monotonic() - began:.0f} s\n")
        if code == UNKNOWN != command.code and RUN.match(command.text):
            code, printed = _typed(command, clone, environment)  # a fault did not land: no word about the page
        why = f"ended with {code}" if code != command.code else ""
        if not why and (line := missing(command, printed)):
            why = f"did not print {line!r}"
        if why:
            wrong.append(f"{command.place}: {command.text}\n  {why}:\n{printed[-6000:]}")
            sys.stdout.write(f"{wrong[-1]}\n")
    return wrong


def _typed(command: Command, clone: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Type a command into a shell in the clone. Returns its exit code and output."""
    log = clone.parent / "printed.txt"
    with log.open("wb") as out:
        shell = subprocess.Popen(
            ["bash", "-c", command.text], cwd=clone, env=environment, stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            if command.until_ctrl_c:
                deadline = time.monotonic() + LIMIT_S
                while shell.poll() is None and missing(command, log.read_text(errors="replace")):
                    assert time.monotonic() < deadline, f"{command.place}: it never printed what is shown"
                    time.sleep(POLL_S)
                os.killpg(shell.pid, signal.SIGINT)
            code = shell.wait(LIMIT_S)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()
    return code, log.read_text(errors="replace")
