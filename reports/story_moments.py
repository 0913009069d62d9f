"""Defines the moments of a partition's story, each in the lane of one broker or client, and texts that several of them
use. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from squall.reports.story_facts import ACKNOWLEDGED, FAILED, GroupPosition, SentRecord
from squall.reports.story_logs import ReconstructedReplica, ReplicaLogs

MUST, TURN, DETAIL, NOISE = 3, 2, 1, 0
"""These are the weights of moments. MUST: it is about the record in question. TURN: it changes the leader or the
content of a log. DETAIL: it explains. NOISE: it repeats.
"""
READERS = "readers"
NAMED_AT_MOST = 12
"""In a partition with at most this number of records, each record has a name."""


@dataclass(frozen=True, slots=True)
class LabelledRecord:
    """Describes a record that has a name in a story. `offset` is where the leader of `epoch` put the record; each is -1
    if it is not known.
    """

    name: str
    sent: SentRecord
    offset: int
    epoch: int
    is_subject: bool


@dataclass
class StoryMoment:
    """Describes one event in one lane: a broker's id as text, a producer's name, or `READERS`."""

    t: float
    lane: str
    kind: str
    text: str
    label: tuple[str, ...]
    weight: int
    grave: bool = False
    lost: str = ""
    """Names the record of which no log holds a copy from here on; empty for none."""
    replica: ReconstructedReplica | None = None
    """Holds the broker's log after the moment."""
    came_from: tuple[str, str] | None = None
    """Identifies the moment that sent the message that arrives here: the latest earlier one with this (lane, kind),
    such as ("2", "appends"). ("follower", kind) means a moment of any follower. ("leader", name) means that the leader
    appended or committed the record of that name.
    """
    about: tuple[str, ...] = ()
    """Names the records that the moment is about."""
    group: tuple[object, ...] = ()
    """Consecutive moments with the same `group` share one sentence: `plural`, with {who} replaced by their brokers. If
    it is empty, the moment has a sentence of its own.
    """
    plural: str = ""
    fault: int = -1
    """Numbers the fault that begins or ends here; -1 for none."""


@dataclass(frozen=True, slots=True)
class PartitionStateAtAck:
    """Holds the state of the partition when a record was acknowledged, as far as that was known."""

    node: int
    """Is the partition's leader."""
    epoch: int
    isr: tuple[int, ...]
    hw: int
    holders: tuple[int, ...]
    """Lists the brokers whose logs held the record."""


@dataclass
class StoryMoments:
    """Holds all moments of a partition, and in `logs` the brokers' logs after the last event."""

    moments: list[StoryMoment] = field(default_factory=list)
    logs: ReplicaLogs = field(default_factory=ReplicaLogs)
    lost: dict[str, float] = field(default_factory=dict)
    """Maps a record's name to the time from which no log held it."""
    at_ack: dict[str, PartitionStateAtAck] = field(default_factory=dict)
    """Maps a record's name to the state of its partition when it was acknowledged."""
    mistaken: dict[str, float] = field(default_factory=dict)
    """Maps a record's name to the time at which a broker took it for an earlier batch and did not append it."""
    exact: bool = False
    """Is True if every append is traced, as in the simulator."""


def offsets_of(replica: ReconstructedReplica, *, surely: bool = True) -> str:
    """Return the log end offset and high watermark for a label, as in "LEO 7 · HW 5". If not `surely`, they are lower
    bounds, as in "LEO ≥ 7 · HW ≥ 5".
    """
    least = "" if surely else "≥ "
    return f"LEO {least}{replica.leo} · HW {least}{replica.hw}"


def ids(nodes: Iterable[int]) -> str:
    """Return broker ids as text."""
    return ", ".join(map(str, sorted(nodes))) or "none"


def it(names: list[str]) -> str:
    """Return the pronoun for this number of names: "it" or "them"."""
    return "it" if len(names) == 1 else "them"


def are(records: list[LabelledRecord]) -> str:
    """Return the verb for this number of records: "is" or "are"."""
    return "is" if len(records) == 1 else "are"


def known_words(
    node: int, names: str, offsets: tuple[int, int], producer_id: int, *, has: bool, replica: ReconstructedReplica
) -> str:
    """Say that a broker took a batch for an earlier one of the same producer, and did not append it. `names` names the
    batch's records, as in "A and B". `offsets` are the first offset of the earlier batch and the offset behind its
    last. `has` is False if the broker's log does not hold the earlier batch. `replica` is the broker's log.
    """
    start, end = offsets
    where = f"offset {start}" if end - start == 1 else f"offsets {start} to {end - 1}"
    which = "" if has else ", though its log does not have that"
    return (
        f"Broker {node} takes {names} for the batch at {where} that producer id {producer_id} sent before{which}. "
        f"It appends nothing, and answers with that offset{leo_and_hw(replica)}."
    )


def is_of_another(record: LabelledRecord, records: Iterable[LabelledRecord]) -> bool:
    """Return whether another record had been acknowledged at this record's offset before this record was sent."""
    others = (each.sent for each in records if each.offset == record.offset and each is not record)
    return any(
        sent.state == ACKNOWLEDGED and sent.done is not None and sent.done <= record.sent.sent for sent in others
    )


def leo_and_hw(replica: ReconstructedReplica, *, surely: bool = True) -> str:
    """Return the log end offset and high watermark of a replica, as in " (LEO 7, HW 5)". If not `surely`, they are
    lower bounds.
    """
    least = "" if surely else "≥ "
    return f" (LEO {least}{replica.leo}, HW {least}{replica.hw})"


def outcome_words(record: LabelledRecord, lane: str, acks: str) -> tuple[str, tuple[str, str]]:
    """Say what a producer learns of a record. Return a sentence, and a label of two lines such as ("A acknowledged",
    "offset 7"). `acks` comes from `PartitionFacts.acks_words`.
    """
    sent, name, who = record.sent, record.name, lane.capitalize()
    if sent.state == FAILED:
        return f"{who} is told that {name} failed for certain.", (f"{name} failed", sent.error)
    if sent.state != ACKNOWLEDGED:
        why = f" ({sent.error})" if sent.error else ""
        return f"{who} does not learn what became of {name}{why}.", (f"{name}: unknown", sent.error)
    at = f" at offset {sent.offset}" if sent.offset >= 0 else ""
    though = f", though it is at offset {record.offset}" if 0 <= record.offset != sent.offset >= 0 else ""
    label = f"offset {sent.offset}" if sent.offset >= 0 else ""
    return f"{who} is told that {name} is written{at} ({acks}){though}.", (f"{name} acknowledged", label)


def position_words(position: GroupPosition) -> tuple[str, tuple[str, str]]:
    """Say that a group member commits a position, or fetches an old one. Return a sentence, and a label of two lines
    such as ("commits position 7", "of orders-0").
    """
    who, where, offset = f"Process {position.process}", position.where, position.offset
    if not position.fetched:
        return f"{who} commits position {offset} of {where}.", (f"commits position {offset}", f"of {where}")
    by = f" (by broker {position.broker})" if position.broker >= 0 else ""
    what = f"position {offset} of {where}" if offset >= 0 else f"that {where} has no position"
    label = f"is told position {offset}" if offset >= 0 else "is told: no position"
    return f"{who} is told {what}{by}, though position {position.newer} is committed.", (label, f"of {where}")
