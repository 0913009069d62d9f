"""Compares the settings that the plan requests of producers with the settings in their Produce requests. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from squall.checkers.sent import ObservedProduceRequests, ProduceRequestSettings
from squall.reports.run_files import Json, integer

_ACKS = {-1: "all"}


def acks_text(acks: int) -> str:
    """Return `acks` as Kafka's documentation writes it."""
    return _ACKS.get(acks, str(acks))


@dataclass(frozen=True, slots=True)
class RequestedSettings:
    """Holds the settings that a producer is to use, by the plan or by the settings of its process."""

    acks: int = -1
    idempotence: bool = True
    in_flight: int = 0
    """Limits the Produce requests in flight on one connection; 0 if no limit was given."""

    @property
    def text(self) -> str:
        """Describes the settings in a few words."""
        in_flight = f", at most {self.in_flight} requests in flight" if self.in_flight else ""
        return f"acks={acks_text(self.acks)}, idempotence {'on' if self.idempotence else 'off'}{in_flight}"


def asked_of(*settings: Json) -> RequestedSettings:
    """Return the settings that the tables request, such as the plan's workload and a process's own settings. A later
    table overrides an earlier one.
    """
    told = {key: value for each in settings for key, value in each.items()}
    acks = integer(told.get("acks"), -1)
    # Without acks=all a producer cannot be idempotent: the flag has no effect.
    is_idempotent = acks == -1 and told.get("idempotence", True) is True
    return RequestedSettings(acks, is_idempotent, integer(told.get("max_in_flight"), 0))


@dataclass(frozen=True, slots=True)
class UnrequestedSetting:
    """Describes a setting in a producer's requests that differs from the requested one."""

    brief: str
    text: str
    why: str = ""
    """Says why it is not known whether a given record was sent with this setting; empty if it is known."""


def differences(asked: RequestedSettings, sent: Sequence[ProduceRequestSettings]) -> list[UnrequestedSetting]:
    """List the sent settings that differ from the requested ones; nothing if no request was seen."""
    found = []
    wanted = f"acks={acks_text(asked.acks)}"
    for acks in dict.fromkeys(each.acks for each in sent if each.acks != asked.acks):
        given = f"acks={acks_text(acks)}"
        count = _count(sent, lambda each, acks=acks: each.acks == acks)  # type: ignore[misc]
        brief, why = _mixed(sent, _acks) or (f"{given} sent, {wanted} asked", "")
        found.append(UnrequestedSetting(brief, f"the flags asked for {wanted}; {count} had {given}", why))
    if asked.idempotence and not all(each.idempotent for each in sent):
        count = _count(sent, lambda each: not each.idempotent)
        brief, why = _mixed(sent, _producer_id) or ("no producer id sent, idempotence asked", "")
        found.append(UnrequestedSetting(brief, f"the flags asked for idempotence; {count} had no producer id", why))
    most = max((each.in_flight for each in sent), default=0)
    if 0 < asked.in_flight < most:
        text = f"the flags asked for at most {asked.in_flight} requests in flight; {most} were seen on one connection"
        found.append(UnrequestedSetting(f"{most} requests in flight, {asked.in_flight} asked", text))
    return found


def acks_words(asked: RequestedSettings, sent: Sequence[ProduceRequestSettings]) -> str:
    """Say which acks a producer sent, and also the requested ones if they differ."""
    wanted = f"acks={acks_text(asked.acks)}"
    if mixed := _mixed(sent, _acks):
        return f"{mixed[0]}; {wanted} asked"
    told = _acks(sent[0])
    return told if told == wanted else f"{told} sent, {wanted} asked"


def _mixed(
    sent: Sequence[ProduceRequestSettings], word: Callable[[ProduceRequestSettings], str]
) -> tuple[str, str] | None:
    """Return two texts if one producer sent several kinds of requests: what was sent, and why it is not known which
    kind of request carried a given record. Return None if no producer did. `word` returns the kind of a request, such
    as "acks=1".

    Requests whose client id names no process count as those of one producer, because one may have sent all of them.
    """
    kinds: dict[int | None, dict[str, None]] = {}
    for each in sent:
        kinds.setdefault(each.process, {})[word(each)] = None
    for process, words in kinds.items():
        if len(words) > 1:
            ids = dict.fromkeys(each.client_id or "none" for each in sent if each.process == process)
            which = f"client.id{'s'[: len(ids) > 1]} {', '.join(ids)}"
            kinds_of = f"requests of {'both' if len(words) == 2 else 'all'} kinds"
            why = f"with which of them a record was sent is not known: {kinds_of} came from {which}"
            return f"{' or '.join(words)} sent, not known which", why
    return None


def _count(sent: Sequence[ProduceRequestSettings], fits: Callable[[ProduceRequestSettings], bool]) -> str:
    total = sum(each.requests for each in sent)
    return f"{sum(each.requests for each in sent if fits(each)):,} of {total:,} requests"


def sent_sentences(asked: RequestedSettings, sent: Sequence[ProduceRequestSettings], seen_by: str) -> list[str]:
    """Say in sentences which settings were asked for and which were sent. `seen_by` names what observed the Produce
    requests: "the brokers" or "the frame relay"; empty if neither did.
    """
    first = f"Asked: {asked.text}."
    if not sent:
        return [first, f"Sent: not seen. {_not_seen(seen_by)}"]
    alike: dict[ProduceRequestSettings, list[ProduceRequestSettings]] = {}
    for each in sent:
        alike.setdefault(replace(each, client_id=None, requests=0, in_flight=0), []).append(each)
    rows = [_sum_text(each) for each in alike.values()]
    return [first, f"Sent, as {seen_by} saw it in Produce requests: {'; '.join(rows)}."]


def _sum_text(alike: Sequence[ProduceRequestSettings]) -> str:
    """Return how many requests several client ids sent with the same settings, and these settings, as in "1,200 (of 3
    client ids) with acks=all, ...". `alike` has an entry for each client id.
    """
    most = replace(alike[0], in_flight=max(each.in_flight for each in alike))
    of = f" (of {len(alike)} client ids)" if len(alike) > 1 else ""
    return f"{sum(each.requests for each in alike):,}{of} with {settings_text(most)}"


def settings_text(sent: ProduceRequestSettings) -> str:
    """Describe the settings of the requests in a few words."""
    words = [_acks(sent), _producer_id(sent)]
    words.append(f"transactional id {sent.transactional_id}" if sent.transactional_id else "no transactional id")
    words.append(f"compression {sent.compression}")
    if sent.acks:
        words.append(f"up to {sent.in_flight} in flight on a connection")
    return ", ".join(words)


def _acks(sent: ProduceRequestSettings) -> str:
    return f"acks={acks_text(sent.acks)}"


def _producer_id(sent: ProduceRequestSettings) -> str:
    return "a producer id" if sent.idempotent else "no producer id"


def _not_seen(seen_by: str) -> str:
    if seen_by:
        return f"No Produce request that {seen_by} saw can be its own."
    return "No broker traced the Produce requests, and no frame relay was on the links."


class ProducerSettingsSection(NamedTuple):
    """Holds the page's section on the settings that producers sent. `rows` lists producer, settings in the requests,
    and number of requests.
    """

    asked: str
    differences: list[str]
    rows: list[tuple[str, str, str]]


def section_of_sent(requests: ObservedProduceRequests, workload: Json) -> ProducerSettingsSection:
    """Compare the settings of the plan's workload with all observed requests."""
    asked = asked_of(workload)
    return ProducerSettingsSection(
        asked.text, [each.text for each in differences(asked, requests.settings)], list(_rows(requests))
    )


def _rows(requests: ObservedProduceRequests) -> Iterable[tuple[str, str, str]]:
    for each in requests.settings:
        who = each.client_id or "no client id"
        yield (who if each.process is None else f"process {each.process}"), settings_text(each), f"{each.requests:,}"
    if requests.others:
        yield "others", "not told apart", f"{requests.others:,}"
