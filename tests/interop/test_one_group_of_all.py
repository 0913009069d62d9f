"""Members of six client libraries in one classic group whose coordinator is killed; Kafka's group tool inspects the
group.

The scenario is played once, and several tests check its results. A client whose program is missing is left out, and
only its own test is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from squall.chaos.toolchain.kafka import apache_kafka, kafka_is_here
from squall.chaos.toolchain.lookout import FETCH
from tests.interop.test_foreign_groups import (
    DEADLINE_S,
    SESSION_MS,
    Reading,
    aiokafka,
    confluent,
    coordinator_of,
    kafka_python,
    make_topic,
    produce,
)
from tests.interop.test_kafkas_own_tools import QUICK_JVM, Tools
from tests.support.franz.build import franz_member
from tests.support.lacks import without

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the clients themselves

TOPIC, GROUP = "read-by-all", "all-of-them"
PARTITIONS = 12
"""Two partitions for each of six members."""
RECORDS = 240
KCAT, JAVA, FRANZ = "kcat", "console-consumer", "franz-go"
LIBRARIES = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka}
MEMBERS = (*LIBRARIES, KCAT, JAVA, FRANZ)
CLIENT_ID = {"confluent-kafka": "client.id", "kafka-python": "client_id", "aiokafka": "client_id"}
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
NO_JAVA = without("Apache Kafka and a whole Java", FETCH)
COMMITS_MS = 300
Member = Callable[[list[bytes], threading.Event], None]


def program(name: str, command: Sequence[str], folder: Path) -> Member:
    """Return a member that is a program: it prints each record's value in a line, and leaves the group at SIGTERM."""

    def member(found: list[bytes], enough: threading.Event) -> None:
        errors = folder / f"{name}.log"
        with errors.open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)

        def end() -> None:
            enough.wait()
            process.terminate()

        ender = threading.Thread(target=end)
        ender.start()
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                found.append(line.strip())
        process.wait()
        assert enough.is_set(), f"{name} ended with {process.returncode}: {errors.read_text()[-2000:]}"
        ender.join()

    return member


def lacking(name: str) -> str:
    """Return why this machine cannot run the member; empty if it can."""
    if name == KCAT and shutil.which("kcat") is None:
        return without("kcat", "apt-get install kcat")
    if name == JAVA and not kafka_is_here():
        return NO_JAVA
    if name == FRANZ and isinstance(there := franz_member(), str):
        return there
    return ""


def member_of(name: str, cluster: Any, folder: Path) -> Member:
    """Return a member. All have the assignor `range` and the same session timeout."""
    if name in LIBRARIES:
        return LIBRARIES[name](cluster, TOPIC, GROUP, **{CLIENT_ID[name]: name})
    if name == FRANZ:
        return program(name, [str(franz_member()), cluster.bootstrap, TOPIC, GROUP, name], folder)
    settings = {
        "client.id": name,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 500,
        "auto.commit.interval.ms": COMMITS_MS,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "range",
    }
    if name == KCAT:
        given = [word for key, value in settings.items() for word in ("-X", f"{key}={value}")]
        # -u: each line at once; -E: go on after an error that may pass, as of a dead broker.
        return program(name, ["kcat", "-b", cluster.bootstrap, *given, "-u", "-q", "-E", "-G", GROUP, TOPIC], folder)
    settings["partition.assignment.strategy"] = "org.apache.kafka.clients.consumer.RangeAssignor"
    settings["group.protocol"] = "classic"
    given = [word for key, value in settings.items() for word in ("--command-property", f"{key}={value}")]
    at = ["--bootstrap-server", cluster.bootstrap, "--topic", TOPIC, "--group", GROUP]
    main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    return program(name, apache_kafka(lambda line: None).command(main, [*at, *given], flags=QUICK_JVM), folder)


@dataclass
class Story:
    """The results of the scenario. The tool's outputs are empty if it is not installed."""

    here: list[str]
    before: dict[str, int] = field(default_factory=dict)
    """How many records each member read before the coordinator was killed."""
    after: dict[str, int] = field(default_factory=dict)
    """How many records each member read once the coordinator was back."""
    missed: set[bytes] = field(default_factory=set)
    """Records that no member read."""
    listed: list[str] = field(default_factory=list)
    members: dict[str, list[int]] = field(default_factory=dict)
    """The partitions assigned to each client.id."""
    written: int = 0
    """How many records each partition has."""
    offsets: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """(committed, end, lag) of each partition while the members read."""
    refused: list[str] = field(default_factory=list)
    """The tool's output when it was asked to delete the group while it had members."""
    reset: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """(committed, end, lag) of each partition once all members had left and the offsets were reset to 1."""
    left: list[str] = field(default_factory=list)
    """Groups that existed after this one was deleted."""


class Played:
    """Plays the scenario: writes records, runs the members, and calls the tool."""

    def __init__(self, cluster: Any, reading: Reading, folder: Path) -> None:
        self._cluster, self._reading, self._tools = cluster, reading, Tools(cluster.bootstrap)
        self._wanted: set[bytes] = set()
        self.story = Story([name for name in MEMBERS if not lacking(name)])
        make_topic(cluster, TOPIC, PARTITIONS)
        self._write(RECORDS)
        for name in self.story.here:
            reading.start(name, member_of(name, cluster, folder))

    def play(self) -> Story:
        self.story.before = self._everyone_reads()
        coordinator = coordinator_of(self._cluster, GROUP)
        self._cluster.kill(coordinator)
        try:
            self._write(RECORDS)
            self._reading.wait_for(self._wanted)
        finally:
            self._cluster.restart(coordinator)
        self.story.after = self._everyone_reads()
        if kafka_is_here():
            self._look()
        self._reading.stop()
        assert not self._reading.failures, self._reading.failures
        self.story.missed = self._wanted - self._reading.values()
        if kafka_is_here():
            self._reset_and_delete()
        return self.story

    def _write(self, count: int) -> None:
        self._wanted |= produce(self._cluster, TOPIC, len(self._wanted), count, PARTITIONS)

    def _everyone_reads(self) -> dict[str, int]:
        """Write until each member has read a new record, or time is over. Returns how many each has read meanwhile."""
        began = {name: len(found) for name, found in self._reading.found.items()}
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self._write(PARTITIONS)
            self._reading.wait_for(self._wanted)
            news = {name: len(found) - began[name] for name, found in self._reading.found.items()}
            if all(news.values()) or time.monotonic() > deadline:
                return news

    def _groups(self, *arguments: str) -> list[str]:
        return self._tools.run(GROUP_COMMAND, *arguments)

    def _look(self) -> None:
        """Call the tool until the group is stable, or time is over."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            self.story.members = assignments(self._groups("--describe", "--group", GROUP, "--members", "--verbose"))
            if sum(map(len, self.story.members.values())) == PARTITIONS or time.monotonic() > deadline:
                break
        while True:
            self._write(PARTITIONS)
            self._reading.wait_for(self._wanted)
            self.story.offsets = positions(self._groups("--describe", "--group", GROUP, "--offsets"))
            self.story.written = len(self._wanted) // PARTITIONS
            lags = {lag for _, _, lag in self.story.offsets.values()}
            if lags == {"0"} or time.monotonic() > deadline:
                break
        self.story.listed = self._groups("--list", "--state", "--type")
        self.story.refused = self._groups("--delete", "--group", GROUP)

    def _reset_and_delete(self) -> None:
        to = ("--to-offset", "1", "--topic", TOPIC, "--execute")
        self._groups("--group", GROUP, "--reset-offsets", *to)
        self.story.reset = positions(self._groups("--describe", "--group", GROUP, "--offsets"))
        self._groups("--delete", "--group", GROUP)
        self.story.left = self._groups("--list")


def assignments(told: list[str]) -> dict[str, list[int]]:
    """Return the partitions of each client.id, as --members --verbose prints them."""
    found: dict[str, list[int]] = {}
    for line in told:
        if words := re.match(rf"{GROUP} +\S+ +\S+ +(\S+) +\d+ ", line):
            found.setdefault(words[1], []).extend(int(number) for number in re.findall(r"\d+", line.rpartition(":")[2]))
    return found


def positions(told: list[str]) -> dict[int, tuple[str, ...]]:
    """Return (committed, end, lag) of each partition, as --offsets prints them."""
    rows = (re.match(rf"{GROUP} +{TOPIC} +(\d+) +(\S+) +(\S+) +(\S+)", line) for line in told)
    return {int(row[1]): row.groups()[1:] for row in rows if row}


@pytest.fixture(scope="module")
def story(cluster: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    reading = Reading()
    try:
        yield Played(cluster, reading, tmp_path_factory.mktemp("members")).play()
    finally:
        reading.stop()


def test_each_record_was_read_by_somebody(story: Story) -> None:
    assert story.missed == set()


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_reads_before_its_coordinator_is_killed_and_once_it_is_back(request: Any, name: str) -> None:
    if why := lacking(name):
        pytest.skip(why)
    story = request.getfixturevalue("story")
    assert story.before[name] > 0, story.before
    assert story.after[name] > 0, story.after


@pytest.mark.skipif(not kafka_is_here(), reason=NO_JAVA)
def test_kafkas_tool_lists_the_group_and_describes_exactly_its_members(story: Story) -> None:
    assert any(re.match(rf"{GROUP} +Classic +Stable", line) for line in story.listed), story.listed
    assert sorted(story.members) == sorted(story.here)
    assert sorted(number for owned in story.members.values() for number in owned) == list(range(PARTITIONS))
    assert all(story.members.values()), "each of them owns some"


@pytest.mark.skipif(not kafka_is_here(), reason=NO_JAVA)
def test_kafkas_tool_tells_offsets_and_deletes_no_group_with_members(story: Story) -> None:
    end = str(story.written)
    assert story.offsets == dict.fromkeys(range(PARTITIONS), (end, end, "0"))
    assert "GroupNotEmptyException" in "\n".join(story.refused)


@pytest.mark.skipif(not kafka_is_here(), reason=NO_JAVA)
def test_kafkas_tool_resets_and_deletes_the_group_that_all_have_left(story: Story) -> None:
    end = story.written
    assert story.reset == dict.fromkeys(range(PARTITIONS), ("1", str(end), str(end - 1)))
    assert GROUP not in story.left
