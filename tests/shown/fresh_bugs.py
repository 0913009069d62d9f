"""Searches for bugs that an author planted without seeing plans and invariants: patches of broker/ in
tests/fresh_bugs/SET.

A patch begins with lines `Kind: ...`, `Workload: ...` and `Bug: ...`, followed by the diff. Each bug is planted in a
copy of the checkout, and searched twice: with randomly drawn plans (`--swarm`), and with drawn plans of the workload
that it names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.shown.batches import SIGNATURE, Called
from tests.shown.table import ROOT, Sitting, Table, add

FOLDER = ROOT / "tests/fresh_bugs"
CODE = ("broker", "chaos", "checkers", "plans", "reports", "spark_analysis", "workloads")
FIRST_SEED = 40_000
"""The first seed of each search. No other batch of seeds in docs/shown goes so far."""
SEEDS_AT_ONCE = 6
SWARM_S, WORKLOAD_S = 150.0, 200.0
"""CPU seconds for the search with plans of any workload, and for the one with the bug's own workload."""
BUGS = Table(
    "fresh_bugs",
    "Fresh bugs",
    "A row is one bug that was written with broker/ alone in view, hunted by `./squall sim --swarm` with all checks "
    f"from seed {FIRST_SEED} on, for at most {SWARM_S:.0f} CPU s, and for {WORKLOAD_S:.0f} CPU s with its workload. "
    "What fails without the bug as well does not count.",
    ("set", "#", "kind", "bug", "plain swarm", "seeds", "CPU s", "workload", "its swarm", "seeds of it", "CPU s of it"),
    keys=2,
)
Say = Callable[[str], None]
_SPENT = re.compile(r"virtual s in (\d+) CPU s")
_HEAD = re.compile(r"^(Kind|Workload|Bug): (.+)$", re.MULTILINE)


class WrongPatchError(Exception):
    """A patch lacks its first lines, or does not apply. The message says which patch and why."""


@dataclass(frozen=True, slots=True)
class FreshBug:
    """A patch with its kind, workload and description."""

    file: Path
    kind: str
    workload: str
    text: str

    @classmethod
    def read(cls, file: Path) -> FreshBug:
        """Read a patch. Raises WrongPatchError if its first lines are not complete."""
        head = dict(_HEAD.findall(file.read_text().partition("diff --git")[0]))
        if lacking := {"Kind", "Workload", "Bug"} - head.keys():
            raise WrongPatchError(f"{file}: no line `{sorted(lacking)[0]}: ...` before the diff")
        return cls(file, head["Kind"], head["Workload"], head["Bug"])

    def plant(self, folder: Path) -> None:
        """Copy the checkout's code into `folder`, with this bug. Raises WrongPatchError if the patch does not apply."""
        for name in CODE:
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "squall.py", folder)
        done = subprocess.run(["git", "apply", "-C1", str(self.file)], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise WrongPatchError(f"{self.file}: {done.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class HuntResult:
    """The result of a search: the failure, and the seeds and CPU seconds used. `found` is empty if it missed the bug.
    """

    found: str
    seeds: int
    cpu_s: int

    @property
    def cells(self) -> tuple[object, ...]:
        """Return its cells of the table's row."""
        return (self.found or "**missed**", self.seeds, self.cpu_s)


def hunt(code: Path, words: Sequence[str], limit_s: float) -> HuntResult:
    """Simulate seeds with the code in a folder until one fails, or `limit_s` CPU seconds are used."""
    seed, spent_s = FIRST_SEED, 0
    command = (sys.executable, "-m", "squall.chaos", "sim", "--swarm", *words, "--jobs", "2", "--out", "runs")
    while spent_s < limit_s:
        seeds = f"{seed}..{seed + SEEDS_AT_ONCE}"
        called = Called(*command, "--seeds", seeds, cwd=code, environment={**os.environ, "PYTHONPATH": str(code)})
        spent = _SPENT.search(called.said)
        if spent is None:
            return HuntResult(f"no simulation: exit code {called.code}", seed - FIRST_SEED, spent_s)
        seed, spent_s = seed + SEEDS_AT_ONCE, spent_s + int(spent[1])
        for signature in SIGNATURE.findall(called.said):
            if _is_sound_without(signature, command):
                return HuntResult(signature, seed - FIRST_SEED, spent_s)
    return HuntResult("", seed - FIRST_SEED, spent_s)


def _is_sound_without(signature: str, command: Sequence[str]) -> bool:
    """Return whether the seed that a signature names is valid or unknown without the bug: else its failure is a false
    alarm, or another bug.
    """
    seed = int(signature.rpartition(" ")[2])
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    called = Called(*command, "--seeds", f"{seed}..{seed + 1}", cwd=ROOT, environment=environment)
    return not SIGNATURE.search(called.said)


def show_fresh_bugs(of_set: str, sitting: Sitting, docs: Path, say: Say) -> list[str]:
    """Search each bug of a set, and add a row as each search ends. Returns a sentence for each missed bug."""
    wrong = []
    files = sorted((FOLDER / of_set).glob("*.patch"))
    if not files:
        sets = ", ".join(sorted(folder.name for folder in FOLDER.iterdir()))
        raise WrongPatchError(f"there is no set of fresh bugs {of_set!r}: there are {sets}")
    for file in files:
        bug = FreshBug.read(file)
        with tempfile.TemporaryDirectory(prefix="squall-fresh-bug-") as folder:
            code = Path(folder)
            bug.plant(code)
            plain = hunt(code, (), SWARM_S)
            own = hunt(code, ("--workload", bug.workload), WORKLOAD_S)
        number, _, name = file.stem.partition("-")
        say(f"{of_set}, {file.stem}: {plain.found or 'missed'}; {bug.workload}: {own.found or 'missed'}")
        row = (of_set, number, bug.kind, f"{name}: {bug.text}", *plain.cells, bug.workload, *own.cells)
        add(BUGS, [row], sitting, docs)
        wrong += [] if plain.found or own.found else [f"{of_set}, {file.stem}: missed"]
    return wrong
