"""Lists the status of everything that Squall uses on this machine, without fetching or building. `squall doctor` prints
it.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain import interpreter, toxiproxy
from squall.chaos.toolchain.allure import VERSION, allure_here, npm_here
from squall.chaos.toolchain.cache import cache_folder
from squall.chaos.toolchain.class_archive import REFUSING, class_archive_here
from squall.chaos.toolchain.engine import find_engine
from squall.chaos.toolchain.engine_lacks import engine_lacks
from squall.chaos.toolchain.java import java_here, java_unpacked
from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here, kafka_lacks
from squall.chaos.toolchain.lacks import MissingDependency, remedy
from squall.chaos.toolchain.version import installed_version
from squall.chaos.typed import typed

CLIENTS = ("confluent-kafka", "aiokafka", "kafka-python")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""Lists the names of the program Chromium."""
FETCH = typed("setup", "--kafka")
"""Is the command that fetches Apache Kafka."""
GIB = 1 << 30
ENOUGH_MEMORY, ENOUGH_DISK, ENOUGH_FILES, ENOUGH_CPUS = 4 * GIB, 3 * GIB, 1024, 2
"""Are the recommended minima: Spark's heap is 2 GiB beside three brokers of 50 MB, and an installation with everything
that the tests need takes 2 GB.
"""


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """Describes the status of one tool, library or limit. `found`: what is here, in words; empty if nothing is.

    `costs`: what does not work because it is missing or too old; empty if all works. `get`: how to install it.
    """

    name: str
    found: str
    costs: str = ""
    get: str = ""


def parts() -> list[ComponentStatus]:
    """Return the status of each tool, library and limit that Squall uses, in the order in which a newcomer needs them.
    """
    tools = (java_part(), toxiproxy_part(), engine_part(), _compose(), kafka_part(), clients_part(), chromium_part())
    return [_python(), *tools, allure_part(), *limits()]


def python_part(version: tuple[int, int], said: str, *, optimised: bool, better: str) -> ComponentStatus:
    """Return `said`, the interpreter's version and path. Add a note if the interpreter is newer than the tested
    versions, or was built without optimisation. better: the path of an optimised interpreter on PATH, or "".
    """
    if version > interpreter.NEWEST:
        tried = "{}.{} to {}.{}".format(*interpreter.OLDEST, *interpreter.NEWEST)
        return ComponentStatus("Python", said, f"newer than {tried}, which the tests are run with")
    if optimised:
        return ComponentStatus("Python", f"{said}, built with optimisation")
    get = f"rm -r .venv && SQUALL_PYTHON={better} {typed('doctor')}" if better else "your distribution's own python3"
    return ComponentStatus("Python", f"{said}, built without optimisation", "brokers need 5 to 20 % more CPU", get)


def limits() -> list[ComponentStatus]:
    """Return the CPUs, memory, free disk and open files that this machine offers, with a note on each that is too
    small.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cpus = len(os.sched_getaffinity(0))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = min((shutil.disk_usage(each).free, str(each)) for each in (Path.cwd(), _existing(cache_folder())))
    return limit_parts(cpus, memory, disk, files)


def limit_parts(cpus: int, memory: int, disk: tuple[int, str], files: int) -> list[ComponentStatus]:
    """Compare what this machine has with the recommended minima, such as ENOUGH_CPUS, and return the result for each.

    cpus: usable CPUs; memory: in bytes; disk: (free bytes, a path on that disk); files: how many files a process may
    open.
    """
    slow = f"below {ENOUGH_CPUS} faults land late and tests have one lane"
    little = f"below {ENOUGH_MEMORY // GIB} GiB Spark may not fit beside the brokers"
    full = f"below {ENOUGH_DISK // GIB} GiB a set-up with tests and runs may not fit"
    few = f"below {ENOUGH_FILES} brokers with many partitions run out of them"
    endless = files == resource.RLIM_INFINITY
    return [
        ComponentStatus("CPUs", str(cpus), slow if cpus < ENOUGH_CPUS else ""),
        ComponentStatus("memory", f"{memory / GIB:.1f} GiB", little if memory < ENOUGH_MEMORY else ""),
        ComponentStatus("free disk", f"{disk[0] / GIB:.1f} GiB at {disk[1]}", full if disk[0] < ENOUGH_DISK else ""),
        ComponentStatus(
            "open files",
            "without limit" if endless else f"{files:,}",
            few if files < ENOUGH_FILES and not endless else "",
            f"ulimit -n {ENOUGH_FILES}" if files < ENOUGH_FILES and not endless else "",
        ),
    ]


def _existing(folder: Path) -> Path:
    return next(each for each in (folder, *folder.parents) if each.exists())


def _python() -> ComponentStatus:
    optimised = interpreter.optimised_here()
    said = f"{sys.version.split()[0]} ({os.path.realpath(sys.executable)})"
    better = "" if optimised else _better_python()
    return python_part(sys.version_info[:2], said, optimised=optimised, better=better)


def _better_python() -> str:
    """Return the path of an interpreter of the best rank on PATH; empty if there is none."""
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for program in sorted(Path(folder).glob("python3*")):
            if program.name.removeprefix("python3").strip(".0123456789") == "" and os.access(program, os.X_OK):
                command = [str(program), "-I", interpreter.__file__]
                done = subprocess.run(command, capture_output=True, text=True, timeout=30)
                if done.stdout.startswith(f"{interpreter.BEST} "):
                    return str(program)
    return ""


def java_part() -> ComponentStatus:
    """Return the version and path of the Java that runs Spark. Add a note if the first run has to fetch this Java, or
    to make the archive of Spark's classes for it.
    """
    there = java_here() or java_unpacked()
    if there is None:
        return ComponentStatus("Java", "", "the first run fetches one for Spark: 35 MB", typed("setup", "--java"))
    said = f"{there.version} ({there.home})"
    if there.version not in REFUSING and class_archive_here(there) is None:
        costs = "the first run makes an archive of Spark's classes: a minute, 190 MB"
        return ComponentStatus("Java", said, costs, typed("setup", "--java"))
    return ComponentStatus("Java", said)


def toxiproxy_part() -> ComponentStatus:
    """Return the version and path of Toxiproxy's server, or a note that the first run builds it."""
    there = toxiproxy.toxiproxy_here()
    if there is not None:
        return ComponentStatus("Toxiproxy", f"{toxiproxy.VERSION} ({there})")
    with_what = "Go from PATH" if toxiproxy.go_here() else "Go from a wheel, 75 MB"
    costs = f"the first run builds it with {with_what}: half a minute"
    return ComponentStatus("Toxiproxy", "", costs, typed("setup", "--toxiproxy"))


def engine_part() -> ComponentStatus:
    """Return the version of the Docker engine. Add a note if the engine cannot be used, or if it has no image of
    Squall's broker yet.
    """
    lacks = engine_lacks()
    if lacks:
        costs = f"no --runtime docker, its tests are skipped: {lacks[0].what}"
        return ComponentStatus("Docker engine", "", costs, remedy(lacks))
    engine = find_engine()
    said = f"{engine.info.get('ServerVersion', '?')}, API {engine.api_version}"
    ready = bool(engine.images("squall.image=broker"))
    engine.close()
    if ready:
        return ComponentStatus("Docker engine", said)
    return ComponentStatus("Docker engine", said, "the first run makes images: minutes", typed("setup", "--engine"))


def compose_program() -> list[str] | None:
    """Return the command that starts a compose file: Debian's docker-compose, or the plugin of `docker`; None without
    either.
    """
    if shutil.which("docker-compose"):
        return ["docker-compose"]
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    return None


def _compose() -> ComponentStatus:
    there = compose_program()
    if there is None:
        lack = MissingDependency("docker-compose", ("docker-compose",))
        return ComponentStatus("docker-compose", "", "clusters of compose files cannot be tested", remedy([lack]))
    return ComponentStatus("docker-compose", " ".join(there))


def kafka_part() -> ComponentStatus:
    """Return the version of the Apache Kafka that is here, or a note of what is missing or will be fetched."""
    lacks = kafka_lacks()
    if lacks:
        costs = f"no --target kafka, its tests are skipped: {'; '.join(lack.what for lack in lacks)}"
        return ComponentStatus("Apache Kafka", "", costs, remedy(lacks))
    if not kafka_is_here():
        costs = "the first --target kafka fetches it by Maven: 55 MB; tests are skipped"
        return ComponentStatus("Apache Kafka", "", costs, FETCH)
    try:
        return ComponentStatus("Apache Kafka", apache_kafka(lambda line: None).version)
    except HarnessError as wrong:
        return ComponentStatus("Apache Kafka", "", str(wrong))


def clients_part() -> ComponentStatus:
    """Return the versions of the installed client libraries for Kafka, and a note that names the missing ones."""
    there = {name: found for name in CLIENTS if (found := installed_version(name))}
    said = ", ".join(f"{name} {found}" for name, found in there.items())
    if len(there) == len(CLIENTS):
        return ComponentStatus("client libraries", said)
    missing = ", ".join(name for name in CLIENTS if name not in there)
    costs = f"no --client: {missing} not in .venv"
    return ComponentStatus("client libraries", said, costs, typed("setup", "--clients"))


def chromium_here() -> str:
    """Return the path of Chromium; empty if there is none."""
    return next((path for name in CHROMIUM if (path := shutil.which(name))), "")


def chromium_lacks() -> list[MissingDependency]:
    """Return what is missing for tests that look at pages: Chromium, or nothing."""
    return [] if chromium_here() else [MissingDependency("Chromium", ("chromium",), flag="--chromium")]


def chromium_part() -> ComponentStatus:
    """Return the path of Chromium, or a note that tests of pages are skipped without it, and how to install it."""
    if there := chromium_here():
        return ComponentStatus("Chromium", there)
    return ComponentStatus("Chromium", "", "tests that look at pages are skipped", remedy(chromium_lacks()))


def allure_part() -> ComponentStatus:
    """Return the version of Allure, or a note that the first nightly run fetches it. Without npm, return a note that
    nightly runs make no Allure page.
    """
    if npm_here() is None:
        costs = "a night has no Allure page, only its results"
        return ComponentStatus("Allure", "", costs, remedy([MissingDependency("npm", ("npm",))]))
    if not allure_here():
        return ComponentStatus("Allure", "", "the first night fetches it with npm: 53 MB (not with --no-report)")
    return ComponentStatus("Allure", VERSION)
