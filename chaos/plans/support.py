"""What can be broken where: each action on each runtime, what it needs there, and what of that is missing here.

The page docs/faults.md holds the table that `table()` makes of the registry, between its markers.
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from chaos.errors import HarnessError
from chaos.faults.action import Action
from chaos.faults.link_actions import LINK_ACTIONS
from chaos.faults.vocabulary import ACTIONS
from chaos.plans.external import ASKED, ON_CONTAINERS, ON_LINKS

RUNTIMES = ("process", "docker", "sim", "external")
BEGIN, END = "<!-- made by ./squall faults --markdown -->", "<!-- end -->"
THROUGH_PROXIES = frozenset({*(action.name for action in LINK_ACTIONS), "reset", "protocol"})


@dataclass(frozen=True, slots=True)
class Need:
    """Something that has to be there. `lacking`: what is missing and how to get it, in one line; empty where it is."""

    name: str
    lacking: Callable[[], str]


def _linux() -> str:
    return "" if platform.system() == "Linux" else "not Linux: use runtime sim"


@cache
def _toxiproxy() -> str:
    from chaos.toolchain import toxiproxy
    from chaos.toolchain.cache import cache_folder

    if (cache_folder() / f"toxiproxy-{toxiproxy.VERSION}").is_dir() or shutil.which("toxiproxy-server"):
        return ""
    return f"Toxiproxy {toxiproxy.VERSION} is not here yet: the first run builds it with Go, half a minute"


@cache
def _engine() -> str:
    from chaos.toolchain.engine import find_engine

    try:
        find_engine()
    except HarnessError as trouble:
        return " ".join(str(trouble).split())
    return ""


def _nothing() -> str:
    return ""


LINUX, TOXIPROXY, ENGINE = Need("Linux", _linux), Need("Toxiproxy", _toxiproxy), Need("a Docker engine", _engine)
BOOTSTRAP = Need("--bootstrap HOST:PORT", _nothing)
COMPOSE = Need("--compose FILE", _nothing)


def possible(action: Action, runtime: str) -> str:
    """Whether an action can be played there: "yes", with a word of what is less than elsewhere, or "" for no."""
    if runtime != "external":
        return "yes" if runtime in action.runtimes else ""
    if action.name in ON_CONTAINERS:
        return "with a compose file"
    if action.name in ON_LINKS:
        return "clients' side"
    return "yes" if action.name in ASKED else ""


def needs(action: Action, runtime: str) -> tuple[Need, ...]:
    """What has to be there for an action that is possible there."""
    match runtime:
        case "process":
            return (LINUX, *((TOXIPROXY,) if action.name in THROUGH_PROXIES else ()))
        case "docker":
            return (LINUX, ENGINE)
        case "external":
            if action.name in ON_CONTAINERS:
                return (BOOTSTRAP, COMPOSE, ENGINE)
            return (BOOTSTRAP, *((TOXIPROXY,) if action.name in THROUGH_PROXIES else ()))
    return ()


def missing(found: Iterable[Need]) -> tuple[str, ...]:
    """Of these needs what is not there, in words."""
    return tuple(lack for need in found if (lack := need.lacking()))


def everything() -> Mapping[str, Action]:
    """The registry."""
    return ACTIONS


def table() -> str:
    """The registry as Markdown: action x runtime x evidence."""
    head = ("action", "what it does", "class", "length, s", *RUNTIMES, "evidence that it landed")
    lines = [_row(head), "|---" * len(head) + "|"]
    for action in ACTIONS.values():
        fault_class = "W1, WM" if action.fault_class == "W1" else action.fault_class
        length = f"{action.duration_s.low:g} to {action.duration_s.high:g}"
        where = (possible(action, runtime) or "-" for runtime in RUNTIMES)
        lines.append(_row((f"`{action.name}`", action.title, fault_class, length, *where, action.evidence)))
    return "\n".join(lines) + "\n"


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def put_into(page: str) -> str:
    """A page with its table made anew. ValueError where it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} ... {END}")
    return f"{before}{BEGIN}\n{table()}{END}{after}"
