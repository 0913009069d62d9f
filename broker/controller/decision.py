"""Defines the controller's commands and decisions: a command becomes a `Decision`; only replay changes the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from squall.broker.protocol.errors import ErrorCode, cut_short

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from squall.broker.cluster.image import ClusterImage
    from squall.broker.cluster.replay import MetadataRecord
    from squall.broker.cluster.settings import ControllerSettings
    from squall.broker.controller.sessions import BrokerSessionChange, BrokerSessions

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """Holds the outcome of a command. It has no effect until its records are appended and replayed.

    The records are appended as one unit: all of them reach the log, or none. The reply may be sent once they and the
    records of all earlier decisions are committed. The reason is that this decision was made from an image that already
    contained the earlier records.
    """

    reply: R
    records: tuple[MetadataRecord, ...] = ()
    session: BrokerSessionChange | None = None
    """Holds the command's effect on a broker's session, which takes place even if the records are never committed."""


class Refusal(Exception):
    """Is raised to answer a command, or a part of it, with an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        assert code != ErrorCode.NONE, "a refusal with this code would be taken for a success"
        message = message if message is None else cut_short(message)
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Command:
    """Holds all input of a decision. Deciding changes only the state of `rng`."""

    image: ClusterImage
    """Holds the image with all records of this controller replayed, committed or not."""
    sessions: BrokerSessions
    settings: ControllerSettings
    now_ms: int
    next_offset: int
    """Gives the offset that the first record of the decision will have."""
    rng: random.Random
    """Draws topic ids and the first broker of placements."""


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    """Refuse a request of a broker that is not registered, or of an incarnation that has been replaced (KIP-903)."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        message = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, message)


def duplicates(names: list[R]) -> Mapping[R, None]:
    """Return each value that occurs more than once, in the order of the first occurrences."""
    seen: dict[R, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    assert len(seen) <= len(names)
    return {name: None for name, count in seen.items() if count > 1}
