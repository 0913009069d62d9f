"""Golden scripts of the controller: commands about a cluster, and the changes that the controller decided.

A script is a text file under `stories/`. Each block is a command, a line `----`, and what it changed. `--update` writes
the present changes into the file instead of comparing.

    brokers N                     start over with brokers 1 to N     settings: name=value behind it
    topic NAME R,R,R R,R,R ...    create it with these replicas      settings: name=value behind it
    lose N ...                    silence until the session ends     wait MS     time passes without heartbeats
    beat N ...                    heartbeats                         stop N      heartbeat that asks to shut down
    register N INCARNATION        a new start                        failover    another controller
    isr NAME-P N,N                the leader proposes an ISR         elect preferred|unclean NAME-P
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from squall.broker.cluster.image import Broker, ClusterImage, ImageDelta, PartitionImage
from squall.broker.protocol.apis import ApiKey
from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.schema import elect_leaders
from tests.support.brokers.controller_harness import ControllerHarness

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
RULE = "----"


class Teller:
    """Carries out commands, and describes what each changed."""

    def __init__(self) -> None:
        self.harness = ControllerHarness()
        self.names: dict[bytes, str] = {}

    def play(self, line: str) -> str:
        """Carry out a command, and return the lines that describe its changes."""
        verb, *words = line.split()
        settings = dict(word.split("=", 1) for word in words if "=" in word)
        words = [word for word in words if "=" not in word]
        command: Callable[..., str | None] = getattr(self, f"do_{verb}")
        said = command(*words, **settings)
        self.names.update({topic.id: topic.name for topic in self.harness.image.topics_by_id.values()})
        told = [*([said] if said else []), *self.tell(self.harness.image, self.harness.image.take_delta())]
        return "\n".join(told) or "nothing"

    # --------------------------------------------------------------------------------------------------- commands

    def do_brokers(self, count: str, **settings: str) -> None:
        self.harness = ControllerHarness(brokers=int(count), **settings)

    def do_topic(self, name: str, *replicas: str, **settings: str) -> None:
        self.harness.topic(name, *[[int(broker) for broker in brokers.split(",")] for brokers in replicas], **settings)

    def do_lose(self, *brokers: str) -> None:
        self.harness.lose(*map(int, brokers))

    def do_wait(self, ms: str) -> None:
        self.harness.tick(int(ms))

    def do_beat(self, *brokers: str) -> str:
        return ", ".join(self.answer(broker, stop=False) for broker in brokers)

    def do_stop(self, broker: str) -> str:
        return self.answer(broker, stop=True)

    def answer(self, broker: str, *, stop: bool) -> str:
        reply = self.harness.beat(int(broker), stop=stop)
        if reply.error_code:
            return f"{broker}: {ErrorCode(reply.error_code).name}"
        words = ["fenced" if reply.is_fenced else "unfenced"]
        return f"{broker}: {' '.join(words + (['may stop'] if reply.should_shut_down else []))}"

    def do_register(self, broker: str, incarnation: str) -> str | None:
        error, _ = self.harness.register(int(broker), int(incarnation))
        return error.name if error else None

    def do_failover(self) -> None:
        self.harness.fail_over()
        self.harness.image.take_delta()

    def do_isr(self, partition: str, members: str) -> str:
        name, _, index = partition.rpartition("-")
        answer = self.harness.alter(name, [int(member) for member in members.split(",")], index=int(index))
        return ErrorCode(answer.error_code).name

    def do_elect(self, kind: str, partition: str) -> str:
        name, _, index = partition.rpartition("-")
        asked = [elect_leaders.TopicPartitions(topic=name, partitions=[int(index)])]
        request = elect_leaders.ElectLeadersRequest(election_type=int(kind == "unclean"), topic_partitions=asked)
        reply = self.harness.do(ApiKey.ELECT_LEADERS, request)
        return ErrorCode(reply.replica_election_results[0].partition_result[0].error_code).name

    # ---------------------------------------------------------------------------------------------------- telling

    def tell(self, image: ClusterImage, delta: ImageDelta) -> list[str]:
        lines = [f"broker {broker_id}: {standing(image.brokers.get(broker_id))}" for broker_id in sorted(delta.brokers)]
        for (topic_id, index), before in delta.partitions.items():
            after = image.partition(topic_id, index)
            assert after is not None
            lines.append(f"{self.names[topic_id]}-{index}: {change(before, after)}")
        return lines


def standing(broker: Broker | None) -> str:
    if broker is None:
        return "unknown"
    words = ["fenced" if broker.fenced else "serving", *(["stopping"] if broker.in_controlled_shutdown else [])]
    return f"{', '.join(words)}, epoch {broker.epoch}"


def change(before: PartitionImage | None, after: PartitionImage) -> str:
    def told(what: Callable[[PartitionImage], object]) -> str:
        now = str(what(after))
        return now if before is None or str(what(before)) == now else f"{what(before)} -> {now}"

    isr = told(lambda partition: ",".join(map(str, partition.isr)))
    epochs = told(lambda partition: f"{partition.leader_epoch}/{partition.partition_epoch}")
    recovering = ", recovering" if after.leader_recovery_state else ""
    return f"leader {told(lambda partition: partition.leader)}, isr {isr}, epochs {epochs}{recovering}"


def told_anew(text: str) -> str:
    """Return the script with the present changes."""
    teller = Teller()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        comment = [line for line in block.splitlines() if line.startswith("#")]
        command = [line for line in block.split(f"\n{RULE}")[0].splitlines() if not line.startswith("#")]
        found = [f"{command[0]}\n{RULE}\n{teller.play(command[0])}"] if command else []
        blocks.append("\n".join(comment + found))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_the_story_goes_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    found = told_anew(text)
    if request.config.getoption("--update"):
        path.write_text(found)
    else:
        assert found == text, f"{path.name} goes otherwise; --update accepts it"


def test_there_are_stories() -> None:
    assert STORIES
