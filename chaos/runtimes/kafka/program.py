"""Describes one node of Apache Kafka: how it is started, and what it reports in its log. It writes no trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import trio

from squall.broker.overriding import override
from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.runtimes.contract import Evidence
from squall.chaos.runtimes.layout import properties_text
from squall.chaos.runtimes.process.program import BrokerProgram, BrokerReports
from squall.chaos.runtimes.real.node_faults import NodeFaults
from squall.chaos.runtimes.real.node_folder import NodeFolder
from squall.chaos.runtimes.real.processes.child import tail
from squall.chaos.runtimes.real.trace_tail import ShutdownReport
from squall.chaos.toolchain.cache import run
from squall.chaos.toolchain.kafka import ApacheKafka

HEAP = "256m"
"""Gives the JVM's heap size. With it a broker takes 340 MB resident, measured with 2,000 records of 1 KB a second in
six partitions; see docs/kafka.md.
"""
JVM_FLAGS = (f"-Xms{HEAP}", f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
"""Lists flags for three JVMs on two cores: the first-tier compiler and the serial collector start sooner and need fewer
threads.
"""
FORMAT_FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TERMINATED = 143
"""Is 128 + SIGTERM: the exit code of a JVM that was asked to end and has run its shutdown hooks."""

_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = STDOUT
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = STDOUT
logger.elections.name = org.apache.kafka.controller.ReplicationControlManager
logger.elections.level = DEBUG
logger.elections.filter.noise.type = RegexFilter
logger.elections.filter.noise.regex = .*(No stale brokers found|Replayed partition change|Directories .* cordoned).*
logger.elections.filter.noise.onMatch = DENY
logger.elections.filter.noise.onMismatch = NEUTRAL
"""
"""Configures the node's log. `squall.checkers.kafka_log` reads elections and ISR changes from it. A controller logs ISR
changes and clean elections only at DEBUG. A filter removes the lines about every heartbeat, which are also at that
level.
"""

VERSION = re.compile(r"Kafka version: (\S+)")
REGISTERED = re.compile(r"Successfully registered broker \d+ with broker epoch (\d+)")
STARTED = "Kafka Server started"
LEAVING = ("Beginning controlled shutdown", "The controller has asked us to exit controlled shutdown")


class KafkaLogReports(BrokerReports):
    """Reads what an Apache Kafka node reports in its log, from the lines that are added after this object was made."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._at = log.stat().st_size if log.exists() else 0
        self._epoch: int | None = None
        self._version: str | None = None

    @override
    def ready(self, incarnation: int) -> Evidence | None:
        """Return None until the log reports that this incarnation serves clients; then its broker epoch, which no other
        incarnation has, and Kafka's version.
        """
        for line in self._lines():
            if found := REGISTERED.search(line):
                self._epoch = int(found[1])
            if found := VERSION.search(line):
                self._version = found[1]
            if STARTED in line:
                if self._epoch is None:
                    raise HarnessError(
                        f"{self._log} says {STARTED!r}, and not in which broker epoch: what Kafka is it?"
                    )
                return {"broker_epoch": self._epoch, "version": self._version, "seen_in": self._log.name}
        return None

    @override
    def shutdown_report(self, code: int) -> ShutdownReport:
        """Return how the broker shut down, judged by its log and by the JVM's exit code. `alone` is always False,
        because Kafka does not log that no controller answered.
        """
        lines = self._lines()
        said = [words for words in LEAVING if any(words in line for line in lines)]
        # The node may have been killed after the controller had let it go.
        return ShutdownReport(code == TERMINATED and LEAVING[-1] in said, False, said)

    def _lines(self) -> list[str]:
        """Return the complete lines that were added since the previous call."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._at)
                whole = file.read().rpartition(b"\n")[0]
        except FileNotFoundError:
            return []
        self._at += len(whole) + 1 if whole else 0
        return whole.decode(errors="replace").splitlines()


class KafkaProgram(BrokerProgram):
    """Runs an Apache Kafka node in a JVM. hosts: the text of the JVM's hosts file."""

    faults: NodeFaults | None = None

    def __init__(
        self,
        files: NodeFolder,
        settings: Mapping[str, str],
        cluster_id: str,
        *,
        kafka: ApacheKafka,
        second: ApacheKafka | None,
        hosts: str,
    ) -> None:
        self._files, self._settings, self._cluster_id = files, dict(settings), cluster_id
        self._kafka, self._second = kafka, second
        self._hosts = hosts

    @override
    async def prepare(self) -> None:
        await trio.to_thread.run_sync(self._format)

    @override
    def configure(self, incarnation: int) -> None:
        (self._files.path / "hosts").write_text(self._hosts)
        (self._files.path / "log4j2.properties").write_text(_LOG4J)
        self._files.config.write_text(properties_text({**self._settings, "log.dirs": self._files.data}))

    @override
    def command(self) -> list[str]:
        config = str(self._files.config)
        return self._kafka.command("kafka.Kafka", [config], flags=[*JVM_FLAGS, *self._properties()])

    def environment(self) -> Mapping[str, str]:
        """Return nothing: the JVM needs no variables."""
        return {}

    @override
    def reports(self) -> BrokerReports:
        """Return a reader of the node's log. It reads the lines that are added from now on."""
        return KafkaLogReports(self._files.log)

    @override
    async def software(self, pid: int, came_up: Evidence) -> Evidence:
        """Return the Kafka version that the node logged when it started. came_up: the result of
        `KafkaLogReports.ready`, which holds the version.
        """
        return {"runs": came_up.get("version"), "by": f"its own {self._files.log.name}"}

    @override
    def upgrade(self) -> Evidence:
        """Make the next start run the second of the run's two Kafka versions. The node's metadata.version stays the one
        with which its log directory was formatted.
        """
        if self._second is None:
            raise PreconditionError("there is no second Apache Kafka to upgrade to")
        before, self._kafka = self._kafka, self._second
        return {"from": before.version, "to": self._kafka.version}

    def _format(self) -> None:
        """Give an empty log directory the cluster's id and features, as Kafka requires. Blocks while a JVM starts and
        ends.
        """
        files = self._files
        files.data.mkdir(parents=True, exist_ok=True)
        # Kafka refuses to format a directory again, which an earlier run in this folder has left.
        if (files.data / "meta.properties").exists():
            return
        self.configure(0)
        arguments = ["format", f"--cluster-id={self._cluster_id}", "--config", str(files.config)]
        command = self._kafka.command("kafka.tools.StorageTool", arguments, flags=[*FORMAT_FLAGS, *self._properties()])
        where = tail(files.log) or files.config
        run(command, what=f"{files.path} could not be formatted; see {where}", timeout_s=120)

    def _properties(self) -> list[str]:
        files = {"jdk.net.hosts.file": "hosts", "log4j2.configurationFile": "log4j2.properties"}
        return [f"-D{name}={self._files.path / file}" for name, file in files.items()]
