"""A program under test that hangs after some records: then it answers no send, and its polls return nothing.

Its argument is the number of records. It serves --role both.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

RECORDS = int(sys.argv[1])
init = json.loads(sys.stdin.readline())


def say(**answer: Any) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def produce() -> None:
    producer = Producer({"bootstrap.servers": init["bootstrap"], **init["config"]})
    threading.Thread(target=lambda: [producer.poll(0.05) for _ in iter(int, 1)], daemon=True).start()
    for asked in map(json.loads, sys.stdin):
        if asked["type"] == "send" and asked["id"] < RECORDS:

            def told(error: Any, record: Any, number: int = asked["id"]) -> None:
                where = {"partition": record.partition(), "offset": record.offset()}
                say(type="info", id=number, error=error.name()) if error else say(type="ok", id=number, **where)

            value = base64.b64decode(asked["value"])
            producer.produce(
                asked["topic"], value, asked["key"], asked["partition"], told, timestamp=asked["timestamp_ms"]
            )


def consume() -> None:
    consumer = Consumer({"bootstrap.servers": init["bootstrap"], "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(each["topic"], each["partition"], 0) for each in init["assigned"]])
    got = 0
    for asked in map(json.loads, sys.stdin):
        read = consumer.consume(100, 0.1) if got < RECORDS else []
        records = [
            {
                "partition": each.partition(),
                "offset": each.offset(),
                "key": each.key().decode(),
                "value": base64.b64encode(each.value()).decode(),
            }
            for each in read
            if each.error() is None
        ]
        got += len(records)
        say(type="records", id=asked["id"], records=records)


say(type="ready", name="hangs")
produce() if init["role"] == "producer" else consume()
time.sleep(3600)
