"""What producers were asked for, beside what they sent, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from checkers.sent import ProduceRequests, SentSettings
from reports.run_files import Json, integer

_ACKS = {-1: "all"}


def acks_text(acks: int) -> str:
    """Name an `acks` as Kafka's documentation does."""
    return _ACKS.get(acks, str(acks))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a producer was asked for, by the plan or by the settings of its process."""

    acks: int = -1
    idempotence: bool = True
    in_flight: int = 0
    """Produce requests on one connection; 0: nobody said."""

    @property
    def text(self) -> str:
        """Say it in a few words."""
        in_flight = f", at most {self.in_flight} requests in flight" if self.in_flight else ""
        return f"acks={acks_text(self.acks)}, idempotence {'on' if self.idempotence else 'off'}{in_flight}"


def asked_of(*settings: Json) -> Asked:
    """Read it from the settings of a plan's workload, or of a process; later ones go before."""
    told = {key: value for each in settings for key, value in each.items()}
    acks = integer(told.get("acks"), -1)
    # Without acks=all a producer cannot be idempotent: the flag has no effect.
    is_idempotent = acks == -1 and told.get("idempotence", True) is True
    return Asked(acks, is_idempotent, integer(told.get("max_in_flight"), 0))


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that was sent and not asked for."""

    brief: str
    text: str


def differences(asked: Asked, sent: Sequence[SentSettings]) -> list[Difference]:
    """List what differs from what was asked for; nothing if nothing was seen."""
    found = []
    wanted = f"acks={acks_text(asked.acks)}"
    for acks in dict.fromkeys(each.acks for each in sent if each.acks != asked.acks):
        given = f"acks={acks_text(acks)}"
        count = _count(sent, lambda each, acks=acks: each.acks == acks)  # type: ignore[misc]
        found.append(Difference(f"{given} sent, {wanted} asked", f"the flags asked for {wanted}; {count} had {given}"))
    if asked.idempotence and not all(each.idempotent for each in sent):
        count = _count(sent, lambda each: not each.idempotent)
        text = f"the flags asked for idempotence; {count} had no producer id"
        found.append(Difference("no producer id sent, idempotence asked", text))
    most = max((each.in_flight for each in sent), default=0)
    if 0 < asked.in_flight < most:
        text = f"the flags asked for at most {asked.in_flight} requests in flight; {most} were seen on one connection"
        found.append(Difference(f"{most} requests in flight, {asked.in_flight} asked", text))
    return found


def _count(sent: Sequence[SentSettings], fits: Callable[[SentSettings], bool]) -> str:
    total = sum(each.requests for each in sent)
    return f"{sum(each.requests for each in sent if fits(each)):,} of {total:,} requests"


def sent_sentences(asked: Asked, sent: Sequence[SentSettings], seen_by: str) -> list[str]:
    """Tell what was asked for and what was sent."""
    first = f"Asked: {asked.text}."
    if not sent:
        return [first, f"Sent: not seen. {_not_seen(seen_by)}"]
    rows = [f"{each.requests:,} with {settings_text(each)}" for each in sent]
    return [first, f"Sent, as {seen_by} saw it in Produce requests: {'; '.join(rows)}."]


def settings_text(sent: SentSettings) -> str:
    """Say in a few words what stood in the requests."""
    words = [f"acks={acks_text(sent.acks)}", "a producer id" if sent.idempotent else "no producer id"]
    words.append(f"transactional id {sent.transactional_id}" if sent.transactional_id else "no transactional id")
    words.append(f"compression {sent.compression}")
    if sent.acks:
        words.append(f"up to {sent.in_flight} in flight on a connection")
    return ", ".join(words)


def _not_seen(seen_by: str) -> str:
    if seen_by:
        return f"No Produce request that {seen_by} saw can be its own."
    return "No broker traced the Produce requests, and no frame relay was on the links."


class Section(NamedTuple):
    """What the page tells of all producers. `rows`: who, what stood in the requests, how many."""

    asked: str
    differences: list[str]
    rows: list[tuple[str, str, str]]


def section_of_sent(requests: ProduceRequests, workload: Json) -> Section:
    """Compare what the plan's workload asked for with all that was seen."""
    asked = asked_of(workload)
    return Section(asked.text, [each.text for each in differences(asked, requests.settings)], list(_rows(requests)))


def _rows(requests: ProduceRequests) -> Iterable[tuple[str, str, str]]:
    for each in requests.settings:
        who = each.client_id or "no client id"
        yield (who if each.process is None else f"process {each.process}"), settings_text(each), f"{each.requests:,}"
    if requests.others:
        yield "others", "not told apart", f"{requests.others:,}"
