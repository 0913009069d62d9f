"""A program under test for `squall run --workload command --role member`: a consumer in a group, of confluent-kafka.

docs/workloads/command.md has the protocol. Standard output belongs to it: everything else goes to standard error.
Two bugs can be planted, to see that Squall finds them: `commit-ahead` and `keep-revoked`, as an argument.
"""

import base64
import json
import sys
import threading
from itertools import count

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

BUG = sys.argv[1] if len(sys.argv) > 1 else ""
numbers = count()


def say(**line: object) -> None:
    """One report: one line."""
    print(json.dumps(line), flush=True)


def commit(consumer: Consumer, offsets: list[TopicPartition]) -> None:
    """Commit these, and say so before and after."""
    number = next(numbers)
    positions = [{"partition": each.partition, "offset": each.offset} for each in offsets]
    say(type="commit", id=number, offsets=positions)
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
        say(type="committed", id=number)
    except KafkaException as error:
        say(type="committed", id=number, error=error.args[0].name())


class Member:
    """What it reads, and how far it has come in each partition."""

    def __init__(self, init: dict) -> None:
        self.done: dict[int, TopicPartition] = {}
        self.kept: list[Message] = []
        known = {"group.id", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms", "client.id",
                 "auto.offset.reset", "enable.auto.commit", "isolation.level"}  # fmt: skip
        config = {name: value for name, value in init["config"].items() if name in known}
        self.consumer = Consumer({"bootstrap.servers": init["bootstrap"], **config})
        self.consumer.subscribe(
            init["topics"][:1], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Where it begins need not be said: Squall takes it from what it processes first."""
        say(type="assigned", member=consumer.memberid(), assigned=[{"partition": each.partition} for each in partitions])

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Commit what was processed, and give the partitions up."""
        offsets = [self.done.pop(each.partition) for each in partitions if each.partition in self.done]
        if offsets:
            commit(consumer, offsets)
        say(type="revoked", partitions=[each.partition for each in partitions])

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Others may have them by now: nothing is committed."""
        for each in partitions:
            self.done.pop(each.partition, None)
        say(type="lost", partitions=[each.partition for each in partitions])

    def process(self, records: list[Message]) -> None:
        """The service's work would be here."""
        say(type="processed", records=[
            {"partition": each.partition(), "offset": each.offset(), "key": each.key().decode(),
             "value": base64.b64encode(each.value()).decode()} for each in records
        ])  # fmt: skip

    def round(self) -> None:
        """Poll, process, commit; or in the wrong order."""
        records = [each for each in self.consumer.consume(100, timeout=0.2) if self.good(each)]
        if not records:
            return
        for each in records:
            self.done[each.partition()] = TopicPartition(each.topic(), each.partition(), each.offset() + 1)
        if BUG == "commit-ahead":
            commit(self.consumer, list(self.done.values()))
            self.kept, records = records, self.kept  # processed a round later, if it lives to do it
            if records:
                self.process(records)
        elif BUG == "keep-revoked":
            self.kept, records = records, self.kept  # a queue that no revocation empties
            if records:
                self.process(records)
            commit(self.consumer, [TopicPartition(each.topic(), each.partition(), each.offset() + 1) for each in records])
        else:
            self.process(records)
            commit(self.consumer, list(self.done.values()))

    def good(self, record: Message) -> bool:
        """Errors are the library's to go on after."""
        error = record.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            print(error, file=sys.stderr)
        return error is None


def main() -> None:
    """Until `finish`, or the end of standard input."""
    init = json.loads(sys.stdin.readline())
    member, finish = Member(init), threading.Event()
    say(type="ready", name="confluent-kafka")
    threading.Thread(target=lambda: (sys.stdin.readline(), finish.set()), daemon=True).start()
    while not finish.is_set():
        member.round()
    member.consumer.close()


if __name__ == "__main__":
    main()
