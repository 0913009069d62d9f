"""Generates broker/config/kafka_settings.py, by `python -m tests.support.kafka_settings`: the settings that Apache
Kafka's `ConfigDef`s declare. It reads them from the documentation that Kafka's classes print. A nightly test compares.

Kafka does not print the settings that it calls internal.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

from squall.chaos.toolchain.kafka import VERSION, apache_kafka

FILE = Path(__file__).resolve().parents[2] / "broker/config/kafka_settings.py"
PRINTERS = {
    "NODE": "kafka.server.KafkaConfig",
    "TOPIC": "org.apache.kafka.storage.internals.log.LogConfig",
    "GROUP": "org.apache.kafka.coordinator.group.GroupConfig",
}
ONE = re.compile(r'<h4><a id="([^"]+)">.*?<th>Default:</th><td>(.*?)</td>.*?</table>', re.DOTALL)
MODE = re.compile(r"<th>Update Mode:</th><td>read-only</td>")
READABLE = re.compile(r" \([^()]*\)$")
"""Matches what the documentation appends to a default for people: "604800000 (7 days)"."""
HEADER = f'''"""Lists the settings that Apache Kafka {VERSION} declares, of nodes, topics and groups.

`python -m tests.support.kafka_settings` makes this file from its jars.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class KafkaSetting(NamedTuple):
    """Describes one setting: its default as text (None if it has none), and whether it may change while a node runs."""

    default: str | None
    alterable: bool = True
'''


def text() -> str:
    """Return the contents that the file should have."""
    kafka = apache_kafka(print)
    parts = [HEADER]
    for name, printer in PRINTERS.items():
        page = subprocess.run(kafka.command(printer, []), check=True, capture_output=True, text=True).stdout
        lines = [_line(found) for found in ONE.finditer(page)]
        parts.append(f"\n{name}: Mapping[str, KafkaSetting] = {{\n{''.join(sorted(lines))}}}\n")
    formatter = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(formatter, input="".join(parts), check=True, capture_output=True, text=True).stdout


def _line(found: re.Match[str]) -> str:
    told = READABLE.sub("", unescape(found[2]))
    default = None if told in ("", "null") else told.strip('"')
    if found[1] == "listener.security.protocol.map":
        default = ",".join(sorted(told.split(",")))  # of a Java map, which has another order each time
    shown = "None" if default is None else f'"{default}"'
    return f'    "{found[1]}": KafkaSetting({shown}{", alterable=False" if MODE.search(found[0]) else ""}),\n'


if __name__ == "__main__":
    FILE.write_text(text())
