"""A standalone Spark cluster on loopback, started from the classes in the pyspark package."""

from __future__ import annotations

import os
import re
import subprocess
import time
from importlib import util
from pathlib import Path


class Standalone:
    """One master and one worker, on free ports."""

    def __init__(self, folder: Path, java_home: Path) -> None:
        spark = util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        self._home, self._java_home, self._folder = Path(spark.origin).parent, java_home, folder
        self._running: list[subprocess.Popen[bytes]] = []
        self.work = folder / "work"
        """The worker's folder for its executors' files."""
        self.master = ""

    def start(self) -> None:
        """Start both, and wait until the worker is registered."""
        own = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = self._launch("master.Master", *own)
        self.master = self._until(log, r"Starting Spark master at (spark://\S+)")
        resources = ("--cores", "2", "--memory", "2g", "--work-dir", str(self.work))
        self._launch("worker.Worker", *own, *resources, self.master)
        self._until(log, r"Registering worker (\S+)")

    def stop(self) -> None:
        """End master and worker, with the worker's executors."""
        for each in reversed(self._running):
            each.terminate()
            each.wait(60)

    def _launch(self, name: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        environment = {**os.environ, "JAVA_HOME": str(self._java_home), "SPARK_HOME": str(self._home)}
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        command = [str(self._home / "bin/spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        with log.open("wb") as out:
            self._running.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
            )
        return log

    def _until(self, log: Path, pattern: str, limit_s: float = 120) -> str:
        deadline = time.monotonic() + limit_s
        while not (said := re.search(pattern, log.read_text(errors="replace"))):
            assert time.monotonic() < deadline, f"not within {limit_s:g} s: {pattern}"
            assert all(each.poll() is None for each in self._running), log.read_text()
            time.sleep(0.1)
        return said[1]
