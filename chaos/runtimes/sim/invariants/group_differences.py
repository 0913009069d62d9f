"""Describes the difference between two states of a group in words, with the log records that cause it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from squall.chaos.runtimes.sim.invariants.group_journal import (
        CommittedOffset,
        Generation,
        GroupStateSnapshot,
        Positions,
    )

_OF_A_CONSUMER_GROUP = (
    *("epoch, hash of its topics and target epoch", "subscriptions", "instance ids", "current assignments"),
    *("target assignments", "owners of partitions", "matched regular expressions"),
)
"""Names the parts of a consumer group's state, in the order of `GroupStateSnapshot.consumer`."""
SHORT = 40
"""Limits the characters of a value in a description."""
NAMES = 3
"""Limits how many partitions or values a description names after the first difference. The rest are only counted."""
RECORDS = 4
"""Limits how many log records a reported violation lists as causes of a difference."""
_OF_A_POSITION = {
    "leader_epoch": "leader epoch",
    "metadata": "metadata",
    "committed_ms": "time of commit, ms",
    "expires_ms": "time of expiry, ms",
}
_OF_A_GENERATION = {
    "protocol_type": "protocol type",
    "number": "generation",
    "protocol": "protocol",
    "leader": "leader",
}
_OF_A_MEMBER = {"instance_id": "instance id", "subscription": "subscription", "assignment": "assignment"}


class StateDifference(NamedTuple):
    """Describes one value that differs between a coordinator's state of a group and a replay of its log. `what` names
    the value. `known` is the coordinator's, `replayed` the log's; None if there is no such value.
    """

    what: str
    known: str | None
    replayed: str | None
    records: tuple[tuple[int, str], ...] = ()
    """Lists the records that caused the difference, as (offset, content in words)."""
    place: str = ""
    """Names the partition whose committed offset differs; empty if another value differs."""


def difference(group: str, has: GroupStateSnapshot | None, wanted: GroupStateSnapshot | None) -> str:
    """Describe in a line how a coordinator's state of a group (`has`) differs from a replay of its log (`wanted`)."""
    if wanted is None:
        return f"group {group}: the coordinator knows it, and its log has no record of it"
    if has is None:
        return f"group {group}: the coordinator does not know it, and its log has records of it"
    first, *others = _differences(has, wanted)
    told = f"group {group}: {first.what} is {first.known or 'not known'}"
    told += f", and a replay of the log gives {first.replayed or 'none'}"
    if others:
        places = list(dict.fromkeys(each.place or each.what for each in others))
        more = f", {len(places) - NAMES} more" if len(places) > NAMES else ""
        told += f"; {'also differ' if len(places) > 1 else 'also differs'}: {', '.join(places[:NAMES])}{more}"
    return told


def records_of(
    found: Mapping[str, GroupStateSnapshot], replayed: Mapping[str, GroupStateSnapshot]
) -> list[dict[str, Any]]:
    """Return the log records that caused the first differences, at most RECORDS of them, as plain values for
    violations.json: {"offset": 7, "says": "..."}.
    """
    told: dict[tuple[int, str], None] = {}
    for group in sorted(found.keys() & replayed.keys()):
        if found[group] != replayed[group]:
            for each in _differences(found[group], replayed[group]):
                told |= dict.fromkeys((at, f"{says} of group {group}") for at, says in each.records)
    return [{"offset": at, "says": says} for at, says in list(told)[:RECORDS]]


def record_of(place: tuple[str, int], position: CommittedOffset) -> str:
    """Describe the record of a committed offset in words. `place`: the partition whose offset is committed."""
    return f"commits {position.offset} for {place[0]}-{place[1]}"


def _differences(has: GroupStateSnapshot, wanted: GroupStateSnapshot) -> list[StateDifference]:
    """Return all differences, the most important ones first. There is at least one if the states differ."""
    found = list(_of_offsets("committed offset of {place}", has.offsets, wanted.offsets))
    for producer in sorted(has.pending.keys() | wanted.pending.keys()):
        what = f"offset of {{place}} that waits for a transaction of producer id {producer}"
        found += _of_offsets(what, has.pending.get(producer, {}), wanted.pending.get(producer, {}))
    found += _of_generation(has.generation, wanted.generation)
    found += _of_consumer_group(has.consumer, wanted.consumer)
    return found or [StateDifference("offsets that wait for a marker", short(has.pending), short(wanted.pending))]


def _of_offsets(what: str, has: Positions, wanted: Positions) -> Iterator[StateDifference]:
    for place in sorted(has.keys() | wanted.keys()):
        one, other = has.get(place), wanted.get(place)
        if one == other:
            continue
        name = f"{place[0]}-{place[1]}"
        records = [(one.at, f"as the coordinator knew it, it {record_of(place, one)}")] if one else []
        if other and (one is None or other.at != one.at):
            records.append((other.at, f"in the log, it {record_of(place, other)}"))
        said, known, replayed = what.format(place=name), _position(one), _position(other)
        if one and other and known == replayed:
            field = next(field for field in _OF_A_POSITION if getattr(one, field) != getattr(other, field))
            said = f"{_OF_A_POSITION[field]} of the {said}"
            known, replayed = short(getattr(one, field)), short(getattr(other, field))
        yield StateDifference(said, known, replayed, tuple(records), name)


def _position(position: CommittedOffset | None) -> str | None:
    return None if position is None else f"{position.offset} (record {position.at})"


def _of_generation(has: Generation | None, wanted: Generation | None) -> Iterator[StateDifference]:
    if has is None or wanted is None:
        if has != wanted:
            yield StateDifference("generation", has and str(has.number), wanted and str(wanted.number))
        return
    for field, word in _OF_A_GENERATION.items():
        if (one := getattr(has, field)) != (other := getattr(wanted, field)):
            yield StateDifference(word, short(one), short(other))
    mine, theirs = {m.member_id: m for m in has.members}, {m.member_id: m for m in wanted.members}
    if list(mine) != list(theirs):
        known, replayed = short(", ".join(mine)) or "empty", short(", ".join(theirs)) or "an empty one"
        yield StateDifference("list of members", known, replayed)
        return
    for name, member in mine.items():
        for field, word in _OF_A_MEMBER.items():
            if (one := getattr(member, field)) != (other := getattr(theirs[name], field)):
                yield StateDifference(f"{word} of member {short(name)}", short(one), short(other))


def _of_consumer_group(has: tuple[object, ...] | None, wanted: tuple[object, ...] | None) -> Iterator[StateDifference]:
    if has is None or wanted is None:
        if has != wanted:
            yield StateDifference("consumer group", "there" if has else None, "there" if wanted else None)
        return
    for what, one, other in zip(_OF_A_CONSUMER_GROUP, has, wanted, strict=True):
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            for key in dict.fromkeys((*one, *other)):
                if one.get(key) != other.get(key):
                    yield StateDifference(f"{what} of {short(key)}", short(one.get(key)), short(other.get(key)))
        elif one != other:
            yield StateDifference(what, short(one), short(other))


def short(value: object) -> str:
    """Return a value as text, cut if it is long."""
    text = f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"
