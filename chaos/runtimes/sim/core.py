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
"""The machines' monotonic clocks when the world begins."""
WALL_MS = 1_767_225_600_000
"""The wall clock then: 2026-01-01 in UTC."""


def true_wall_ms(mono_s: float) -> float:
    """The true wall clock at a moment of the true monotonic one."""
    return WALL_MS + (mono_s - MONO_S) * 1000


_DELIVERY = Struct(">dII")
_PLAIN = frozenset((str, int, float, bool, type(None)))
"""What is the same again after it was written as JSON and read: most lines of a trace have nothing else."""
_encode_plain = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class TracedFrame:
    """Represents one request or response on its way. Times are in virtual seconds, by the clock of the traces."""

    t_sent: float
    t_arrives: float
    source: int | str
    target: int | str
    api: int
    kind: str
    """ "request" or "response"."""
    correlation_id: int
    size: int
    note: str = ""
    """What became of it, where it did not simply arrive."""


class SimCore:
    """Time, randomness and record of one world, from one seed. Network and nodes are built on it; it knows neither.

    Each purpose draws from a stream of its own: a plan without one of its faults draws the rest as before.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.kernel = Kernel()
        self.trace: list[dict[str, Any]] = []
        """Every node's trace lines, in order, as they stand in trace.jsonl."""
        self.messages: list[TracedFrame] | None = None
        """Collected where this is a list."""
        self.frames_matter = True
        """Frames are found in what connections carry: for `messages`, and for protocol faults from a connection's
        first byte on."""
        self.counts: Counter[str] = Counter()
        """Rare paths that no trace tells of."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._encode = json.JSONEncoder(check_circular=False, separators=(",", ":"), default=_jsonable).encode
        self.trace_text: dict[str, list[bytes]] = {}
        """Node name -> its lines of trace.jsonl."""

    def rng(self, *purpose: object) -> random.Random:
        """A random stream of its own for a purpose. The same in every process, whatever its hash seed."""
        return random.Random(repr((self.seed, *purpose)))

    @property
    def mono(self) -> float:
        """True monotonic seconds, by which traces and histories align."""
        return MONO_S + self.kernel.now

    def now_ns(self) -> int:
        """`mono` in ns."""
        return int(self.mono * 1e9)

    def traced(self, line: dict[str, Any]) -> None:
        """Keep a line that a node traced."""
        if _PLAIN.issuperset(map(type, line.values())):
            text = _encode_plain(line)
        else:
            text = self._encode(line).encode()
            line = msgspec.json.decode(text)
        self._hash.update(text)
        self.trace.append(line)
        self.trace_text.setdefault(line["n"], []).append(text)

    def beside(self, line: dict[str, Any]) -> None:
        """Add a line to a node's trace that the node did not trace itself. It is no part of the digest."""
        self.trace.append(line)
        self.trace_text.setdefault(line["n"], []).append(self._encode(line).encode())

    def delivered(self, size: int, checksum: int) -> None:
        """Bytes arrived somewhere. They are part of the digest."""
        self._hash.update(_DELIVERY.pack(self.kernel.now, size, checksum))

    def digest(self) -> str:
        """The digest of everything traced and delivered so far. The same seed gives the same digest."""
        return self._hash.hexdigest()


def _jsonable(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)
