"""Runs `Actions.java`, a program of Java's own clients, against both brokers and compares what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from squall.chaos.toolchain.cache import run
from squall.chaos.toolchain.kafka import ApacheKafka, apache_kafka
from tests.differential.compare import Result, judged
from tests.differential.player import Broker

PROGRAM = Path(__file__).with_name("Actions.java")
JAVA = "Java"
"""In place of an API's name in the list of named differences."""
WITHIN_S = 600.0
FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]


def results(folder: Path, ours: Broker, theirs: Broker) -> Iterator[Result]:
    """One result for each action. Raises HarnessError where the program does not compile or does not end."""
    kafka = apache_kafka(lambda line: None)
    compiler = str(Path(kafka.java).with_name("javac"))
    run([compiler, "-nowarn", "-proc:none", "-d", str(folder), "-cp", kafka.class_path, str(PROGRAM)],
        what="Actions.java does not compile", timeout_s=WITHIN_S)  # fmt: skip
    one, other = (printed(kafka, folder, broker) for broker in (ours, theirs))
    for action in dict.fromkeys((*one, *other)):
        yield judged(JAVA, 0, action, action, one.get(action, "<absent>"), other.get(action, "<absent>"), "--java")


def printed(kafka: ApacheKafka, classes: Path, broker: Broker) -> dict[str, str]:
    """Action -> its result at one broker."""
    log4j = classes / "log4j2.properties"
    log4j.write_text("status = error\nrootLogger.level = OFF\n")
    servers = f"127.0.0.1:{broker.port}"
    command = [kafka.java, *FLAGS, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{classes}:{kafka.class_path}"]
    said = run([*command, "Actions", servers], what=f"Actions.java at {broker.name}", timeout_s=WITHIN_S)
    return dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
