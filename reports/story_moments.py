"""Defines what a story is made of: moments, each of one lane, and the words that they share. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from squall.reports.story_facts import ACKNOWLEDGED, FAILED, GroupPosition, SentRecord
from squall.reports.story_logs import ReplicaLogs, ReplicaView

MUST, TURN, DETAIL, NOISE = 3, 2, 1, 0
"""How much a moment matters: it is about the record in question; it changes who leads or what a log holds; it explains;
it repeats.
"""
READERS = "readers"
NAMED_AT_MOST = 12
"""A partition with so few records has a name for each of them."""


@dataclass(frozen=True, slots=True)
class LabelledRecord:
    """A record that has a name, and where the leader of `epoch` put it; -1 where that is not known."""

    name: str
    sent: SentRecord
    offset: int
    epoch: int
    is_subject: bool


@dataclass
class StoryMoment:
    """Describes one thing that happened to one lane: a broker's id as text, a producer's name, or `READERS`."""

    t: float
    lane: str
    kind: str
    text: str
    label: tuple[str, ...]
    weight: int
    grave: bool = False
    lost: str = ""
    """The record that is beyond rescue from here on."""
    replica: ReplicaView | None = None
    """The broker's log after it."""
    came_from: tuple[str, str] | None = None
    """(lane, kind) of the latest earlier moment that sent what arrived here."""
    about: tuple[str, ...] = ()
    """Names of the records that it is about."""
    group: tuple[object, ...] = ()
    """Moments in a row that share it are one sentence, `plural` with the brokers for {who}."""
    plural: str = ""
    fault: int = -1
    """The number of the fault that begins or ends here."""


@dataclass(frozen=True, slots=True)
class PartitionAtAck:
    """Holds the state of the partition when a record was acknowledged, as far as that was known."""

    node: int
    """Its leader."""
    epoch: int
    isr: tuple[int, ...]
    hw: int
    holders: tuple[int, ...]
    """Brokers whose logs held the record."""


@dataclass
class StoryMoments:
    """All moments, and the logs as they stood in the end."""

    moments: list[StoryMoment] = field(default_factory=list)
    logs: ReplicaLogs = field(default_factory=ReplicaLogs)
    lost: dict[str, float] = field(default_factory=dict)
    """Record's name -> when no log held it any more."""
    at_ack: dict[str, PartitionAtAck] = field(default_factory=dict)
    """Record's name -> how its partition stood then."""
    mistaken: dict[str, float] = field(default_factory=dict)
    """Record's name -> when a broker took it for one that was sent before, and did not append it."""
    exact: bool = False
    """Whether every append is told of, as the simulator does."""


def offsets_of(replica: ReplicaView, *, surely: bool = True) -> str:
    """LEO and HW in a few letters."""
    least = "" if surely else "≥ "
    return f"LEO {least}{replica.leo} · HW {least}{replica.hw}"


def ids(nodes: Iterable[int]) -> str:
    """Broker ids for people."""
    return ", ".join(map(str, sorted(nodes))) or "none"


def it(names: list[str]) -> str:
    """A pronoun for so many."""
    return "it" if len(names) == 1 else "them"


def are(records: list[LabelledRecord]) -> str:
    """The verb for so many."""
    return "is" if len(records) == 1 else "are"


def known_words(
    node: int, names: str, offsets: tuple[int, int], producer_id: int, *, has: bool, replica: ReplicaView
) -> str:
    """A broker takes what a producer sends for a batch, at offsets up to the second one, that it sent before."""
    start, end = offsets
    where = f"offset {start}" if end - start == 1 else f"offsets {start} to {end - 1}"
    which = "" if has else ", though its log does not have that"
    return (
        f"Broker {node} takes {names} for the batch at {where} that producer id {producer_id} sent before{which}. "
        f"It appends nothing, and answers with that offset{stand(replica)}."
    )


def is_of_another(record: LabelledRecord, records: Iterable[LabelledRecord]) -> bool:
    """Return whether another record was acknowledged at this one's offset before this one was sent."""
    others = (each.sent for each in records if each.offset == record.offset and each is not record)
    return any(
        sent.state == ACKNOWLEDGED and sent.done is not None and sent.done <= record.sent.sent for sent in others
    )


def stand(replica: ReplicaView, *, surely: bool = True) -> str:
    """Say where a log ends, in brackets; not `surely`: as its last trace line said."""
    least = "" if surely else "≥ "
    return f" (LEO {least}{replica.leo}, HW {least}{replica.hw})"


def outcome_words(record: LabelledRecord, lane: str, acks: str) -> tuple[str, tuple[str, str]]:
    """Say what a producer learns of a record: as a sentence, and as a label. `acks`: `PartitionFacts.acks_words`."""
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
    """A member of a group commits a position, or is told an old one: as a sentence, and as a label."""
    who, where, offset = f"Process {position.process}", position.where, position.offset
    if not position.told:
        return f"{who} commits position {offset} of {where}.", (f"commits position {offset}", f"of {where}")
    by = f" (by broker {position.broker})" if position.broker >= 0 else ""
    what = f"position {offset} of {where}" if offset >= 0 else f"that {where} has no position"
    label = f"is told position {offset}" if offset >= 0 else "is told: no position"
    return f"{who} is told {what}{by}, though position {position.newer} is committed.", (label, f"of {where}")
