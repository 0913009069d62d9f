"""Collects the versions of what runs depend on, for `squall --version`, without fetching anything or asking a cluster.
"""

from __future__ import annotations

import platform
import re
from importlib.metadata import PackageNotFoundError, version

from squall.chaos import __version__
from squall.chaos.toolchain import toxiproxy
from squall.chaos.toolchain.java import JavaRuntime, java_here, java_unpacked
from squall.chaos.toolchain.kafka import kafka_version_here
from squall.chaos.toolchain.places import commit

RUNTIME = re.compile(r"java\.runtime\.version = (\S+)")


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution; empty if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def versions() -> dict[str, str]:
    """Return the versions of Squall and of the programs that runs depend on, such as Java and Kafka, by name, in the
    order of printing. A version is empty if the program was not found on this machine.
    """
    return {
        "squall": __version__,
        "commit": commit() or "unknown",
        "Python": platform.python_version(),
        "Java": _java(java_here() or java_unpacked()),
        "Spark": installed_version("pyspark"),
        "Toxiproxy": toxiproxy.VERSION if toxiproxy.toxiproxy_here() else "",
        "Kafka": kafka_version_here(),
    }


def version_text() -> str:
    """Return what `squall --version` prints: one line with name and version for Squall and for each program it uses."""
    found = versions()
    width = max(map(len, found))
    return "\n".join(f"{name:<{width}}  {each or 'not here'}" for name, each in found.items())


def _java(there: JavaRuntime | None) -> str:
    if there is None:
        return ""
    found = RUNTIME.search(there.build)
    return found[1] if found else str(there.version)
