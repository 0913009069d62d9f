"""Lists the components that `./squall` does not install by itself, with their sizes, and installs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain import lookout
from squall.chaos.toolchain.cache import Say, run
from squall.chaos.toolchain.class_archive import class_archive
from squall.chaos.toolchain.engine import find_engine
from squall.chaos.toolchain.engine_lacks import engine_lacks
from squall.chaos.toolchain.extras import missing
from squall.chaos.toolchain.images import ensure_images
from squall.chaos.toolchain.java import java
from squall.chaos.toolchain.kafka import apache_kafka, kafka_lacks
from squall.chaos.toolchain.lacks import MissingDependency, one_line, refuse
from squall.chaos.toolchain.lookout import ComponentStatus
from squall.chaos.toolchain.places import is_checkout
from squall.chaos.toolchain.toxiproxy import toxiproxy_server
from squall.chaos.typed import typed


@dataclass(frozen=True, slots=True)
class Component:
    """Describes one component that `squall setup --NAME` installs. `brings` says in words what is installed; `takes`
    says how much disk space and time that needs.

    `part` returns the component's status on this machine. `lacks` returns what root has to install first. `make`
    installs the rest.
    """

    name: str
    brings: str
    takes: str
    part: Callable[[], ComponentStatus]
    lacks: Callable[[], Sequence[MissingDependency]]
    make: Callable[[Say], object]

    def install(self, say: Say) -> None:
        """Install what is missing, and report progress to `say`. Raise PreconditionError if it cannot be installed."""
        if lacks := self.lacks():
            _as_root(f"--{self.name}", lacks, say)
        self.make(say)
        if (wrong := self.part()).costs:
            raise PreconditionError(f"--{self.name}: {wrong.costs}")


def components() -> list[Component]:
    """Return everything that `squall setup` can install. The components that every run uses come first."""

    def spark(say: Say) -> None:
        class_archive(java(say), say)

    def images(say: Say) -> None:
        ensure_images(find_engine(), say)

    return [
        Component("java", "Spark's Java, and an archive of Spark's classes", "190 to 270 MB, a minute",
                  lookout.java_part, list, spark),
        Component("toxiproxy", "the proxy between brokers, built with Go", "11 MB, a minute",
                  lookout.toxiproxy_part, list, toxiproxy_server),
        Component("clients", "confluent-kafka, aiokafka, kafka-python for --client and bench", "60 MB, half a minute",
                  lookout.clients_part, list, _clients),
        Component("kafka", "Apache Kafka for --target kafka, with Debian's Java and Maven", "55 to 350 MB, a minute",
                  lookout.kafka_part, kafka_lacks, apache_kafka),
        Component("engine", "Docker engine and images for --runtime docker, as root", "550 MB, minutes",
                  lookout.engine_part, engine_lacks, images),
        Component("chromium", "Chromium for the tests of pages, as root", "790 MB, a minute",
                  lookout.chromium_part, lookout.chromium_lacks, lambda say: None),
    ]  # fmt: skip


def _clients(say: Say) -> None:
    """Install the client libraries by pip. In a checkout, the launcher installs them before `squall setup` begins."""
    if not (sentences := missing("clients")):
        return
    if is_checkout():
        raise PreconditionError(f"{sentences[0]}; this is not the Python of {typed('setup', '--clients')}")
    say("installing the client libraries")
    run([sys.executable, "-m", "pip", "install", "--no-input", "squall[clients]"], what="pip")


def _as_root(asked: str, lacks: Sequence[MissingDependency], say: Say) -> None:
    """Run the shell commands that install what `lacks` lists. Raise PreconditionError if the user is not root; its
    message has the commands for root.

    asked: the flag of `squall setup`, such as "--kafka", for error messages.
    """
    line = one_line(lacks)
    if not line or os.getuid():
        refuse(asked, lacks)
    if any(lack.packages for lack in lacks) and shutil.which("apt-get") is None:
        reasons = "; ".join(lack.what for lack in lacks)
        raise PreconditionError(f"{asked}: {reasons}. There is no apt-get here: install it with your system's packages")
    say(line)
    shell = ["sh", "-c", f"({line}) >&2 || {{ apt-get -qq update && {line}; }} >&2"]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(shell, env=quiet, stdin=subprocess.DEVNULL).returncode:
        raise HarnessError(f"{asked}: the installation failed, see above: {line}")
