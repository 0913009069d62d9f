"""Measures which branches of the brokers a batch of simulations reaches, and finds those that it does not reach.

coverage.py does the measuring, in each process of the batch, and the analysis of the source. Branches outside of
functions are left out: they run as a module is loaded, before the first simulation. So is code that is generated from
Kafka's schema, with its generator: tests compare each of its messages with another library. A function that was never
called is one finding, whatever branches it has.

`unreached.toml` beside this file gives the reason of each branch that a large batch does not reach.
"""

from __future__ import annotations

import json
import tempfile
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain.places import ROOT

if TYPE_CHECKING:
    import coverage

Arc = tuple[int, int]
"""Is a jump from one line to another, as coverage.py records it."""
ArcsByFile = Mapping[str, Collection[Arc]]
"""Maps a file, by its path below the checkout, to arcs: jumps from one of its lines to another."""

MEASURED, LEFT_OUT = "broker", ("broker/protocol/schema", "broker/protocol/codegen")
"""Name the folder that is measured, and those in it that are left out."""
REASONS = Path(__file__).with_name("unreached.toml")
ReasonKind = Literal["impossible", "undrawn", "rare"]
IMPOSSIBLE: Final = "impossible"
UNDRAWN: Final = "undrawn"
RARE: Final = "rare"


def preload_coverage() -> None:
    """Import coverage.py, which processes that are forked later share. Raise PreconditionError if it is missing."""
    try:
        import coverage  # noqa: F401  # not for this function
    except ModuleNotFoundError:
        needs = "--coverage measures with coverage.py, which is not installed"
        raise PreconditionError(f"{needs}: pip install 'coverage>=7.17,<8'") from None


def _measuring(root: Path) -> coverage.Coverage:
    """Return a Coverage of the broker's files that neither reads settings nor writes files. It uses sys.monitoring
    if this Python can measure branches with it.
    """
    import coverage

    return coverage.Coverage(
        data_file=None,
        config_file=False,
        branch=True,
        include=[f"{root / MEASURED}/*"],
        omit=[f"{root / each}/*" for each in LEFT_OUT],
        messages=False,
    )


class ArcRecorder:
    """Records which branches (arcs: jumps from line to line) of the broker's files this process takes."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root, self._coverage = root, _measuring(root)
        self._taken: dict[str, set[Arc]] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the branches that this process takes inside the block."""
        self._coverage.start()
        try:
            yield
        finally:
            self._coverage.stop()

    def take_new(self) -> dict[str, set[Arc]]:
        """Return the arcs that were recorded since the last call, without any that an earlier call returned."""
        data, found = self._coverage.get_data(), {}
        for path in data.measured_files():
            file = Path(path).relative_to(self._root).as_posix()
            known = self._taken.setdefault(file, set())
            new = {(start, end) for start, end in data.arcs(path) or ()} - known
            known |= new
            if new:
                found[file] = new
        return found


@cache
def recorder() -> ArcRecorder:
    """Return the recorder of this process. Call it only after the process was forked: a recorder does not work across a
    fork.
    """
    return ArcRecorder()


# ------------------------------------------------------------------------------------------------------ the analysis


@dataclass(frozen=True, slots=True)
class UnreachedReason:
    """Says why no seed reaches some branches: an entry of unreached.toml."""

    kind: ReasonKind
    """Is `impossible` if no simulation can take the branches. It is `undrawn` if a simulation could, but no seed draws
    the conditions for it. It is `rare` if seeds draw these conditions, but so few of the seeds take the branches that a
    large batch may have none.
    """
    file: str
    """Is a pattern for the paths, below the checkout, of the files that contain the branches."""
    functions: tuple[str, ...]
    """Names the functions, as patterns; empty: all functions of the file."""
    branches: tuple[str, ...]
    """Names branches of these functions, as patterns of their text; empty: all branches."""
    reason: str

    def covers(self, branch: UnreachedBranch) -> bool:
        """Return whether this entry's patterns match the branch."""
        return (
            fnmatchcase(branch.file, self.file)
            and any(fnmatchcase(branch.function, name) for name in self.functions or ("*",))
            and any(fnmatchcase(branch.branch(), text) for text in self.branches or ("*",))
        )

    def may_be_about(self, branch: UnreachedBranch) -> bool:
        """Return whether this entry's patterns match the branch. If the branch is a whole function that was never
        called, return whether they may match any branch in that function.
        """
        if branch.target:
            return self.covers(branch)
        names = self.functions or ("*",)
        inside = any(fnmatchcase(branch.function, name) or name.startswith(f"{branch.function}.") for name in names)
        return inside and fnmatchcase(branch.file, self.file)

    def parts(self) -> tuple[UnreachedReason, ...]:
        """Split this entry into one entry for each of its functions. An entry without functions is returned as it is.
        """
        return tuple(replace(self, functions=(name,)) for name in self.functions) or (self,)

    def __str__(self) -> str:
        """Return this entry's patterns for the file, the functions and the branches, separated by ": "."""
        return ": ".join((self.file, *self.functions, *self.branches))


@dataclass(frozen=True, slots=True)
class UnreachedBranch:
    """Describes a branch that no seed took, or a function that no seed called."""

    file: str
    line: int
    function: str
    source: str
    """Is the text of the line at which the branch begins. If the function was never called, it is the function's first
    line.
    """
    target: str
    """Is the text of the line to which the branch leads, or "the end of the function". It is empty if the function was
    never called.
    """
    reason: UnreachedReason | None = None

    def branch(self) -> str:
        """Return the text of the branch's two lines, such as "if closed: -> return", or "never called: " and the
        function's first line.
        """
        return f"{self.source} -> {self.target}" if self.target else f"never called: {self.source}"


@dataclass(frozen=True, slots=True)
class ReachReport:
    """Compares the branches of the broker with those that a batch took."""

    branches: int
    """Counts the branches of all measured functions, taken or not."""
    reached: int
    functions: int
    called: int
    unreached: tuple[UnreachedBranch, ...]
    refuted: tuple[str, ...]
    """Names functions that unreached.toml calls impossible although every branch was taken."""

    def unexplained(self) -> list[UnreachedBranch]:
        """Return the unreached branches that have no reason."""
        return [each for each in self.unreached if each.reason is None]

    def explained(self, kind: str) -> list[UnreachedBranch]:
        """Return the unreached branches whose reason is of this kind: impossible, undrawn or rare."""
        return [each for each in self.unreached if each.reason is not None and each.reason.kind == kind]


def report_of(arcs: ArcsByFile, reasons: Collection[UnreachedReason], root: Path = ROOT) -> ReachReport:
    """Compare the arcs that were taken with the source of the broker below `root`."""
    branches = reached = functions = called = 0
    found: list[UnreachedBranch] = []
    for file, regions in sorted(_regions(arcs, root).items()):
        lines = (root / file).read_text().splitlines()
        uncalled: list[str] = []
        for function, region in regions.items():
            taken, missing = region["executed_branches"], region["missing_branches"]
            functions, branches, reached = functions + 1, branches + len(taken) + len(missing), reached + len(taken)
            if region["executed_lines"]:
                called += 1
                found += (_branch(file, function, lines, start, end) for start, end in missing)
            # Functions inside of one that was never called are no findings of their own.
            elif not any(function.startswith(f"{outer}.") for outer in uncalled):
                uncalled.append(function)
                line = region["start_line"]
                found.append(UnreachedBranch(file, line, function, lines[line - 1].strip(), ""))
    explained = tuple(_explained(each, reasons) for each in found)
    return ReachReport(branches, reached, functions, called, explained, tuple(_refuted(explained, reasons)))


def _regions(arcs: ArcsByFile, root: Path) -> dict[str, dict[str, Any]]:
    """Return what coverage.py says of each function: file -> qualified name -> its branches."""
    left_out = tuple(f"{root / each}/" for each in LEFT_OUT)
    files = [str(path) for path in (root / MEASURED).rglob("*.py") if not str(path).startswith(left_out)]
    measuring = _measuring(root)
    data = measuring.get_data()
    data.add_arcs({str(root / file): taken for file, taken in arcs.items()})
    # The report has no file of which nothing ran, unless it is named here.
    data.touch_files(files)
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "coverage.json"
        measuring.json_report(morfs=files, outfile=str(written))
        report = json.loads(written.read_text())
    return {
        # coverage.py writes paths relative to the working directory.
        Path.cwd().joinpath(path).relative_to(root).as_posix(): {
            name: region for name, region in each["functions"].items() if name and region["summary"]["num_statements"]
        }
        for path, each in report["files"].items()
    }


def _branch(file: str, function: str, lines: list[str], start: int, end: int) -> UnreachedBranch:
    target = lines[end - 1].strip() if end > 0 else "the end of the function"
    return UnreachedBranch(file, start, function, lines[start - 1].strip(), target)


# ------------------------------------------------------------------------------------------------------- the reasons


def read_reasons(path: Path = REASONS) -> tuple[UnreachedReason, ...]:
    """Return the reasons of branches in unreached.toml."""
    table = tomllib.loads(path.read_text())
    kinds: tuple[ReasonKind, ...] = (IMPOSSIBLE, UNDRAWN, RARE)
    return tuple(
        UnreachedReason(
            kind, row["file"], tuple(row.get("functions", ())), tuple(row.get("branches", ())), row["reason"]
        )
        for kind in kinds
        for row in table.get(kind, ())
    )


def read_path_reasons(path: Path = REASONS) -> dict[str, str]:
    """Return a mapping: rare code path -> why fewer than one seed in a thousand takes it."""
    return {row["name"]: row["reason"] for row in tomllib.loads(path.read_text()).get("path", ())}


def _explained(branch: UnreachedBranch, reasons: Iterable[UnreachedReason]) -> UnreachedBranch:
    return replace(branch, reason=next((each for each in reasons if each.covers(branch)), None))


def _refuted(unreached: Collection[UnreachedBranch], reasons: Iterable[UnreachedReason]) -> Iterator[str]:
    for reason in reasons:
        if reason.kind == IMPOSSIBLE:
            yield from (str(each) for each in reason.parts() if not any(map(each.may_be_about, unreached)))
