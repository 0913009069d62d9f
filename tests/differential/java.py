"""Runs `Actions.java`, a program with Kafka's Java clients, against both brokers, and compares its output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from squall.chaos.toolchain.cache import run
from squall.chaos.toolchain.kafka import ApacheKafka, apache_kafka
from tests.differential.compare import Result, judged
from tests.differential.player import Broker

PROGRAM = Path(__file__).with_name("Actions.java")
JAVA = "Java"
"""Is used in place of an API's name in `named`."""
WITHIN_S = 600.0
FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]


def results(folder: Path, ours: Broker, theirs: Broker) -> Iterator[Result]:
    """Yield one result for each action of the program. Raises HarnessError if it does not compile or does not end."""
    kafka = apache_kafka(lambda line: None)
    compiler = str(Path(kafka.java).with_name("javac"))
    run([compiler, "-nowarn", "-proc:none", "-d", str(folder), "-cp", kafka.class_path, str(PROGRAM)],
        what="Actions.java does not compile", timeout_s=WITHIN_S)  # fmt: skip
    one, other = (printed(kafka, folder, broker) for broker in (ours, theirs))
    for action in dict.fromkeys((*one, *other)):
        yield judged(JAVA, 0, action, action, one.get(action, "<absent>"), other.get(action, "<absent>"), "--java")


def printed(kafka: ApacheKafka, classes: Path, broker: Broker) -> dict[str, str]:
    """Run the program against one broker, and return the result of each action."""
    log4j = classes / "log4j2.properties"
    log4j.write_text("status = error\nrootLogger.level = OFF\n")
    servers = f"127.0.0.1:{broker.port}"
    command = [kafka.java, *FLAGS, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{classes}:{kafka.class_path}"]
    said = run([*command, "Actions", servers], what=f"Actions.java at {broker.name}", timeout_s=WITHIN_S)
    return dict(line.split("\t", 1) for line in said.splitlines() if "\t" in line)
