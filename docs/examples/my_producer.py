"""A program under test for `squall run --workload command`: a producer of confluent-kafka, in 70 lines.

docs/workloads/command.md has the protocol. Standard output belongs to it: everything else goes to standard error.
"""

import base64
import json
import sys
import threading
from queue import Empty, SimpleQueue

from confluent_kafka import KafkaError, Producer

DEFINITE = {KafkaError._QUEUE_FULL, KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Errors after which the record was certainly not written. All others leave it in doubt."""


def say(**answer: object) -> None:
    """One answer: one line."""
    print(json.dumps(answer), flush=True)


def answered(number: int, error: KafkaError | None, partition: int, offset: int | None) -> None:
    """The library's word on one record, as ours.

    No offset: the record is written, and the library was not told where. So it is with acks=0, and where a leader
    died between a write and its answer: the next one knows the batch for a duplicate, and not always its place.
    """
    if error is None:
        say(type="ok", id=number, partition=partition, offset=-1 if offset is None else offset)
    else:
        say(type="fail" if error.code() in DEFINITE else "info", id=number, error=error.name())


def send(producer: Producer, asked: dict) -> None:
    """Hand one record over."""
    number = asked["id"]
    producer.produce(
        asked["topic"],
        base64.b64decode(asked["value"]),
        asked["key"],
        asked["partition"],
        lambda error, record: answered(number, error, record.partition(), record.offset()),
        asked["timestamp_ms"],
    )


def main() -> None:
    """Answer what comes in, until `finish`."""
    init = json.loads(sys.stdin.readline())
    # What Squall asks for, and over it what stands on the command line: acks=1 linger.ms=20.
    own = dict(word.split("=", 1) for word in sys.argv[1:])
    producer = Producer({"bootstrap.servers": init["bootstrap"], **init["config"], **own})
    say(type="ready", name="confluent-kafka")
    asked: SimpleQueue = SimpleQueue()
    threading.Thread(target=lambda: [asked.put(json.loads(line)) for line in sys.stdin], daemon=True).start()
    while True:
        producer.poll(0)
        try:
            message = asked.get(timeout=0.005)
        except Empty:
            continue
        if message["type"] == "finish":
            producer.flush()
            return
        send(producer, message)


if __name__ == "__main__":
    main()
