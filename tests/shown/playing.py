"""Plays one case: starts `./squall run`, kills what is to be killed, waits, and looks at what came of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.shown import leftovers
from tests.shown.case import Case
from tests.shown.row import HUNG, REFUSED, Row

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 900
"""Of a run. Nothing of a default run takes longer than a fifth of it."""
ENDING_S = 90
"""For a run that was asked to end."""
LEFT_S = 20
"""For watchdogs that end what a killed harness left."""


class Playing:
    """A run of `./squall` under way, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "said.txt"
        # A short path, for sockets in it; everything that a run leaves there is seen.
        self.temporary = Path(tempfile.mkdtemp(prefix="squall-shown-"))
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> Path:
        """What --runs is."""
        return self.folder / "runs"

    @property
    def latest(self) -> Path:
        """The run directory, once there is one."""
        return self.runs / "latest"

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """`./squall ARGUMENTS`, whose words go to the log."""
        marked = {leftovers.MARK: str(self.folder), "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [str(ROOT / "squall"), *arguments],
                cwd=ROOT,
                env={**os.environ, **marked, **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        return self.process

    def said(self) -> str:
        """All that it has printed so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait(self, limit_s: float = LIMIT_S) -> int | None:
        """The exit code; None where it does not end in time and has to be ended. Ctrl-C is passed on to it."""
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
        """End it in good order, or at least end it."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Remove its place for temporary files."""
        shutil.rmtree(self.temporary, ignore_errors=True)


def play(case: Case, out: Path, commit: str) -> Row:
    """Play a case in `out`/runs/NAME, which is emptied first."""
    folder = out / "runs" / case.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    playing = Playing(folder)
    began, load, clock = datetime.now(UTC), os.getloadavg()[0], time.monotonic()
    try:
        playing.start(*case.arguments, "--runs", str(playing.runs))
        code = playing.wait()
        wall_s = time.monotonic() - clock
        left = leftovers.left(folder, playing.temporary, LEFT_S)
        return _row(case, playing, code, wall_s, left, commit, began, load)
    finally:
        playing.end()
        playing.close()


def _row(
    case: Case,
    playing: Playing,
    code: int | None,
    wall_s: float,
    left: list[str],
    commit: str,
    began: datetime,
    load: float,
) -> Row:
    verdict, info = read_json(playing.latest / "verdict.json"), read_json(playing.latest / "run.json")
    word, reasons = verdict.get("verdict", "none"), list(verdict.get("reasons", ()))
    if code is None:
        word, reasons = HUNG, [f"it did not end within {LIMIT_S} s"]
    elif code == 3:
        word, reasons = REFUSED, playing.said().strip().splitlines()[-1:]
    faults = played_faults(playing.latest / "nemesis.jsonl")
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
        wall_s=round(wall_s, 1),
        acknowledged=info.get("counters", {}).get("acked"),
        faults=[f"{each['action']} {each['target']['asked']}".strip() for each in faults],
        landed=sum(1 for each in faults if each["evidence"] and not each["error"]) if info else None,
        left=left,
        commit=commit,
        began=began.isoformat(timespec="seconds"),
        load=round(load, 1),
    )


def played_faults(path: Path) -> list[dict[str, Any]]:
    """The last line of each fault; none where the file cannot be read."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    last: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            told = json.loads(line)
        except ValueError:
            continue  # the last one, of a harness that was killed
        last[told["id"]] = told
    return [last[each] for each in sorted(last)]


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; an empty one where there is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def commit_of_checkout() -> str:
    """The commit that is played, and whether files differ from it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty", "--abbrev=10"], cwd=ROOT, capture_output=True)
    return said.stdout.decode().strip()
