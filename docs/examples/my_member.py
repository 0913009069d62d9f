"""A program under test for `squall run --workload command --role member`: a consumer in a group, of confluent-kafka.

docs/workloads/command.md has the protocol. Standard output belongs to it: everything else goes to standard error.
Two bugs can be planted, to see that Squall finds them, by an argument: `commit-ahead` commits what it has read, and
processes it half a second later; `keep-revoked` also processes later, and does not look whether it still may.
"""

import base64
import json
import os
import sys
import threading
from collections import deque
from functools import partial
from itertools import count
from queue import SimpleQueue
from time import monotonic

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

BUG = sys.argv[1] if len(sys.argv) > 1 else ""
LATE_S = 0.5
numbers = count()
finish: threading.Event = threading.Event()
to_write: SimpleQueue[dict] = SimpleQueue()


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
    """Its subscription, and its position in each partition."""

    def __init__(self, init: dict) -> None:
        self.done: dict[int, TopicPartition] = {}
        self.late: deque[tuple[float, list[Message]]] = deque()
        self.consumer = Consumer({"bootstrap.servers": init["bootstrap"], **init["config"]})
        self.producer = Producer({"bootstrap.servers": init["bootstrap"], "enable.idempotence": True})
        self.has_outputs = len(init["topics"]) > 1
        self.consumer.subscribe(init["topics"][:1], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost)

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Where it begins need not be said: Squall takes it from what it processes first."""
        own = [{"partition": each.partition} for each in partitions]
        say(type="assigned", member=consumer.memberid(), assigned=own)

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
        """The service's work would be here. What it writes is there before it counts as processed: at least once."""
        if self.has_outputs:
            self.write(records)
        say(type="processed", records=[reported(each) for each in records])

    def write(self, records: list[Message]) -> None:
        """An output for each. Squall says what is in it."""
        for each in records:
            say(type="output", id=next(numbers), partition=each.partition(), source=reported(each))
        for _ in records:
            asked = to_write.get()
            value, delivered = base64.b64decode(asked["value"]), partial(written, asked["id"])
            self.producer.produce(asked["topic"], value, asked["key"], asked["partition"], on_delivery=delivered)
        self.producer.flush()

    def read_once(self) -> None:
        """Poll, process, commit; with a bug, half a second later, or in the wrong order."""
        records = [each for each in self.consumer.consume(100, timeout=0.2) if is_record(each)]
        ends = {each.partition(): TopicPartition(each.topic(), each.partition(), each.offset() + 1) for each in records}
        if not BUG:
            if records:
                self.process(records)
                self.done |= ends
                commit(self.consumer, list(ends.values()))
            return
        self.late.append((monotonic() + LATE_S, records))
        if BUG == "commit-ahead" and records:
            commit(self.consumer, list(ends.values()))
        while self.late and self.late[0][0] <= monotonic():
            self.process(self.late.popleft()[1])


def written(number: int, error: KafkaError | None, record: Message) -> None:
    """The library's word on an output. One that is in doubt ends the process: the next one writes it again."""
    if error is None:
        offset = -1 if record.offset() is None else record.offset()
        say(type="ok", id=number, partition=record.partition(), offset=offset)
    else:
        say(type="info", id=number, error=error.name())
        os._exit(1)


def listen() -> None:
    """Messages of Squall: outputs to write, then `finish` or the end."""
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["type"] == "finish":
            break
        to_write.put(asked)
    finish.set()


def reported(record: Message) -> dict:
    """A record as JSON has it."""
    key, value = record.key().decode(), base64.b64encode(record.value()).decode()
    return {"partition": record.partition(), "offset": record.offset(), "key": key, "value": value}


def is_record(polled: Message) -> bool:
    """Return whether it is a record. The library continues after errors by itself."""
    if polled.error() is not None:
        print(polled.error(), file=sys.stderr)
    return polled.error() is None


def main() -> None:
    """Until `finish`, or the end of standard input."""
    init = json.loads(sys.stdin.readline())
    member = Member(init)
    say(type="ready", name="confluent-kafka")
    threading.Thread(target=listen, daemon=True).start()
    while not finish.is_set():
        member.read_once()
    member.consumer.close()


if __name__ == "__main__":
    main()
