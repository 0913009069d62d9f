"""Plays one case: starts `./squall run`, kills the part that the case names, waits for the end, and makes the table's
row.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from squall.chaos.toolchain.engine import SOCKET
from tests.shown import leftovers
from tests.shown.case import Case
from tests.shown.kills import PARTS, Missed, Part, kill_at
from tests.shown.row import CODES, HUNG, REFUSED, Row
from tests.shown.table import ROOT
from tests.shown.words import played_faults, read_json

LIMIT_S = 900
"""Time limit of a run. No phase of a default run takes longer than a fifth of it."""
ENDING_S = 90
"""Time limit for a run to end after SIGINT."""
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a harness that was killed."""
LEFT_S = 20
"""Time limit for watchdogs to end what a killed harness left."""


class Playing:
    """A run of `./squall` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "said.txt"
        # A short path, for sockets in it; everything that a run leaves there is seen.
        self.temporary = Path(tempfile.mkdtemp(prefix="squall-shown-"))
        self.process: subprocess.Popen[bytes] | None = None
        self.runs = folder / "runs"
        """The value of --runs."""
        self.arguments: tuple[str, ...] = ()
        """Arguments of the case's command."""
        self.inside: tuple[str, ...] = ()
        """Prefix of the command, which lets it run in another network namespace."""
        self.socket = Path(SOCKET)
        """Socket of the Docker engine that the run uses."""

    @property
    def latest(self) -> Path:
        """Return the path of the run directory, which exists once the run has made it."""
        return self.runs / "latest"

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start `./squall ARGUMENTS` with its output in the log."""
        marked = {leftovers.MARK: str(self.folder), "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [*self.inside, str(ROOT / "squall"), *arguments],
                cwd=ROOT,
                env={**os.environ, **marked, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return self.process

    def said(self) -> str:
        """Return all output so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait(self, limit_s: float = LIMIT_S) -> int | None:
        """Return the exit code; None if the run exceeds `limit_s` and is ended. Ctrl-C is passed on to the run."""
        assert self.process is not None
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.end()
            return None
        except KeyboardInterrupt:
            self.end()
            raise

    def end(self) -> None:
        """End the run by SIGINT, or else by SIGKILL."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Remove the run's TMPDIR."""
        shutil.rmtree(self.temporary, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Played:
    """The end of a run. code: None if it exceeded the limit. missed: why nothing was killed; empty if something was."""

    code: int | None
    wall_s: float
    missed: str


def play(case: Case, out: Path, commit: str) -> Row:
    """Play a case in `out`/runs/NAME, which is emptied first. Raises NoEngine if it needs a private Docker engine and
    there cannot be one.
    """
    folder = out / "runs" / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    playing = Playing(folder)
    began, load = datetime.now(UTC), os.getloadavg()[0]
    part = PARTS.get(case.kill)
    try:
        with part.around(playing) if part else nullcontext({}) as variables:
            played = _played(case, playing, part, variables)
        left = leftovers.left(folder, playing.temporary, LEFT_S, playing.socket, playing.inside)
        again = _judged_again(playing) if case.kill and played.code in KILLED else ""
        return _row(case, playing, played, left, again, commit, began, load)
    finally:
        playing.end()
        playing.close()


def _played(case: Case, playing: Playing, part: Part | None, variables: Mapping[str, str]) -> Played:
    clock, missed = time.monotonic(), ""
    playing.arguments = case.arguments
    playing.start(*case.arguments, "--runs", str(playing.runs), **variables)
    if part is not None:
        try:
            kill_at(case.moment, part, playing)
        except Missed as error:
            missed = str(error)
    code = playing.wait()
    played = Played(code, time.monotonic() - clock, missed)
    if part is not None:
        part.afterwards(playing)
    return played


def _judged_again(playing: Playing) -> str:
    """Return the verdict of `./squall verify` on what a killed run left, or that nothing was recorded."""
    if not (playing.latest / "plan.toml").exists():
        return "nothing was recorded"
    code = playing.start("verify", str(playing.latest)).wait(LIMIT_S)
    said = read_json(playing.latest / "verdict.json").get("verdict", "")
    return str(said) if CODES.get(said) == code else f"{said or 'no verdict'} with exit code {code}"


def _row(
    case: Case,
    playing: Playing,
    played: Played,
    left: list[str],
    judged_again: str,
    commit: str,
    began: datetime,
    load: float,
) -> Row:
    code = played.code
    verdict, info = read_json(playing.latest / "verdict.json"), read_json(playing.latest / "run.json")
    word, reasons = verdict.get("verdict", "none"), list(verdict.get("reasons", ()))
    if judged_again:
        word = "none"
    if code is None:
        word, reasons = HUNG, [f"it did not end within {LIMIT_S} s"]
    elif code == 3:
        word, reasons = REFUSED, playing.said().strip().splitlines()[-1:]
    faults = played_faults(playing.latest)
    return Row(
        name=case.name,
        group=case.group,
        seed=case.seed,
        command=case.command,
        kill=case.kill,
        moment=case.moment,
        verdict=word,
        exit_code=-1 if code is None else code,
        reasons=reasons,
        wall_s=round(played.wall_s, 1),
        acknowledged=info.get("counters", {}).get("acked"),
        faults=[f"{each['action']} {each['target']['asked']}".strip() for each in faults],
        landed=sum(1 for each in faults if each["evidence"] and not each["error"]) if info else None,
        left=left,
        judged_again=judged_again,
        missed=played.missed,
        commit=commit,
        began=began.isoformat(timespec="seconds"),
        load=round(load, 1),
    )
