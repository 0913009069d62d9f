"""Writes the story of an anomaly in one partition: which process wrote what, which broker led in which epoch, what was
truncated and why, when the data was gone, and each log end and high watermark when the leader or a log changed. The
story is text; `squall.reports.spacetime` draws the same moments. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from squall.checkers.anomalies import stuck
from squall.checkers.anomalies.registry import LOSS
from squall.checkers.history.values import sequence_of
from squall.reports import members, outputs
from squall.reports.members import GroupMemberActions
from squall.reports.problems import StorySubject, is_of_transactions, load_begin, problems_of
from squall.reports.run_files import RunFiles
from squall.reports.sent_words import UnrequestedSetting, differences
from squall.reports.story_client import sentences_of
from squall.reports.story_facts import ACKNOWLEDGED, GroupPosition, PartitionFacts, all_facts
from squall.reports.story_moments import MUST, NOISE, READERS, TURN, LabelledRecord, StoryMoment, StoryMoments
from squall.reports.story_records import is_misplaced, named_records, with_names
from squall.reports.story_teller import replay_moments

MOMENTS_AT_MOST = 48
_KEY = "Seconds count from the beginning of the load."
_OF_LOGS = " LEO: where a log ends. HW: high watermark, as that broker knows it."
_INFERRED = " ≥: inferred, at least so much."
ROOM_S = 1.0
"""A story also has changes of leaders and logs up to this many seconds before the first and after the last moment of
the record in question. If the finding is a violated invariant, there are no such moments after the last one.
"""
STORIES_AT_MOST = 3


@dataclass
class PartitionStory:
    """Holds the story of a finding in one partition, ready to be printed or drawn. Times are seconds since the load
    began.
    """

    problem: StorySubject
    summary: str
    records: list[LabelledRecord]
    moments: list[StoryMoment]
    left_out: int
    ends: list[str]
    """Describes each broker's log after the last event, and differences between logs, a sentence each."""
    lanes: list[str]
    """Lists producers, brokers by id as text, and readers, in the order of the picture."""
    all_moments: StoryMoments = field(default_factory=StoryMoments)
    facts: PartitionFacts | None = None
    members: GroupMemberActions | None = None
    """Holds the actions of group members that led to the finding; None if there are none."""

    @property
    def exact(self) -> bool:
        """Is True if traces show every append; if not, log ends and high watermarks may be lower bounds."""
        return self.all_moments.exact

    @property
    def of_members(self) -> bool:
        """Is True if the story is about group members, and no broker."""
        return self.members is not None and self.members.alone

    @property
    def title(self) -> str:
        """Returns the title: the anomaly and its partition."""
        also = f" and {self.problem.also}" if self.problem.also else ""
        permitted = ", permitted" if self.problem.permitted else ""
        differs = _differs(self.facts, self.records) if self.facts is not None else []
        sent = f": {differs[0].brief}" if differs else ""
        blames = f", by {self.problem.blames}" if self.problem.blames else ""
        return f"{self.problem.name}{also} in {self.problem.where}{blames}{permitted}{sent}"


def stories_of(files: RunFiles, problems: Sequence[StorySubject] | None = None) -> list[PartitionStory]:
    """Return a story for each of these problems of partitions, or for the gravest problems of a run if none are given.
    Problems without a known moment have no story.
    """
    if problems is None:
        problems = [each for each in problems_of(files) if not is_of_transactions(each.name)][:STORIES_AT_MOST]
    found = all_facts(files, problems)
    for facts in found:
        facts.outputs, facts.positions = outputs.outputs_and_positions(files, facts.problem)
    acted = members.members_of(files, [facts.problem for facts in found])
    told = map(story_of, found, acted)
    return [story for story in told if story.moments]


def story_of(facts: PartitionFacts, acted: GroupMemberActions | None = None) -> PartitionStory:
    """Return the story of these facts. If group members alone led to the finding, it is a story of their actions
    (`acted`).
    """
    if acted is not None and acted.alone:
        return _of_members(facts, acted)
    producers = producers_of(facts)
    records = named_records(facts)
    told = replay_moments(facts, records, producers)
    moments = chosen(told.moments, facts.problem)
    shown = {moment.lane for moment in moments}
    processes = [*(each.sent.process for each in records), *(each.process for each in facts.positions)]
    clients = [producers[each] for each in sorted({*processes} & {*producers})]
    lanes = [lane for lane in clients if lane in shown]
    nodes = {*facts.nodes, *(int(lane) for lane in shown if lane.isdigit())}
    lanes += [str(node) for node in sorted(nodes) if str(node) in shown or _hosts(facts, node)]
    lanes += [READERS] if READERS in shown else []
    left_out = sum(moment.weight > NOISE for moment in told.moments) - len(moments)
    return PartitionStory(
        facts.problem,
        summary_of(facts, records, told),
        records,
        moments,
        left_out,
        _ends(facts, records, told),
        lanes,
        told,
        facts,
        acted,
    )


def _of_members(facts: PartitionFacts, acted: GroupMemberActions) -> PartitionStory:
    """Return a story of the actions of group members, and of the record's writers and readers. Events on brokers are
    left out.
    """
    producers, records = producers_of(facts), named_records(facts)
    told, begin = replay_moments(facts, records, producers), load_begin(acted.files)
    did = [
        StoryMoment((acted.files.seconds(each.t) or 0.0) - begin, f"process {each.process} (member)", each.kind,
               members.sentence(each), each.label, MUST, grave=each.grave)
        for each in acted.actions()
    ]  # fmt: skip
    beside = [each for each in told.moments if each.weight >= MUST and not each.lane.isdigit() and each.kind != "final"]
    told.moments = sorted([*beside, *did], key=lambda each: each.t)
    lanes = [*dict.fromkeys(each.lane for each in beside if each.lane != READERS), *dict.fromkeys(m.lane for m in did)]
    lanes = [*dict.fromkeys(lanes), *([READERS] if any(each.lane == READERS for each in beside) else [])]
    words = [f"At {moment.t:.3f} s {moment.text[:1].lower()}{moment.text[1:]}" for moment in did if moment.grave]
    text = facts.problem.text.rstrip(".")
    summary = " ".join([f"{text[:1].upper()}{text[1:]}.", *words])
    return PartitionStory(facts.problem, summary, records, told.moments, 0, [], lanes, told, facts, acted)


def _hosts(facts: PartitionFacts, node: int) -> bool:
    return any(event.node == node and event.name.startswith("became_") for event in facts.events)


def producers_of(facts: PartitionFacts) -> dict[int, str]:
    """Map each process that sent records to the name of its lane, such as "process 3". If the finding blames a client,
    the name also says what runs in the process, such as "process 3 (fresh client)".
    """
    processes = dict.fromkeys(sent.process for sent in facts.sends)
    if not facts.problem.blames or facts.problem.name not in (stuck.PRODUCER, stuck.CONSUMER):
        return {process: f"process {process}" for process in processes}
    own = "program" if facts.programs else "library"
    return {each: f"process {each} ({'fresh client' if each in facts.fresh else own})" for each in processes}


# ------------------------------------------------------------------------------------------------------------- choice


def chosen(moments: Sequence[StoryMoment], problem: StorySubject) -> list[StoryMoment]:
    """Select the moments that a reader needs: all about the record in question, and the changes of leaders and logs
    around them. The story of a loss ends with the loss, however few the moments after it are.
    """
    must = [moment for moment in moments if moment.weight >= MUST]
    # Reads may come long after all that matters, and would stretch the story over the whole run.
    times = [moment.t for moment in must if moment.kind not in ("final", "read")] or [m.t for m in must]
    times += [problem.t] if problem.t is not None else []
    first = min(times, default=float("-inf")) - ROOM_S
    last = max(times, default=float("inf")) + ROOM_S
    # The story begins with the leader of that time, however long it has led.
    begin = next((m for m in reversed(moments) if m.kind == "leads" and m.t <= first + ROOM_S), None)
    # So few moments need no choice by time.
    if len(moments) <= MOMENTS_AT_MOST:
        gone = problem.name in LOSS and any(moment.lost for moment in moments)
        first, last = float("-inf"), last if gone else float("inf")
    if problem.t is not None:
        last = max(times)
    kept: list[StoryMoment] = []
    # Wider and wider, as long as the story stays short.
    for least in (MUST, TURN, TURN - 1):
        wider = [
            moment
            for moment in moments
            if moment.weight >= MUST or moment is begin or (moment.weight >= least and first <= moment.t <= last)
        ]
        wider = _with_both_ends(moments, wider, float("inf") if problem.t is None else last)
        if kept and len(wider) > MOMENTS_AT_MOST:
            break
        kept = wider
    return kept[:MOMENTS_AT_MOST]


def _with_both_ends(moments: Sequence[StoryMoment], kept: Sequence[StoryMoment], until: float) -> list[StoryMoment]:
    """Return the kept moments with both ends of each fault that begins or ends in them, unless the other end came later
    than `until`. If that makes too many moments, such faults are left out.
    """
    # By identity: moments are not frozen, and so not hashable.
    places = {id(moment) for moment in kept}
    faults = {(moment.fault, moment.lane) for moment in kept if moment.fault >= 0}
    beside = [each for each in moments if (each.fault, each.lane) in faults and each.t <= until]
    beside = [each for each in beside if id(each) not in places]
    if len(kept) + len(beside) > MOMENTS_AT_MOST:
        halves = {(each.fault, each.lane) for each in beside}
        return [each for each in kept if (each.fault, each.lane) not in halves]
    places |= {id(each) for each in beside}
    return [each for each in moments if id(each) in places]


# --------------------------------------------------------------------------------------------------------------- text


def text_of(story: PartitionStory, width: int = 100, beside: Iterable[str] = ()) -> str:
    """Return the story as plain text: title, summary, numbered sentences with times, and the logs after the last event.
    `beside` holds further paragraphs.
    """
    lines = [story.title, "=" * len(story.title), ""]
    lines += _wrapped(story.summary, width)
    lines.append("")
    lines += [_legend(record, story.facts) for record in story.records]
    lines += [f"Record {offset}: {says}" for offset, says in story.problem.records]
    lines += [""] if story.records or story.problem.records else []
    for paragraph in beside:
        lines += [*_wrapped(paragraph, width), ""]
    digits = decimals(story.moments)
    for number, (t, text) in enumerate(sentences(story.moments), start=1):
        head = f"{number:>3}. {t:>{6 + digits}.{digits}f} s  "
        lines += _wrapped(text, width, head)
    lines.append("")
    for end in story.ends:
        lines += _wrapped(end, width)
    key = "" if story.of_members else _OF_LOGS + ("" if story.exact else _INFERRED)
    lines += ["", *_wrapped(_KEY + key, width)]
    if story.left_out > 0:
        many, verb = ("s", "are") if story.left_out > 1 else ("", "is")
        lines.append(f"{story.left_out} moment{many} that {verb} not needed {verb} left out.")
    return "\n".join(lines) + "\n"


def sentences(moments: Sequence[StoryMoment]) -> list[tuple[float, str]]:
    """Return (time, sentence); brokers that do the same in turn share a sentence."""
    return [(t, text) for t, text, _ in placed_sentences(moments)]


def placed_sentences(moments: Sequence[StoryMoment]) -> list[tuple[float, str, tuple[int, ...]]]:
    """Return (time, sentence, indexes in `moments`) for each sentence. Consecutive moments with the same `group` share
    a sentence.
    """
    told: list[tuple[float, str, tuple[int, ...]]] = []
    for group, run in groupby(enumerate(moments), key=lambda each: each[1].group or id(each[1])):
        places, several = zip(*run, strict=True)
        if isinstance(group, tuple) and len(several) > 1 and several[0].plural:
            who = " and ".join(sorted(moment.lane for moment in several))
            told.append((several[0].t, several[0].plural.format(who=who), places))
        else:
            told += [(moment.t, moment.text, (place,)) for place, moment in zip(places, several, strict=True)]
    return told


def decimals(moments: Sequence[StoryMoment]) -> int:
    """Return how many decimal places the moments' seconds need: 3, or 4 if two are less than a millisecond apart."""
    times = sorted({moment.t for moment in moments})
    close = any(0 < later - earlier < 0.001 for earlier, later in zip(times, times[1:], strict=False))
    return 4 if close else 3


def _wrapped(text: str, width: int, head: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=head, subsequent_indent=" " * len(head))


def _legend(record: LabelledRecord, facts: PartitionFacts | None) -> str:
    sent, slots = record.sent, facts.slots if facts is not None else {}
    sequence = sequence_of(sent.value)
    where = f", offset {record.offset}" if record.offset >= 0 else ""
    epoch = f" of epoch {record.epoch}" if record.epoch >= 0 else ""
    told = f" at offset {sent.offset}" if sent.offset not in (-1, record.offset) else ""
    slot = f" (producer {slots[sent.process]} of the plan)" if sent.process in slots else ""
    slot = " (a fresh client)" if facts is not None and sent.process in facts.fresh else slot
    return f"{record.name}: record {sequence} of process {sent.process}{slot}{where}{epoch}, {sent.state}{told}"


def summary_of(facts: PartitionFacts, records: Sequence[LabelledRecord], told: StoryMoments) -> str:
    """Summarise the finding: settings that differ from the requested ones, and when and why each record in question was
    lost.
    """
    text = with_names(facts.problem.text.rstrip("."), records)
    words = [f"{text[0].upper()}{text[1:]}."] if text else []
    differs = _differs(facts, records)
    said = dict.fromkeys([*(each.text for each in differs), *(each.why for each in differs if each.why)])
    words += [f"{each[0].upper()}{each[1:]}." for each in said]
    if told.exact and facts.problem.name in _LOGS_DIFFER:  # there is nothing plainer than that
        words = list(_differences(told, records)) or words
    told_of_client = sentences_of(facts, {record.sent.value: record.name for record in records})
    words += told_of_client
    for record in records:
        if not record.is_subject or told_of_client:
            continue
        if is_misplaced(record):
            words.append(
                f"{record.name} was appended at offset {record.offset}, and its producer was told offset "
                f"{record.sent.offset}."
            )
        elif record.sent.state == ACKNOWLEDGED and record.sent.done is not None:
            offset = record.offset if record.sent.offset < 0 else record.sent.offset
            where = f", at offset {offset}" if offset >= 0 else ""
            took = f"{1000 * (record.sent.done - record.sent.sent):.0f} ms after it was sent"
            words.append(f"{record.name} was acknowledged at {record.sent.done:.3f} s ({took}){where}.")
            if record.offset < 0:
                words.append(_nowhere(facts, record, records))
        if record.name in told.mistaken:
            at = told.mistaken[record.name]
            words.append(f"It was never appended: at {at:.3f} s a broker took it for another batch, sent before.")
        doom = next((m for m in told.moments if m.lost == record.name), None)
        if doom is not None and doom.kind == "leads":
            words.append(f"It was lost at {doom.t:.3f} s, when broker {doom.lane} came to lead without it.")
        elif doom is not None:
            words.append(f"It was lost at {doom.t:.3f} s, with its last copy on broker {doom.lane}.")
        words += [_causes(record, told)]
    words += [_old_position(facts, each) for each in facts.positions if each.fetched]
    return " ".join(word for word in words if word)


def _nowhere(facts: PartitionFacts, record: LabelledRecord, records: Sequence[LabelledRecord]) -> str:
    """Say what is known of a record whose offset is not known."""
    there = [each.name for each in records if each.offset == record.sent.offset >= 0]
    where = f"That is where {' and '.join(there)} was put; where" if there else "At which offset"
    lost = facts.final_reads is not None and not any(each.value == record.sent.value for each in facts.seen)
    return f"{where} {record.name} was put is not known{', nor when and why it was lost' if lost else ''}."


def _differs(facts: PartitionFacts, records: Sequence[LabelledRecord]) -> list[UnrequestedSetting]:
    """Return the unrequested settings in the requests of the producers of the records in question; of all producers if
    no record is in question.
    """
    processes = dict.fromkeys(each.sent.process for each in records if each.is_subject)
    return differences(facts.asked, facts.requests.of_processes(processes) if processes else facts.sent)


def _old_position(facts: PartitionFacts, told: GroupPosition) -> str:
    """Describe how a member fetched an old position: from which broker, and which fault was on that broker when the
    newer position was committed.
    """
    old = f"position {told.offset} of {told.where}" if told.offset >= 0 else f"no position of {told.where}"
    by = f" by broker {told.broker}" if told.broker >= 0 else ""
    newer = next((e.t for e in facts.positions if not e.fetched and e.offset == told.newer and e.t < told.t), told.t)
    bars = [bar for bar in facts.faults if bar.node == told.broker and bar.begin <= newer]
    for bar in [bar for bar in bars if bar.end is None or bar.end >= newer][-1:]:
        until = "" if bar.end is None else f" to {bar.end:.3f} s"
        by += f" ({bar.words} from {bar.begin:.3f} s{until})"
    return (
        f"At {told.t:.3f} s process {told.process} was told {old}{by}, though position {told.newer} had been "
        "committed: so it read that input again."
    )


def _causes(record: LabelledRecord, told: StoryMoments) -> str:
    cuts = [m for m in told.moments if m.kind in ("truncates", "recovers") and record.name in m.about and m.grave]
    listed = [f"broker {m.lane}'s at {m.t:.3f} s" for m in cuts]
    return f"Copies that were cut off: {'; '.join(listed)}." if listed else ""


def _ends(facts: PartitionFacts, records: Sequence[LabelledRecord], told: StoryMoments) -> list[str]:
    """Describe each broker's log after the last event, and the offset where two of the logs differ."""
    found = []
    exact = told.exact
    for node in sorted(told.logs.replicas):
        replica = told.logs.replicas[node]
        if not replica.stretches and not replica.leo and not _hosts(facts, node):
            continue
        named = [r for r in records if r.offset >= 0 and r.name not in told.mistaken]
        held = [r.name for r in named if replica.epoch_at(r.offset) == r.epoch]
        holds = f", holding {', '.join(held)}" if held else ", holding none of the records above" if records else ""
        if exact:
            found.append(f"In the end broker {node}'s log ends at {replica.leo} (HW {replica.hw}){holds}.")
        elif held:
            found.append(f"In the end broker {node} holds {' and '.join(held)}.")
        elif records and all(r.offset >= 0 and replica.epoch_at(r.offset) is not None for r in records):
            found.append(f"In the end broker {node} holds none of the records above.")
        elif records:
            # What a broker without a trace of appends has copied is not known: not that it copied nothing.
            found.append(f"Which of the records above broker {node} holds in the end, nothing says.")
    return found + (list(_differences(told, records)) if exact else [])


_LOGS_DIFFER = ("replicas-agree", "replica-divergence")


def _differences(told: StoryMoments, records: Sequence[LabelledRecord]) -> Iterable[str]:
    """Yield a sentence for each two logs that hold records of different epochs at an offset below both HWs."""
    replicas = [told.logs.replicas[node] for node in sorted(told.logs.replicas)]

    def name(offset: int, epoch: int | None) -> str:
        named = next((f"{r.name}, " for r in records if (r.offset, r.epoch) == (offset, epoch)), "")
        return f"{named}of epoch {epoch}"

    for index, one in enumerate(replicas):
        for other in replicas[index + 1 :]:
            for stretch in one.stretches:
                low, high = stretch.start, min(stretch.end, one.hw, other.hw)
                differs = next((o for o in range(low, min(high, low + 10_000)) if
                                other.epoch_at(o) not in (None, stretch.epoch)), None)  # fmt: skip
                if differs is not None:
                    yield (
                        f"At offset {differs} broker {one.node} has another record ({name(differs, stretch.epoch)}) "
                        f"than broker {other.node} ({name(differs, other.epoch_at(differs))}), both below their high "
                        "watermarks."
                    )
                    break
