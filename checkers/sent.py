"""Collects the settings of the Produce requests that producers really sent, as brokers or the frame relay saw them. The
frame relay is the harness's proxy that parses Kafka requests between clients and brokers.

A plan says only what a producer was asked for; a program may send something else. Squall's brokers count Produce
requests by their settings in their traces. For other brokers the frame relay counts the requests on the links that lead
through it. If neither looked, `ObservedProduceRequests.seen_by` is empty: that does not mean that nothing was sent.

All counts are lower bounds. A broker that is killed loses its newest counts: of the requests with the same settings at
most 16, or a fifth if that is more. It never loses a setting, because the first request with each setting is traced at
once. A broker also sees fewer requests in flight than there are, because it does not know which of its responses are
still on their way. So `in_flight` can prove that there was more than one request in flight, but never that there was
only one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

EVENT = "produce_requests"
RELAY_FILE = "frame-relay-produce.jsonl"
"""Names the file of a run in which the frame relay reports how many Produce requests it saw, by their settings."""
BROKERS, RELAY = "the brokers", "the frame relay"
HARNESS_CLIENTS = frozenset({"squall-afterwards", "squall-passing"})
"""Lists the client ids of Squall's own writes outside of the load: writes after healing, and writes to partitions that
are created during the load.
"""
_OF_PROCESS = re.compile(r"squall-process-(\d+)")


def client_id_of(process: int) -> str:
    """Return the client id that the harness gives to a producer; `process` is its id in the history."""
    return f"squall-process-{process}"


@dataclass(frozen=True, slots=True)
class ProduceRequestSettings:
    """Describes Produce requests that had the same settings, and counts them. In `acks`, -1 means all."""

    client_id: str | None
    acks: int
    idempotent: bool
    """Is True if the batches had a producer id."""
    transactional_id: str | None
    compression: str
    """Names the codec of a request's first batch: none, gzip, snappy, lz4 or zstd."""
    requests: int
    """Counts the requests with these settings; it is a lower bound."""
    in_flight: int
    """Is the largest number of requests that waited for a response on one connection at the same time; it is a lower
    bound. 0 with acks=0, which has no responses.
    """

    @property
    def process(self) -> int | None:
        """Return the id of the process in the history; None if the producer does not use the client id that it was
        given.
        """
        found = _OF_PROCESS.fullmatch(self.client_id or "")
        return int(found[1]) if found else None


@dataclass(frozen=True, slots=True)
class ObservedProduceRequests:
    """Holds the Produce requests of a run's load that were observed, without Squall's own writes beside the load."""

    settings: tuple[ProduceRequestSettings, ...] = ()
    """Lists the different settings, in the order in which they were first seen."""
    others: int = 0
    """Counts requests whose settings are not known, because a broker had seen too many different settings."""
    seen_by: str = ""
    """Says which observer counted the requests: `BROKERS` or `RELAY`. Empty if neither did."""

    def of_process(self, process: int) -> tuple[ProduceRequestSettings, ...]:
        """Return the settings of this process's requests, by its client id. If no request has that client id, return
        all requests whose client id names no process, because they may be its own. Empty: not seen.
        """
        own = tuple(each for each in self.settings if each.process == process)
        return own or tuple(each for each in self.settings if each.process is None)

    def of_processes(self, processes: Iterable[int]) -> tuple[ProduceRequestSettings, ...]:
        """Return the settings of these processes' requests, each once. If a process has no request with its client id,
        the requests whose client id names no process are included, because they may be its own.
        """
        found = {each for process in processes for each in self.of_process(process)}
        return tuple(each for each in self.settings if each in found)


def sent_in(run_dir: Path) -> ObservedProduceRequests:
    """Return the Produce requests that were observed in a run. Lines that cannot be read are left out; raises nothing
    for the state of the files.
    """
    traces = sorted((run_dir / "nodes").glob("*/trace.jsonl"))
    found = sent_of((path.parent.name, line) for path in traces for line in _lines(path))
    if found.seen_by:
        return found
    relayed = sent_of(("", line) for line in _lines(run_dir / RELAY_FILE))
    return replace(relayed, seen_by=RELAY) if relayed.seen_by else relayed


def sent_of(lines: Iterable[tuple[str, Mapping[str, Any]]]) -> ObservedProduceRequests:
    """Add up the counts in these lines; each is a pair of the broker's id as text (empty for the relay) and the parsed
    line. The counts of a running broker or link only grow. So for each start of a broker (`i`) and each link, the
    newest line with the same settings counts.
    """
    newest: dict[tuple[ProduceRequestSettings | None, Any, Any, Any], tuple[int, int]] = {}
    for node, line in lines:
        requests, in_flight = line.get("requests"), line.get("in_flight")
        if line.get("e") != EVENT or type(requests) is not int or type(in_flight) is not int:
            continue
        settings = _settings(line)
        if settings is not None or line.get("others"):
            newest[settings, node, line.get("i"), line.get("link")] = requests, in_flight
    totals: dict[ProduceRequestSettings | None, tuple[int, int]] = {}
    for (settings, *_), (requests, in_flight) in newest.items():
        before, most = totals.get(settings, (0, 0))
        totals[settings] = before + requests, max(most, in_flight)
    others, _ = totals.pop(None, (0, 0))
    found = (
        replace(settings, requests=requests, in_flight=in_flight)
        for settings, (requests, in_flight) in totals.items()
        if settings is not None and settings.client_id not in HARNESS_CLIENTS
    )
    return ObservedProduceRequests(tuple(found), others, BROKERS if newest else "")


def _settings(line: Mapping[str, Any]) -> ProduceRequestSettings | None:
    """Return the settings that a line names, with 0 requests; None if the line does not name them."""
    found = tuple(map(line.get, ("client_id", "acks", "idempotent", "transactional_id", "compression")))
    match found:
        case (str() | None as client_id, int() as acks, bool() as idempotent, str() | None as id_, str() as codec):
            return ProduceRequestSettings(client_id, acks, idempotent, id_, codec, 0, 0)
    return None


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    """Yield those lines of a trace, or of the relay's file, that count Produce requests (event `EVENT`), parsed. If the
    file cannot be read, there are none.
    """
    mark = f'"{EVENT}"'.encode()
    try:
        with path.open("rb") as lines:
            for raw in lines:
                # A trace has many lines, and few of them count requests.
                if mark in raw and (line := _object(raw)) is not None:
                    yield line
    except OSError:
        return


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
