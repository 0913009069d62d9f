"""Describes in words how a state in memory differs from a replay of its log: for transactional ids, producers and
images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from squall.broker.coordinators.transactions.values import STATE_NAMES, TxnState
from squall.chaos.runtimes.sim.invariants.group_differences import NAMES, short

if TYPE_CHECKING:
    from squall.broker.cluster.image import Broker, PartitionImage
    from squall.chaos.runtimes.sim.invariants.contents import ComparableImage
    from squall.chaos.runtimes.sim.invariants.log_replay import ProducerReplay, ReplayedBatch
    from squall.chaos.runtimes.sim.invariants.transaction_journal import Place, TransactionRecord

FieldDifference = tuple[str, str, str]
"""Names the differing field, its value in the state, and its value in the replay."""


def of_id(name: str, has: TransactionRecord | None, wanted: TransactionRecord | None) -> str:
    """Describe in a line how a coordinator's state of a transactional id (`has`) differs from a replay of its log
    (`wanted`).
    """
    if wanted is None:
        return f"transactional id {name}: the coordinator knows it, and its log has no record of it"
    if has is None:
        return f"transactional id {name}: the coordinator does not know it, and its log has records of it"
    return f"transactional id {name}: {_told(list(_fields(has, wanted, _OF_AN_ID)))}"


def of_producer(producer_id: int, has: ProducerReplay | None, wanted: ProducerReplay | None) -> str:
    """Describe in a line how a log's state in memory of a producer id (`has`) differs from a replay of its batches
    (`wanted`).
    """
    if wanted is None:
        return f"producer id {producer_id}: the log knows it, and has no batch of it"
    if has is None:
        return f"producer id {producer_id}: the log does not know it, and has batches of it"
    return f"producer id {producer_id}: {_told(list(_fields(has, wanted, _OF_A_PRODUCER)))}"


def of_open(has: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]]) -> str:
    """Describe in a line how a log's open transactions in memory (`has`) differ from a replay of its batches
    (`wanted`), as (first offset, producer id).
    """
    return _told([("list of what is open", _open(has), _open(wanted))])


def of_image(has: ComparableImage, wanted: ComparableImage) -> str:
    """Describe in a line how a node's metadata image (`has`) differs from a replay of the metadata log (`wanted`)."""
    return f"in the image, {_told(list(_parts(has, wanted)) or [('order of the entries', 'one', 'another')])}"


def _told(found: Sequence[FieldDifference]) -> str:
    (what, known, replayed), *others = found
    told = f"{what} is {known}, and a replay of the log gives {replayed}"
    if others:
        more = f", {len(others) - NAMES} more" if len(others) > NAMES else ""
        names = ", ".join(name for name, _, _ in others[:NAMES])
        told += f"; {'also differ' if len(others) > 1 else 'also differs'}: {names}{more}"
    return told


def _fields(has: Any, wanted: Any, words: Mapping[str, tuple[str, Callable[[Any], str]]]) -> Iterator[FieldDifference]:
    for field, (word, say) in words.items():
        if (one := getattr(has, field)) != (other := getattr(wanted, field)):
            yield word, say(one), say(other)


def _state(number: int) -> str:
    return STATE_NAMES[TxnState(number)] if number in TxnState.__members__.values() else f"{number}, which is no state"


def _places(places: Sequence[Place]) -> str:
    return short(", ".join(f"{topic}-{index}" for topic, index in places)) or "none"


def _window(batches: Sequence[ReplayedBatch]) -> str:
    if not batches:
        return "none"
    newest = batches[-1]
    sequences, offsets = f"{newest.first_sequence} to {newest.last_sequence}", f"{newest.base} to {newest.last}"
    return f"{len(batches)}, the newest with sequences {sequences} at offsets {offsets}"


def _start(offset: int) -> str:
    return "none" if offset < 0 else f"open from offset {offset} on"


def _open(transactions: Sequence[tuple[int, int]]) -> str:
    told = [f"of producer id {producer_id} from offset {first} on" for first, producer_id in transactions]
    return ", ".join(told[:NAMES]) + (f" and {len(told) - NAMES} more" if len(told) > NAMES else "") or "none"


_OF_AN_ID: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "state": ("state", _state),
    "producer_id": ("producer id", str),
    "epoch": ("producer epoch", str),
    "places": ("list of partitions", _places),
    "timeout_ms": ("time-out (ms)", str),
    "started_ms": ("time of its start (ms)", str),
    "updated_ms": ("time of its last update (ms)", str),
    "tagged": ("previous producer id, next producer id, client's generation", str),
}
_OF_A_PRODUCER: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "epoch": ("producer epoch", str),
    "first": ("transaction", _start),
    "window": ("number of batches that are known again", _window),
    "expected": ("next sequence", str),
    "coordinator_epoch": ("coordinator epoch of the last marker", str),
}


def _parts(has: ComparableImage, wanted: ComparableImage) -> Iterator[FieldDifference]:
    yield from _entries("broker", _brokers(has), _brokers(wanted))
    yield from _entries("partition", _partitions(has), _partitions(wanted))
    yield from _entries("id of topic", _topics(has), _topics(wanted))
    yield from _entries("topic that is found by the name", _names(has), _names(wanted))
    yield from _entries("setting", _settings(has), _settings(wanted))
    yield from _entries("feature", dict(has.features), dict(wanted.features))
    yield from _entries(
        "record of what is not served:", dict.fromkeys(has.kept, True), dict.fromkeys(wanted.kept, True)
    )
    yield from _entries("next producer id", {"": has.next_producer_id}, {"": wanted.next_producer_id})
    yield from _entries("epoch", {"": has.epoch}, {"": wanted.epoch})


def _brokers(image: ComparableImage) -> dict[int, Broker]:
    return {broker.id: broker for broker in image.brokers}


def _partitions(image: ComparableImage) -> dict[str, PartitionImage]:
    return {f"{name}-{index}": partition for _, name, parts in image.topics for index, partition in parts}


def _topics(image: ComparableImage) -> dict[str, str]:
    return {name: topic_id.hex() for topic_id, name, _ in image.topics}


def _names(image: ComparableImage) -> dict[str, str]:
    return {name: topic_id.hex() for name, topic_id in image.names}


def _settings(image: ComparableImage) -> dict[str, str]:
    return {f"{name} of {about or 'all'}": said for (_, about), set_ in image.settings for name, said in set_}


def _entries(word: str, has: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> Iterator[FieldDifference]:
    for key in sorted(has.keys() | wanted.keys()):
        one, other = has.get(key), wanted.get(key)
        if one == other:
            continue
        name = f"{word} {key}".rstrip()
        if one is None or other is None or not hasattr(one, "__dataclass_fields__"):
            yield name, _value(one), _value(other)
            continue
        for field in fields(one):
            if field.compare and (mine := getattr(one, field.name)) != (its := getattr(other, field.name)):
                yield f"{field.name.replace('_', ' ')} of {name}", _value(mine), _value(its)


def _value(value: object) -> str:
    if value is None:
        return "missing"
    return "known" if hasattr(value, "__dataclass_fields__") else short(value)
