"""Starts one broker with its files in /data. Arguments: settings, NAME=VALUE, which win over those below."""

import os
import sys

SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "CLIENT://0.0.0.0:9092,INTERNAL://127.0.0.1:9091",
    "advertised.listeners": "CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9091",
    "inter.broker.listener.name": "INTERNAL",
    "controller.quorum.voters": "1@127.0.0.1:9091",
    "log.dirs": "/data",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "squall.metrics.host": "0.0.0.0",
    "squall.metrics.port": "9404",
}
FILE = "/tmp/broker.properties"

given = dict(each.partition("=")[::2] for each in sys.argv[1:])
with open(FILE, "w") as file:
    file.writelines(f"{name}={value}\n" for name, value in {**SETTINGS, **given}.items())
# In place of this process: the broker is the container's first process, and gets its signals.
os.execv(sys.executable, [sys.executable, "-P", "-m", "squall.broker", "--config", FILE])
