"""Lists all that a machine lacks for a kind of run, and how to get it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from squall.chaos.errors import PreconditionError
from squall.chaos.typed import typed


@dataclass(frozen=True, slots=True)
class MissingDependency:
    """Describes something that is missing on this machine, in words (`what`). `packages`: Debian packages that bring
    it; `command`: what root runs after installing these packages; `flag`: the flag of `squall setup` that installs it.
    Each may be empty.
    """

    what: str
    packages: tuple[str, ...] = ()
    command: str = ""
    flag: str = ""


def one_line(lacks: Sequence[MissingDependency]) -> str:
    """Return one shell command for root: it installs all Debian packages in `lacks`, then runs all commands in `lacks`.
    Empty if there are none.
    """
    packages = dict.fromkeys(name for lack in lacks for name in lack.packages)
    commands = dict.fromkeys(lack.command for lack in lacks if lack.command)
    installing = (f"apt-get install -y {' '.join(packages)}",) if packages else ()
    return " && ".join((*installing, *commands))


def remedy(lacks: Sequence[MissingDependency]) -> str:
    """Return the commands that install what `lacks` lists: a shell command for root, then `squall setup` with its
    flags. Empty if there is no command. For root, the shell command leaves out what has a flag, because root's `squall
    setup` installs that completely.
    """
    flags = list(dict.fromkeys(lack.flag for lack in lacks if lack.flag))
    line = one_line(lacks if os.getuid() else [lack for lack in lacks if not lack.flag])
    return "; then: ".join(filter(None, (f"as root: {line}" if line else "", typed("setup", *flags) if flags else "")))


def refuse(asked: str, lacks: Sequence[MissingDependency]) -> None:
    """Raise PreconditionError if `lacks` is not empty. Its message has a line for each missing thing, and a last line
    that says how to get all.

    asked: the thing that cannot be had without them, such as "Apache Kafka"; the message begins with it.
    """
    if lacks:
        lines = "\n".join(f"  {lack.what}" for lack in lacks)
        how = remedy(lacks)
        raise PreconditionError(f"{asked} needs what is not here:\n{lines}" + (f"\nget it: {how}" if how else ""))
