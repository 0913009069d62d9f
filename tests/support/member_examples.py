"""Commands that start the group members of docs/examples. Libraries are fetched, and programs built, once into the
cache folder.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.cache import installed, remove, run
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.support.lacks import skip_without

EXAMPLES = Path(__file__).parents[2] / "docs/examples"
KAFKAJS = "kafkajs@2.2.4"


def command_of(language: str, bug: str = "") -> tuple[str, str]:
    """Return the command that starts the member in this language, and the folder to start it in. Skips the test if that
    is not possible here.
    """
    if language == "python":
        return shlex.join([sys.executable, str(EXAMPLES / "my_member.py"), *bug.split()]), ""
    if language == "javascript":
        return shlex.join([_found("node", "Node.js"), str(EXAMPLES / "my_member.mjs"), *bug.split()]), str(_kafkajs())
    assert not bug, "no bug is planted in the others"
    if language == "java":
        if not kafka_is_here():
            skip_without("Apache Kafka and a whole Java", FETCH)
        return shlex.join(apache_kafka(lambda line: None).command(f"{EXAMPLES}/MyMember.java", ())), ""
    return shlex.quote(str(_go())), ""


def _found(program: str, called: str) -> str:
    return shutil.which(program) or skip_without(called, f"put {program} on PATH")


@cache
def _kafkajs() -> Path:
    """Return a folder in which kafkajs is installed."""
    npm = _found("npm", "npm, and npm's packages")

    def fetch(folder: Path) -> None:
        run([npm, "install", "--ignore-scripts", "--prefix", str(folder), KAFKAJS], what="npm install", timeout_s=120)

    try:
        return installed(KAFKAJS.replace("@", "-"), fetch)
    except HarnessError as why:
        skip_without(f"npm's packages ({str(why).splitlines()[-1]})", f"npm install {KAFKAJS}")


@cache
def _go() -> Path:
    """Return the built member that uses franz-go. Raises HarnessError if it does not compile."""
    go, here = _found("go", "Go 1.24 or newer, and Go's modules"), EXAMPLES / "go-member"
    sources = b"\0".join((here / name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))

    def build(folder: Path) -> None:
        scratch = folder / "scratch"
        environment = {"CGO_ENABLED": "0", "GOPATH": str(scratch / "path"), "GOCACHE": str(scratch / "cache"),
                       "GOFLAGS": "-modcacherw -trimpath -buildvcs=false", "GOTOOLCHAIN": "local"}  # fmt: skip
        run([go, "-C", str(here), "build", "-o", str(folder / "member"), "."], what="go build", env=environment)
        remove(scratch)

    return installed(f"go-member-{hashlib.sha256(sources).hexdigest()[:16]}", build) / "member"
