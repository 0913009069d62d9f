"""Holds the state that all parts of a simulated world share: time, randomness, and the record of what happened."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass
from struct import Struct
from typing import Any

import msgspec

from squall.chaos.runtimes.sim.kernel import Kernel

MONO_S = 1000.0
"""Is the machines' monotonic clock, in s, when the simulation begins."""
WALL_MS = 1_767_225_600_000
"""Is the wall clock, in ms, when the simulation begins: 2026-01-01 in UTC."""


def true_wall_ms(mono_s: float) -> float:
    """Return the true wall clock, in ms, at a moment of the true monotonic clock."""
    return WALL_MS + (mono_s - MONO_S) * 1000


WINDOW = 512 * 1024
_DELIVERY = Struct(">dII")
_PLAIN = frozenset((str, int, float, bool, type(None)))
"""Lists the types whose values stay the same when they are written as JSON and read: most trace lines have no others.
"""
_encode_plain = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class TracedFrame:
    """Represents one Kafka request or response that was sent from one host to another, for diagrams. Times are in
    virtual seconds, by the clock of the traces.
    """

    t_sent: float
    t_arrives: float
    source: int | str
    target: int | str
    api: int
    kind: str
    """Says whether the frame is a "request" or a "response"."""
    correlation_id: int
    size: int
    note: str = ""
    """Describes what a fault did to the frame; empty if the frame simply arrived."""


class SimCore:
    """Holds what all parts of one simulation share: virtual time, random streams made from the seed, and the record of
    what happened.

    Each purpose has its own random stream, so removing one fault from a plan changes no other random choice.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kernel = Kernel()
        self.trace: list[dict[str, Any]] = []
        """Lists every node's trace lines, in order, as in trace.jsonl."""
        self.messages: list[TracedFrame] | None = None
        """Lists the requests and responses, for diagrams; None if they are not collected."""
        self.window = WINDOW
        """Limits the bytes that one direction of a connection holds: sent by one end and not yet read by the other.
        Sockets' buffers have such a limit, too.
        """
        self.frames_matter = True
        """Is True if the simulator parses the bytes of each connection into Kafka requests and responses, from the
        first byte on. It must be True for protocol faults, and to collect `messages`.
        """
        self.counts: Counter[str] = Counter()
        """Counts how often the broker took rare code paths that write no line to a trace."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._encode = json.JSONEncoder(check_circular=False, separators=(",", ":"), default=_jsonable).encode
        self.trace_text: dict[str, list[bytes]] = {}
        """Maps a node's name to the lines of its trace.jsonl, as bytes."""

    def rng(self, *purpose: object) -> random.Random:
        """Return the random stream of a purpose. A purpose's stream is independent of all others, and the same in every
        OS process, whatever the hash seed.
        """
        return random.Random(repr((self.seed, *purpose)))

    @property
    def mono(self) -> float:
        """Returns the true monotonic time in seconds, which all traces and histories use."""
        return MONO_S + self.kernel.now

    def now_ns(self) -> int:
        """Return the true monotonic time in ns, by the same clock as `mono`."""
        return int(self.mono * 1e9)

    def traced(self, line: dict[str, Any]) -> None:
        """Add a line to the trace of the node that wrote it."""
        if _PLAIN.issuperset(map(type, line.values())):
            text = _encode_plain(line)
        else:
            text = self._encode(line).encode()
            # As a reader of trace.jsonl gets it: with lists in place of tuples and sets.
            line = msgspec.json.decode(text)
        self._hash.update(text)
        self.trace.append(line)
        self.trace_text.setdefault(line["n"], []).append(text)

    def beside(self, line: dict[str, Any]) -> None:
        """Add a line to the trace of the node that `line["n"]` names. The simulator writes such lines, not the node, so
        the run's digest ignores them.
        """
        self.trace.append(line)
        self.trace_text.setdefault(line["n"], []).append(self._encode(line).encode())

    def delivered(self, size: int, checksum: int) -> None:
        """Add bytes that arrived at a host to the run's digest, by their size and checksum."""
        self._hash.update(_DELIVERY.pack(self.kernel.now, size, checksum))

    def digest(self) -> str:
        """Return the digest of everything traced and delivered so far. The same seed gives the same digest."""
        return self._hash.hexdigest()


def _jsonable(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)
