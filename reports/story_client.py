"""Describes a client that made no progress, although fresh clients, which the harness started after healing, were
served in that time. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from squall.checkers.anomalies import stuck
from squall.reports.checks import CheckResult
from squall.reports.problems import StorySubject, load_begin
from squall.reports.run_files import Json, RunFiles, integer
from squall.reports.stories import StoryLine, value_text
from squall.reports.story_facts import ACKNOWLEDGED, PartitionFacts, SeenRecord, SentRecord, all_facts


@dataclass(frozen=True, slots=True)
class ProducerStall:
    """Describes the longest time, from `since` to `until`, in which a producer got no acknowledgement. Only the time
    after the first acknowledgement to a fresh client counts.
    """

    last: SentRecord | None
    """Is the latest record of the producer that was acknowledged at or before `since`; None if there is none."""
    unanswered: tuple[SentRecord, ...]
    """Lists the producer's records after `last` that were not acknowledged before `until`, in order of sending."""
    fresh: SentRecord
    """Is a fresh client's write, the first one that was acknowledged after `last`."""
    read: SeenRecord | None
    since: float
    until: float
    recovered: bool
    """Is True if a record of the producer was acknowledged at `until`; else its load ended then."""

    @property
    def values(self) -> tuple[int, ...]:
        """Returns the values of the records in the story."""
        return tuple(each.value for each in (self.last, *self.unanswered[:1], self.fresh) if each is not None)


def standstill_of(facts: PartitionFacts) -> ProducerStall | None:
    """Find the time in which the producer was stuck; None if the problem does not blame a producer, or if the history
    does not show it.
    """
    if facts.problem.name != stuck.PRODUCER or not facts.problem.blames:
        return None
    acked = sorted((s for s in facts.sends if s.state == ACKNOWLEDGED), key=_done)
    fresh = [each for each in acked if each.process in facts.fresh]
    if not fresh:
        return None
    own = [each for each in facts.sends if each.process not in facts.fresh]
    acked = [each for each in acked if each.process not in facts.fresh]
    answers = [_done(each) for each in acked if _done(each) > _done(fresh[0])]
    end = max([_done(fresh[0]), *map(_done, own)])
    since, until = max(pairwise([_done(fresh[0]), *answers, end]), key=lambda pair: pair[1] - pair[0])
    last = next((each for each in reversed(acked) if _done(each) <= since), None)
    waited = [each for each in own if each.state != ACKNOWLEDGED or _done(each) >= until]
    waited = [each for each in waited if each.sent <= until and (last is None or _done(each) > _done(last))]
    served = next((each for each in fresh if last is None or _done(each) > _done(last)), fresh[0])
    read = min((seen for seen in facts.seen if seen.value == served.value), key=lambda seen: seen.t, default=None)
    went_on = until in answers
    return ProducerStall(last, tuple(sorted(waited, key=lambda s: s.sent)), served, read, since, until, went_on)


def _done(sent: SentRecord) -> float:
    return sent.sent if sent.done is None else sent.done


def sentences_of(facts: PartitionFacts, names: Mapping[int, str]) -> list[str]:
    """Describe what the blamed client did, and which client was served meanwhile. `names` maps a value to the record's
    name.
    """
    return [f"At {line.t:.3f} s {line.text}" for line in _lines(facts, names)]


def lines_of(files: RunFiles, problems: Sequence[StorySubject]) -> list[list[StoryLine]]:
    """Return the events of each problem that show how the blamed client made no progress, and how a fresh client did.
    Times are seconds on the page's time axis.
    """
    begin = load_begin(files)
    found = all_facts(files, problems) if problems else []
    return [
        [StoryLine(line.t + begin, line.text[:1].upper() + line.text[1:], line.grave) for line in _lines(facts, {})]
        for facts in found
    ]


def witness_problem(check: CheckResult, witness: Json) -> StorySubject:
    """Convert a witness of a finding into the subject of a story: the anomaly, its partition, offset and processes."""
    topic, _, index = str(witness.get("partition")).rpartition("-")
    offset, op, process, other = (integer(witness.get(name)) for name in ("off", "op", "proc", "other"))
    offsets = (offset,) if offset >= 0 else ()
    about = StorySubject(check.name, "", topic, int(index) if index.isdigit() else -1, offsets=offsets)
    return replace(about, op=op, process=process, other=other, blames=check.blames)


def _lines(facts: PartitionFacts, names: Mapping[int, str]) -> Iterator[StoryLine]:
    still = standstill_of(facts)
    if still is not None:
        yield from _of_a_producer(still, facts.problem.blames, names)
    elif facts.problem.name == stuck.CONSUMER and facts.problem.blames:
        yield from _of_a_reader(facts)


def _of_a_producer(still: ProducerStall, who: str, names: Mapping[int, str]) -> Iterator[StoryLine]:
    last, fresh = still.last, still.fresh
    until = f"{still.until:.3f} s" if still.recovered else f"its load ended at {still.until:.3f} s"
    if last is not None:
        yield StoryLine(
            _done(last), f"{who} acknowledged {_name(last, names)} and then nothing until {until}.", grave=True
        )
    if still.unanswered:
        first, many = still.unanswered[0], len(still.unanswered)
        told = f"{who} was handed {_name(first, names)}, the first of {many:,} records that it did not acknowledge"
        yield StoryLine(first.sent, f"{told}{f' before {until}' if still.recovered else ''}.")
    after = ""
    if last is not None and _done(fresh) > _done(last):
        after = f", {_done(fresh) - _done(last):.3f} s after {_name(last, names)}"
    read = f", and a reader got it at {still.read.t:.3f} s" if still.read is not None else ""
    told = f"a fresh client's write to the same partition, {_name(fresh, names)}, was acknowledged"
    yield StoryLine(_done(fresh), f"{told}{after}{read}.")
    if last is None or still.since > _done(last):
        yield StoryLine(
            still.since, f"{who} still acknowledged nothing, for another {still.until - still.since:.3f} s."
        )


def _name(sent: SentRecord, names: Mapping[int, str]) -> str:
    at = f" (offset {sent.offset})" if sent.offset >= 0 else ""
    return names.get(sent.value, value_text(sent.value)) + at


def _of_a_reader(facts: PartitionFacts) -> Iterator[StoryLine]:
    """Yield the last record that the reader got, and the reads of the next records by others."""
    got = sorted((each for each in facts.polled if each.last >= 0), key=lambda each: each.t)
    own = [each for each in got if each.process == facts.problem.process]
    for last in own[-1:]:
        said = f"{facts.problem.blames} (process {last.process}) got records last, up to offset {last.last}."
        yield StoryLine(last.t, said, grave=True)
    beyond = own[-1].last if own else -1
    others = [each for each in got if each.process != facts.problem.process and each.last > beyond]
    for other in others[:1]:
        what = "a fresh reader" if other.final else "another reader"
        yield StoryLine(other.t, f"process {other.process}, {what}, got offset {other.last}.")
