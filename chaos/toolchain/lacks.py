"""What a machine lacks for a kind of run, all of it at once, and one line that gets it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chaos.errors import Refused


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that is not here. `packages`: Debian's that bring it; `command`: what does, once those are there; both
    empty where `what` says it all.
    """

    what: str
    packages: tuple[str, ...] = ()
    command: str = ""


def one_line(lacks: Sequence[Lack]) -> str:
    """The shell's line that gets all of it, as root; empty where there is none."""
    packages = dict.fromkeys(name for lack in lacks for name in lack.packages)
    commands = dict.fromkeys(lack.command for lack in lacks if lack.command)
    installing = (f"apt-get install -y {' '.join(packages)}",) if packages else ()
    return " && ".join((*installing, *commands))


def refuse(asked: str, lacks: Sequence[Lack]) -> None:
    """Refused where anything is lacking, with each thing on a line of its own and how to get them all on the last."""
    if lacks:
        told = "\n".join(f"  {lack.what}" for lack in lacks)
        line = one_line(lacks)
        raise Refused(f"{asked} needs what is not here:\n{told}" + (f"\nget it, as root: {line}" if line else ""))
