"""Lists what a machine lacks for runs in containers, and how an ordinary user gets it."""

from __future__ import annotations

import grp
import os
import pwd

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.engine import INSTALL, SOCKET, START, find_engine
from squall.chaos.toolchain.extras import missing
from squall.chaos.toolchain.lacks import MissingDependency
from squall.chaos.typed import typed


def engine_lacks() -> list[MissingDependency]:
    """Return what is missing here for runs in containers, as far as this is known without pulling an image.

    If no engine is installed, an ordinary user lacks two more things: the right to use the engine, and its images.
    Without a registry only root can make these images.
    """
    if lacks := missing("run"):
        return [MissingDependency(each) for each in lacks]
    path = (os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}").removeprefix("unix://")
    try:
        find_engine().close()
    except HarnessError as trouble:
        why = reason(trouble)
    else:
        return []
    if not path.startswith("/"):
        return [MissingDependency(why)]
    for_user = f"usermod -aG {_group_of(path)} {_user()}"
    right = MissingDependency(
        f"the right to use it, for {_user()}, who logs in again afterwards (or: newgrp docker)", (), for_user
    )
    if not os.path.exists(path):
        images = MissingDependency("its images, which root has to make where no registry answers", (), typed("images"))
        return (
            [MissingDependency(why, (), START), images, right]
            if os.getuid()
            else [MissingDependency(why, (), START, "--engine")]
        )
    if not os.access(path, os.R_OK | os.W_OK):
        return [MissingDependency(why, (), for_user)]
    # An engine that answers but is not suitable has its advice in `why`; any other engine has to be started.
    return [
        MissingDependency(why, (), START, "" if os.getuid() else "--engine")
        if "answers" in why
        else MissingDependency(why)
    ]


def reason(trouble: HarnessError) -> str:
    """Return in one line why no engine can be used, according to the error of `find_engine`. The installation hint is
    removed, because callers print a more complete one.
    """
    return " ".join(str(trouble).replace(f"; {INSTALL}", "").replace(f": {INSTALL}", ":").split())


def _group_of(path: str) -> str:
    """Return the group that may use an engine's socket; "docker" if there is no socket yet."""
    try:
        return grp.getgrgid(os.stat(path).st_gid).gr_name
    except (OSError, KeyError):
        return "docker"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
