"""Defines on which runtimes each kind of fault is possible, what it needs there, and which of these requirements this
machine lacks.

docs/faults.md contains, between two marker comments, the table that `table()` makes of all kinds.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from squall.chaos.errors import HarnessError
from squall.chaos.faults.kind import RUNTIMES, FaultKind, FaultTrait
from squall.chaos.faults.kinds import KINDS

BEGIN, END = "<!-- made by ./squall faults --markdown -->", "<!-- end -->"


@dataclass(frozen=True, slots=True)
class FaultRequirement:
    """Describes something that a fault needs on this machine, such as Linux or a container engine. `lacking` returns
    what is missing and how to get it, in one line; empty if nothing is missing.
    """

    name: str
    lacking: Callable[[], str]


def _linux() -> str:
    return "" if platform.system() == "Linux" else "not Linux: use runtime sim"


@cache
def _toxiproxy() -> str:
    from squall.chaos.toolchain import toxiproxy
    from squall.chaos.toolchain.cache import cache_folder

    if (cache_folder() / f"toxiproxy-{toxiproxy.VERSION}").is_dir() or shutil.which("toxiproxy-server"):
        return ""
    return f"Toxiproxy {toxiproxy.VERSION} is not here yet: the first run builds it with Go, half a minute"


@cache
def _engine() -> str:
    from squall.chaos.toolchain.engine import find_engine

    try:
        find_engine()
    except HarnessError as trouble:
        return " ".join(str(trouble).split())
    return ""


def _nothing() -> str:
    return ""


LINUX, TOXIPROXY, ENGINE = (
    FaultRequirement("Linux", _linux),
    FaultRequirement("Toxiproxy", _toxiproxy),
    FaultRequirement("a Docker engine", _engine),
)
BOOTSTRAP = FaultRequirement("--bootstrap HOST:PORT", _nothing)
COMPOSE = FaultRequirement("--compose FILE", _nothing)


def possible(kind: FaultKind, runtime: str) -> str:
    """Return "yes" if this kind of fault is possible on the runtime, a few words if only in part, or "" if it is not.
    """
    if runtime not in kind.worlds:
        return ""
    if runtime == "external" and FaultTrait.BY_SIGNAL in kind.traits:
        return "with a compose file"
    return "clients' side" if runtime == "external" and FaultTrait.OF_LINKS in kind.traits else "yes"


def needs(kind: FaultKind, runtime: str) -> tuple[FaultRequirement, ...]:
    """Return what a kind of fault needs on this machine if it is used on this runtime."""
    proxies = (TOXIPROXY,) if FaultTrait.OF_LINKS in kind.traits else ()
    match runtime:
        case "process":
            return (LINUX, *proxies)
        case "docker":
            return (LINUX, ENGINE)
        case "external":
            return (BOOTSTRAP, COMPOSE, ENGINE) if FaultTrait.BY_SIGNAL in kind.traits else (BOOTSTRAP, *proxies)
    return ()


def missing(found: Iterable[FaultRequirement]) -> tuple[str, ...]:
    """Return what this machine lacks of these requirements, one line each."""
    return tuple(lack for need in found if (lack := need.lacking()))


def everything() -> Mapping[str, FaultKind]:
    """Return all kinds of faults, by name."""
    return KINDS


def table() -> str:
    """Return the Markdown table of all kinds of faults: what each does, on which runtimes it is possible, and what
    proves that it had an effect.
    """
    head = ("action", "what it does", "class", "length, s", *RUNTIMES, "evidence that it landed", "and in its middle")
    lines = [_row(head), "|---" * len(head) + "|"]
    for kind in KINDS.values():
        fault_class = ", ".join(filter(None, (kind.fault_class, kind.worse_class)))
        length = f"{kind.duration_s.low:g} to {kind.duration_s.high:g}"
        where = (possible(kind, runtime) or "-" for runtime in RUNTIMES)
        lines.append(_row((f"`{kind.name}`", kind.title, fault_class, length, *where, kind.evidence, kind.middle)))
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def put_into(page: str) -> str:
    """Return the text of a page with the table of faults replaced by the present one. Raise ValueError if the page has
    no markers for the table.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table()}{END}{after}"
