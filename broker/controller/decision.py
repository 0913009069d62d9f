"""Holds what the controller answers and writes: commands become a `Decision`, and only replay changes the image."""

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
    from squall.broker.controller.sessions import BrokerSessions, SessionChange

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """A command's outcome. Nothing has happened until the records are appended and replayed.

    The records are one unit: all or none of them reach the log. The reply may leave once they, and all that was
    written before them, are committed: it may rest on what the working image holds of earlier commands.
    """

    reply: R
    records: tuple[MetadataRecord, ...] = ()
    session: SessionChange | None = None
    """What the command says about a broker's session; it holds even if the records never commit."""


class Refusal(Exception):
    """A command, or a part of it, that is answered with an error code."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        assert code != ErrorCode.NONE, "a refusal with this code would be taken for a success"
        message = message if message is None else cut_short(message)
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Command:
    """All that a decision may look at. Nothing here is changed by deciding, but for the state of `rng`."""

    image: ClusterImage
    """With every record of this controller replayed, committed or not."""
    sessions: BrokerSessions
    settings: ControllerSettings
    now_ms: int
    next_offset: int
    """Offset that the first record of this decision will have."""
    rng: random.Random
    """For topic ids and for where placements begin."""


def check_broker_epoch(image: ClusterImage, broker_id: int, broker_epoch: int) -> None:
    """Refuse a broker that is not registered, or speaks for an incarnation that has been replaced (KIP-903)."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        message = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, message)


def duplicates(names: list[R]) -> Mapping[R, None]:
    """The values that occur more than once, in order."""
    seen: dict[R, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return {name: None for name, count in seen.items() if count > 1}
