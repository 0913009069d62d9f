"""Lists all that a machine lacks for a kind of run, and how to get it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from squall.chaos.errors import PreconditionError
from squall.chaos.typed import typed


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that is not here. `packages`: Debian's that bring it; `command`: what does, once those are there, as
    root; `flag`: of `squall setup`, which installs it. All three are empty where `what` says it all.
    """

    what: str
    packages: tuple[str, ...] = ()
    command: str = ""
    flag: str = ""


def one_line(lacks: Sequence[Lack]) -> str:
    """The shell's line that gets all that needs root, as root; empty where there is none."""
    packages = dict.fromkeys(name for lack in lacks for name in lack.packages)
    commands = dict.fromkeys(lack.command for lack in lacks if lack.command)
    installing = (f"apt-get install -y {' '.join(packages)}",) if packages else ()
    return " && ".join((*installing, *commands))


def remedy(lacks: Sequence[Lack]) -> str:
    """Return the commands that get all of it; empty if there are none. `squall setup` does root's part itself if root
    calls it.
    """
    flags = list(dict.fromkeys(lack.flag for lack in lacks if lack.flag))
    line = one_line(lacks if os.getuid() else [lack for lack in lacks if not lack.flag])
    return "; then: ".join(filter(None, (f"as root: {line}" if line else "", typed("setup", *flags) if flags else "")))


def refuse(asked: str, lacks: Sequence[Lack]) -> None:
    """Refused where anything is lacking, with each thing on a line of its own and how to get them all on the last."""
    if lacks:
        told = "\n".join(f"  {lack.what}" for lack in lacks)
        how = remedy(lacks)
        raise PreconditionError(f"{asked} needs what is not here:\n{told}" + (f"\nget it: {how}" if how else ""))
