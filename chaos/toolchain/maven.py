"""Fetches jars by Maven."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from squall.chaos.errors import HarnessError
from squall.chaos.toolchain.cache import run


def copy_jars(folder: Path, artifacts: Sequence[str], *, what: str, alone: bool = False) -> None:
    """Copy the jars of `artifacts` (GROUP:NAME:VERSION) into the folder, with all that they need, or `alone`.

    Raises HarnessError, beginning with `what`, if Maven is not here or fails.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise HarnessError(f"{what}: there is no mvn on PATH")
    pom = folder / "pom.xml"
    pom.write_text("\n".join(_pom(artifacts, alone=alone)))
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    run([maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", *options], what=what)


def _pom(artifacts: Sequence[str], *, alone: bool) -> Iterator[str]:
    every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    left_out = f"<exclusions>{every}</exclusions>" if alone else ""
    yield '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    yield "<groupId>peer</groupId><artifactId>peer</artifactId><version>1</version><packaging>pom</packaging>"
    yield "<dependencies>"
    for artifact in artifacts:
        group, name, version = artifact.split(":")
        yield f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        yield f"<version>{version}</version>{left_out}</dependency>"
    yield "</dependencies></project>"
