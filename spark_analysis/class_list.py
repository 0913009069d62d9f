"""`python -m squall.spark_analysis.class_list FILE`: writes the names of the classes that a JVM loads to judge a run.

The command analyses a history of a few records, with every view and statement that a long history has. From the names,
`squall.chaos.toolchain.class_archive` makes a class data sharing archive (CDS), with which later JVMs start faster.
Exit code 0 says that FILE is complete.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from squall.spark_analysis.jobs import analyse
from squall.spark_analysis.short_history import write_short_history


def main(arguments: list[str] | None = None) -> int:
    """Run the command, and return its exit code; argparse ends the program itself on wrong usage."""
    description = __doc__.split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m squall.spark_analysis.class_list", description=description)
    parser.add_argument("file", type=Path)
    parser.add_argument("--java-home", type=Path, required=True, metavar="DIR")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="squall-class-list-") as folder:
        run_dir = Path(folder)
        write_short_history(run_dir)
        options = (f"-XX:DumpLoadedClassList={given.file.absolute()}",)
        analyse(run_dir, given.java_home, java_options=options)
        _wait_for_the_jvm()
    return 0


def _wait_for_the_jvm() -> None:
    """Wait until the JVM has ended: only then the class list is complete. The JVM ends when its standard input ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    sys.exit(main())
