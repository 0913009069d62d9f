"""Writes the story of a finding about transactions: events in order of time, then the offsets by partition. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from squall.checkers.metrics import ISOLATIONS
from squall.reports.fault_words import FaultRow, fault_rows
from squall.reports.problems import StorySubject
from squall.reports.run_files import RunFiles
from squall.reports.story_facts import ACKNOWLEDGED
from squall.reports.transactions.faults import moments_of_fault, short_of
from squall.reports.transactions.messages import asked_for, messages_of, moments_of_messages
from squall.reports.transactions.moments import (
    CLIENT,
    COORDINATOR,
    READERS,
    TxnMoment,
    length_text,
    letter_of,
    listing,
    moments_of,
    read_text,
)
from squall.reports.transactions.observed import (
    READ_COMMITTED,
    ObservedTxn,
    ObservedTxnMarker,
    ProducerTakeover,
    ReportedWatermarks,
    TransactionFacts,
    TxnRecord,
)
from squall.reports.transactions.outcomes import (
    BY_CHOICE,
    OPEN,
    UNASKED,
    last_sign_of,
    outcome_of,
    sentence_of,
    why_wrong,
)

ABOUT = ("G1a", "G1c", "dirty-read", "torn-txn", "lost-txn", "zombie-write", "hanging-txn", "lso-violation")
"""Lists the anomalies that a story of transactions explains."""
BESIDE = ("begun", "sent", "acked", "failed", "asked", "told", "prepared", "marked", "refused")
"""Lists the kinds of moments that a story shows of the preceding transaction with the same transactional id."""
BESIDE_S = 1.0
"""An earlier transaction is left out if it ended more than this number of seconds before the one in question began."""
AT_ONCE_S = 0.001
"""Sends within this time of each other are one sentence."""
NEXT_ANSWER_S = 5.0
MOMENTS_AT_MOST = 60
_KEY = (
    "Seconds count from the beginning of the load. read_committed readers get what lies before the last stable offset. "
    "A marker is the control batch that ends a transaction in one partition."
)


@dataclass
class TxnStory:
    """Holds a story of transactions, ready to be printed or drawn. Times are seconds since the load began."""

    problem: StorySubject
    summary: str
    called: dict[int, str]
    """Maps a transaction's operation to its name: T1, T2, ... for `subjects`, T0, T-1, ... for `others`."""
    subjects: list[ObservedTxn]
    names: dict[int, str]
    """Maps the value of a record to the record's name in the story, such as "A"."""
    moments: list[TxnMoment]
    legend: list[str]
    ends: list[str]
    """Lists the offsets of records and markers, a sentence for each transaction and partition."""
    left_out: int
    faults: list[FaultRow]
    others: list[ObservedTxn]
    """Lists the preceding transaction of each subject's transactional id, if it ended at most BESIDE_S before."""
    found: TransactionFacts

    @property
    def partitions(self) -> list[str]:
        """Returns the names of the partitions to which `subjects` sent records."""
        return sorted({name for txn in self.subjects for name in txn.partitions})

    @property
    def title(self) -> str:
        """Returns the title: the anomaly, the transactions and their transactional ids."""
        also = f" and {self.problem.also}" if self.problem.also else ""
        ids = ", ".join(dict.fromkeys(txn.id for txn in self.subjects))
        return f"{self.problem.name}{also}: {', '.join(self.called[txn.op] for txn in self.subjects)} of {ids}"


def story_of(files: RunFiles, found: TransactionFacts, problem: StorySubject) -> TxnStory | None:
    """Return the story of a problem; None if no transaction of the problem is known."""
    subjects = subjects_of(found, problem)
    if not subjects:
        return None
    others = _neighbours(found, subjects)
    called = {txn.op: f"T{number}" for number, txn in enumerate(subjects, start=1)}
    called |= {txn.op: f"T{-number}" for number, txn in enumerate(others)}
    values = [part.sent.value for txn in [*subjects, *others] for part in txn.parts]
    names = {value: letter_of(number) for number, value in enumerate(values)}
    teller = _TxnStoryBuilder(files, found, problem, subjects, others, called, names)
    moments = teller.moments()
    return TxnStory(
        problem,
        teller.summary(moments),
        called,
        subjects,
        names,
        moments[:MOMENTS_AT_MOST],
        [_legend(txn, called, names) for txn in [*subjects, *others]],
        teller.ends(),
        max(len(moments) - MOMENTS_AT_MOST, 0),
        teller.faults,
        others,
        found,
    )


def subjects_of(found: TransactionFacts, problem: StorySubject) -> list[ObservedTxn]:
    """Return the transactions that a finding names, else those whose records it names."""
    named = [txn for op in problem.ops if (txn := found.of_op(op)) is not None]
    if named:
        return list({txn.op: txn for txn in named}.values())
    by_value = [txn for value in problem.values if (txn := found.of_value(value)) is not None]
    if by_value:
        return by_value[:1]
    there = [
        (found.offset_of(part), txn) for txn in found.txns for part in txn.parts
        if part.partition == problem.where and found.offset_of(part) >= 0
    ]  # fmt: skip
    for offset in problem.offsets[::-1]:  # what was read beyond the last stable offset, then that offset
        at_it = [txn for at, txn in there if at == offset]
        if at_it:
            return at_it[:1]
    behind = [each for each in there if problem.offsets and each[0] >= problem.offsets[0]]
    return [min(behind, key=lambda each: each[0])[1]] if behind else []


def _neighbours(found: TransactionFacts, subjects: Sequence[ObservedTxn]) -> list[ObservedTxn]:
    """Return each subject's predecessor with the same id, if it ended at most BESIDE_S before the subject began."""
    chosen: dict[int, ObservedTxn] = {}
    for txn in subjects:
        earlier = [each for each in found.txns if each.id == txn.id and each.began < txn.began]
        before = max(earlier, key=lambda each: each.began, default=None)
        if before is not None and last_sign_of(before) >= txn.began - BESIDE_S:
            chosen[before.op] = before
    taken = {txn.op for txn in subjects}
    return [txn for txn in chosen.values() if txn.op not in taken]


class _TxnStoryBuilder:
    """Writes the moments of a finding's transactions, and of those before them (`_neighbours`) that affect them."""

    def __init__(
        self,
        files: RunFiles,
        found: TransactionFacts,
        problem: StorySubject,
        subjects: Sequence[ObservedTxn],
        others: Sequence[ObservedTxn],
        called: Mapping[int, str],
        names: Mapping[int, str],
    ) -> None:
        self._files, self._found, self._problem = files, found, problem
        self._subjects, self._others, self._called, self._names = subjects, others, called, names
        self._values = {part.sent.value for txn in subjects for part in txn.parts}
        first, last = min(txn.began for txn in subjects), max(last_sign_of(txn) for txn in subjects)
        reads = [read.t for value in self._values for read in found.reads.get(value, ())[:1]]
        self._span = first - 1.0, max([last, *reads]) + 1.0
        self._wires = messages_of(files)
        self.faults = [row for row in fault_rows(files) if self._is_near(row)]

    def _is_near(self, row: FaultRow) -> bool:
        if row.began is None:
            return False
        end = float("inf") if row.length is None else row.began + row.length
        return row.began <= self._span[1] and end >= self._span[0]

    # -------------------------------------------------------------------------------------------------------- moments

    def moments(self) -> list[TxnMoment]:
        """Return all moments, in order of time."""
        told: list[TxnMoment] = []
        for txn in self._subjects:
            own = moments_of(txn, self._found, self._names, self._called[txn.op])
            told += self._placed(txn, [each for each in own if each.kind not in ("seen", "visible")])
            told += self._after_fence(txn)
            told += self._reads(txn)
        for txn in self._others:
            beside = moments_of(txn, self._found, self._names, self._called[txn.op])
            told += self._placed(txn, [each for each in beside if each.kind in BESIDE and self._touches(each)])
        told += self._taken_over()
        for row in self.faults:
            told += moments_of_fault(self._files, row, [*self._subjects, *self._others], self._called)
        told += moments_of_messages(self._wires, *self._span)
        told += self._leaders()
        told += self._finally()
        # A take-over is the cause of what others do at the same time.
        return sorted(told, key=lambda moment: (moment.t, moment.kind != "taken over"))

    def _placed(self, txn: ObservedTxn, moments: Sequence[TxnMoment]) -> list[TxnMoment]:
        """Put the client's actions into the lane of its process; sends within AT_ONCE_S become one moment."""
        lane = f"process {txn.process}"
        placed: list[TxnMoment] = []
        for moment in moments:
            last = placed[-1] if placed else None
            if moment.kind == "sent":
                what = f"{moment.label} to {moment.lane}"
                if last is not None and last.kind == "sends" and moment.t - last.t < AT_ONCE_S:
                    about = (*last.about, *moment.about)
                    text = f"{last.text.rstrip('.')}, {what}."
                    placed[-1] = replace(last, label=f"sends {', '.join(about)}", text=text, about=about)
                    continue
                text = f"Process {txn.process} sends {what}."
                placed.append(replace(moment, lane=lane, kind="sends", label=f"sends {moment.label}", text=text))
            elif moment.lane == CLIENT:
                placed.append(replace(moment, lane=lane, label=f"{self._called[txn.op]} {moment.label}"))
            else:
                placed.append(self._with_marks(moment))
        return placed

    def _touches(self, moment: TxnMoment) -> bool:
        """Return whether a moment is in the lane of the client, of the coordinator, or of a partition in question."""
        return moment.lane in (CLIENT, COORDINATOR) or moment.lane in self.partitions

    @property
    def partitions(self) -> list[str]:
        """Returns the names of the partitions to which the finding's transactions sent records."""
        return sorted({name for txn in self._subjects for name in txn.partitions})

    def _with_marks(self, moment: TxnMoment) -> TxnMoment:
        """Add to a marker's moment the broker that requested it, and the watermarks in the next answer to a reader."""
        if moment.kind != "marked":
            return moment
        asked = asked_for(self._wires, moment)
        moment = replace(moment, text=f"{moment.text} {asked}") if asked else moment
        also = self._ends_also(moment)
        moment = replace(moment, text=f"{moment.text} {also}", grave=True) if also else moment
        told = next_answer(self._found, moment.lane, moment.t)
        if told is None:
            return moment
        assert told.lso >= 0
        after = f" The next answer, {length_text(told.t - moment.t)} later, tells last stable offset {told.lso}"
        return replace(moment, text=f"{moment.text}{after} and high watermark {told.hw}.")

    def _ends_also(self, moment: TxnMoment) -> str:
        """Say which records of other transactions the marker of this moment commits or aborts as well; empty if there
        are none. It ends all of its producer's epoch. V1 has one epoch for all transactions; V2 one for each (KIP-890).
        """
        marker = next(
            (each for each in self._found.markers if each.t == moment.t and each.partition == moment.lane), None
        )
        if marker is None:
            return ""
        same = (each.offset for each in self._found.markers
                if each.partition == marker.partition and each.producer_id == marker.producer_id)  # fmt: skip
        # An earlier marker has ended what lies before it.
        behind = max((offset for offset in same if 0 <= offset < marker.offset), default=-1)
        caught = [
            f"{self._names[part.sent.value]} of {self._called[txn.op]}"
            for txn in [*self._subjects, *self._others]
            if txn.op != moment.op and (txn.producer_id, txn.epoch) == (marker.producer_id, marker.epoch)
            for part in txn.parts
            if part.partition == marker.partition and behind < self._found.offset_of(part) < marker.offset
        ]
        verb = "has" if len(caught) == 1 else "have"
        return f"It ends {listing(caught)} as well, which {verb} the same producer id and epoch." if caught else ""

    def _after_fence(self, txn: ObservedTxn) -> Iterable[TxnMoment]:
        """Yield what a producer did after another one had taken over its transactional id."""
        fence, lane = fenced_by(txn, self._found), f"process {txn.process}"
        if fence is None:
            return
        acts = [(part.sent.sent, f"sent {self._names[part.sent.value]}") for part in txn.parts]
        acts += [(txn.asked, f"asked to {txn.how} {self._called[txn.op]}")] if txn.asked is not None else []
        for at, act in acts:
            if at > fence.t:
                late = length_text(at - fence.t)
                taken = f"process {fence.process} had taken over {txn.id}"
                text = f"Process {txn.process} was fenced {late} before it {act}: {taken}."
                yield TxnMoment(at, lane, "zombie", f"fenced, {act}", text, grave=True)

    def _reads(self, txn: ObservedTxn) -> Iterable[TxnMoment]:
        """Yield the first read of the transaction's records for each partition and isolation level, and every such read
        inside another transaction of the story.
        """
        for partition in txn.partitions:
            values = [part.sent.value for part in txn.parts if part.partition == partition]
            reads = sorted((r for v in values for r in self._found.reads.get(v, ())), key=lambda read: read.t)
            told: set[int] = set()
            for read in reads:
                inside = read.inside in self._called and read.inside != txn.op
                why = why_wrong(txn, read, self._called[txn.op])
                if read.isolation in told and not inside:
                    continue
                told.add(read.isolation)
                got = [self._names[r.value] for r in reads if (r.t, r.process) == (read.t, read.process)]
                text = read_text(read, got, partition)
                if inside:
                    text += f" That poll is part of {self._called[read.inside]}."
                if why:
                    text += f" {why}"
                label = f"{ISOLATIONS[read.isolation]} gets {', '.join(dict.fromkeys(got))} of {partition}"
                about = (partition, read.lso, read.hw, txn.op)
                yield TxnMoment(read.t, READERS, "read", label, text, bool(why) or inside, *about)

    def _taken_over(self) -> Iterable[TxnMoment]:
        ids = {txn.id for txn in self._subjects}
        for each in self._found.taken_over:
            if each.id in ids and self._span[0] <= each.t <= self._span[1]:
                by = f"(producer id {each.producer_id}, epoch {each.epoch})"
                earlier = any(
                    other.id == each.id and other.process != each.process and other.t < each.t
                    for other in self._found.taken_over
                )
                fences = ": earlier ones are fenced" if earlier else ""
                text = f"Process {each.process} is given the transactional id {each.id} {by}{fences}."
                yield TxnMoment(each.t, f"process {each.process}", "taken over", f"is given {each.id}", text)

    def _leaders(self) -> Iterable[TxnMoment]:
        """Yield which broker became leader of a partition in question, and what was truncated from its log."""
        for node, trace in self._files.traces.items():
            for line in trace:
                name, at = f"{line.get('topic')}-{line.get('partition')}", self._files.seconds(line["t"] * 1e9)
                if at is None or name not in self.partitions or not self._span[0] <= at <= self._span[1]:
                    continue
                if line["e"] == "became_leader":
                    where = f"(log end {line.get('leo')}, high watermark {line.get('hw')})"
                    text = f"Broker {node} leads {name} in epoch {line.get('epoch')} {where}."
                    yield TxnMoment(at, name, "leads", f"broker {node} leads", text)
                elif line["e"] == "truncated":
                    cut = f"from {line.get('from_offset')} to {line.get('to_offset')}"
                    text = f"Broker {node} truncates its log of {name} {cut}: {line.get('reason')}."
                    yield TxnMoment(at, name, "truncates", f"broker {node} truncates", text)

    def _finally(self) -> Iterable[TxnMoment]:
        """Yield moments of the final reads: records that no final read returned, and an LSO that cannot advance."""
        for partition in self.partitions:
            finals = [
                told for told in self._found.watermarks.get(partition, ())
                if told.process in self._found.final_readers and told.isolation == READ_COMMITTED
            ]  # fmt: skip
            if not finals:
                continue
            last = finals[-1]
            about = partition, last.lso, last.hw
            missing = [self._names[value] for value in self._missing(partition)]
            stands = f"last stable offset {last.lso}, high watermark {last.hw}"
            if missing:
                text = f"The final read_committed reads of {partition} do not return {listing(missing)} ({stands})."
                yield TxnMoment(last.t, READERS, "final", f"no {', '.join(missing)}", text, True, *about)
            if self._problem.name == "hanging-txn" and partition == self._problem.where:
                text = f"The final reads cannot go on: {partition} still has {stands}."
                yield TxnMoment(last.t, READERS, "final", f"LSO still {last.lso}", text, True, *about)

    def _missing(self, partition: str) -> list[int]:
        """Return acknowledged values that may be committed, but that no final read_committed read returned."""
        return [
            part.sent.value
            for txn in self._subjects
            if outcome_of(txn) not in (BY_CHOICE, UNASKED, OPEN)
            for part in txn.parts
            if part.partition == partition and part.sent.state == ACKNOWLEDGED and not self._stands(part.sent.value)
        ]

    def _stands(self, value: int) -> bool:
        return any(r.final and r.isolation == READ_COMMITTED for r in self._found.reads.get(value, ()))

    # ----------------------------------------------------------------------------------------------------------- words

    def summary(self, moments: Sequence[TxnMoment]) -> str:
        """Summarise the finding: outcomes of transactions, records that are not visible, wrong markers, and faults."""
        text = self._problem.text.rstrip(".")
        words = [f"{text[0].upper()}{text[1:]}."] if text else []
        for txn in self._subjects:
            words.append(f"{self._called[txn.op]} ({txn.id}, process {txn.process}): {sentence_of(txn, self._found)}.")
            for partition in txn.partitions:
                missing = [self._names[v] for v in self._missing(partition) if v in _values(txn)]
                if missing:
                    words.append(f"{listing(missing)} of {partition} {_is(missing)} not visible at read_committed.")
            words += dict.fromkeys(
                f"{each.partition} has {_an(each)} marker of it." for each in txn.markers if txn.contradicts(each)
            )
        first = next((moment for moment in moments if moment.grave), None)
        words += [f"At {first.t:.3f} s: {first.text}"] if first is not None else []
        if self.faults:
            on = ", ".join(f"{short_of(row)}{f' of {row.hit}' if row.hit else ''}" for row in self.faults)
            words.append(f"Faults at that time: {on}.")
        words += [said] if (said := self._found.ignorance(self._files.foreign)) else []
        return " ".join(words)

    def ends(self) -> list[str]:
        """Return a sentence for each transaction and partition: the offsets of its records and markers there."""
        told = []
        for txn in self._subjects:
            for partition in txn.partitions:
                told.append(self._end(txn, partition))
        return told

    def _end(self, txn: ObservedTxn, partition: str) -> str:
        own = [part.sent for part in txn.parts if part.partition == partition]
        records = ", ".join(self._place(part) for part in txn.parts if part.partition == partition)
        marks = [each for each in txn.markers if each.partition == partition and not each.error and each.offset >= 0]
        if marks:
            last = max(each.offset for each in marks)
            late = [
                self._names[part.sent.value] for part in txn.parts
                if part.partition == partition and self._found.offset_of(part) > last
            ]  # fmt: skip
            marker = f"; {', '.join(_marker_words(each, txn) for each in marks)}"
            marker += (
                f"; {listing(late)} came behind it, and nothing ends {'it' if len(late) == 1 else 'them'}"
                if late
                else ""
            )
        elif self._found.known:
            marker = "; no trace tells of a marker"
        else:
            marker = "; where its marker stands is not known"
        seen = [
            f"{word}: {self._first(own_values, isolation)}"
            for own_values in [[s.value for s in own]]
            for isolation, word in enumerate(ISOLATIONS)
        ]
        return f"{self._called[txn.op]} in {partition}: {records}{marker}. First read at {', at '.join(seen)}."

    def _place(self, part: TxnRecord) -> str:
        """Name a record and its offset, which its sender may not have learned."""
        name, offset = self._names[part.sent.value], self._found.offset_of(part)
        if offset < 0:
            return f"{name} ({part.sent.state})"
        return f"{name} at offset {offset}" + ("" if part.sent.offset >= 0 else f" ({part.sent.state} to its sender)")

    def _first(self, values: Sequence[int], isolation: int) -> str:
        times = [r.t for v in values for r in self._found.reads.get(v, ()) if r.isolation == isolation]
        return f"{min(times):.3f} s" if times else "never"


def next_answer(found: TransactionFacts, partition: str, t: float) -> ReportedWatermarks | None:
    """Return the first response with a last stable offset within NEXT_ANSWER_S after `t`; None if there is none."""
    later = (told for told in found.watermarks.get(partition, ()) if told.t >= t and told.lso >= 0)
    told = next(later, None)
    return told if told is not None and told.t - t <= NEXT_ANSWER_S else None


def fenced_by(txn: ObservedTxn, found: TransactionFacts) -> ProducerTakeover | None:
    """Return the first take-over of the transaction's id by another process; None if there was none."""
    same = [each for each in found.taken_over if each.id == txn.id]
    own = max((each.t for each in same if each.process == txn.process and each.t <= txn.began), default=None)
    if own is None:
        return None
    later = [each for each in same if each.process != txn.process and each.t > own]
    return min(later, key=lambda each: each.t, default=None)


def _marker_words(marker: ObservedTxnMarker, txn: ObservedTxn) -> str:
    decided = next((each for each in reversed(txn.decisions) if each.t <= marker.t), None)
    after = f", {length_text(marker.t - decided.t)} after {decided.state}" if decided is not None else ""
    by = f"{f'by broker {marker.node} ' if marker.node >= 0 else ''}for coordinator epoch {marker.coordinator_epoch}"
    return f"{marker.word} marker at offset {marker.offset}, written at {marker.t:.3f} s {by}{after}"


def _an(marker: ObservedTxnMarker) -> str:
    return "an abort" if not marker.commit else "a commit"


def _values(txn: ObservedTxn) -> set[int]:
    return {part.sent.value for part in txn.parts}


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _legend(txn: ObservedTxn, called: Mapping[int, str], names: Mapping[int, str]) -> str:
    listed = ", ".join(f"{names[part.sent.value]} to {part.partition}" for part in txn.parts) or "no record"
    return f"{called[txn.op]}: {txn.id}, process {txn.process}, {outcome_of(txn)}; {listed}"


def text_of(story: TxnStory, width: int = 100) -> str:
    """Return the story as plain text: title, summary, legend, sentences with times, offsets of records and markers."""
    lines = [story.title, "=" * len(story.title), "", *textwrap.wrap(story.summary, width), ""]
    for each in story.legend:
        lines += textwrap.wrap(each, width, subsequent_indent="    ")
    lines.append("")
    for place, moment in enumerate(story.moments, start=1):
        head = f"{place:>3}. {moment.t:>10.4f} s  "
        lines += textwrap.wrap(moment.text, width, initial_indent=head, subsequent_indent=" " * len(head))
    lines.append("")
    for end in story.ends:
        lines += textwrap.wrap(end, width, subsequent_indent="    ")
    lines += ["", *textwrap.wrap(_KEY, width)]
    if story.left_out > 0:
        lines.append(f"{story.left_out} moments that are not needed are left out.")
    return "\n".join(lines) + "\n"
