"""Answers the first questions about a finding: what was seen, which process wrote it, which broker had it, which fault
hit, which leader was elected, what was truncated, which reader read what. Every anomaly has the same questions, except
those that members of a group alone have caused (`squall.reports.members`). An answer that is not known names what is
missing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from squall.checkers.anomalies import stuck
from squall.checkers.anomalies.registry import CATALOG
from squall.reports import members, outputs, owners
from squall.reports.fault_words import FaultRow, fault_rows
from squall.reports.problems import StorySubject
from squall.reports.raw_files import PROGRAMS, last_words
from squall.reports.run_files import RunFiles, mapping
from squall.reports.sent_words import sent_sentences
from squall.reports.stories import value_text
from squall.reports.story import PartitionStory
from squall.reports.story_facts import ACKNOWLEDGED, FAILED, BrokerTraceLine, PartitionFacts
from squall.reports.story_moments import LabelledRecord, ids
from squall.reports.story_reads import PolledRange
from squall.reports.story_records import is_misplaced

READS_TOLD = 3
LISTED = 4
"""Limits the elections and truncations that an answer lists: the first and the last ones."""
NEAR_S = 1.0
_IN_NS = ("stuck-producer", "stuck-consumer")


class AnsweredQuestion(NamedTuple):
    """Holds a question about a run and its answer."""

    question: str
    text: str


def answers_of(files: RunFiles, story: PartitionStory) -> tuple[AnsweredQuestion, ...]:
    """Return all questions, each answered in at least one sentence."""
    facts = story.facts
    assert facts is not None
    about = [record for record in story.records if record.is_subject]
    words = _last_words(files, story)
    acted = [AnsweredQuestion(*each) for each in members.answers_of(story.members)] if story.members is not None else []
    if story.of_members:
        return (
            AnsweredQuestion("What was seen", _joined(_seen(files, facts))),
            *acted,
            *words,
            AnsweredQuestion("When it was written", _joined(_written(facts, about))),
            AnsweredQuestion("Who read it", _joined(_read(facts, about))),
        )
    span = _span(facts, story, about)
    more = [(module.QUESTION, module.sentences_of(files, facts.problem)) for module in (outputs, owners)]
    return (
        AnsweredQuestion("What was seen", _joined(_seen(files, facts))),
        *(AnsweredQuestion(question, _joined(sentences)) for question, sentences in more if sentences),
        *acted,
        *words,
        AnsweredQuestion("When it was written", _joined(_written(facts, about))),
        AnsweredQuestion(
            "What was asked and sent", _joined(sent_sentences(facts.asked, facts.sent, facts.requests.seen_by))
        ),
        AnsweredQuestion("Who led, ISR and HW then", _joined(_led(files, story, about))),
        AnsweredQuestion("Who had it", _joined(_had(files, story, about))),
        AnsweredQuestion("Which fault", _fault(files, span)),
        AnsweredQuestion("Who was elected", _elected(files, facts, span)),
        AnsweredQuestion("What was truncated", _truncated(files, story, span)),
        AnsweredQuestion("Who read it", _joined(_read(facts, about))),
    )


def _last_words(files: RunFiles, story: PartitionStory) -> list[AnsweredQuestion]:
    """Return the last lines that the program under test wrote to standard error, if one of its processes ended by
    itself, or if the finding is that one of its processes stopped reading (`stuck-consumer`).
    """
    facts, acted = story.facts, story.members
    assert facts is not None
    stopped = facts.problem.name == stuck.CONSUMER and facts.problem.process in facts.programs
    if not (stopped or (acted is not None and acted.ended_by_itself)) or not (said := last_words(files.path)):
        return []
    return [
        AnsweredQuestion(
            "What the program said last", f"The end of {PROGRAMS}, which all processes of the program share:\n{said}"
        )
    ]


def _joined(sentences: Iterable[str]) -> str:
    return " ".join(each for each in sentences if each)


def _span(facts: PartitionFacts, story: PartitionStory, about: Sequence[LabelledRecord]) -> tuple[float, float]:
    """Return (begin, end) of the time that concerns a finding, in seconds. It begins shortly before the records in
    `about` were written. It ends when no log held these records any more, or with the final reads if a log still holds
    one. For a broken invariant it has no begin (-inf), and ends when the invariant broke.
    """
    if facts.problem.t is not None:
        return float("-inf"), facts.problem.t
    times = [record.sent.sent for record in about]
    offsets = {record.offset for record in about}  # of a record that was lost, another one may be the subject
    times += [
        each.sent.sent for each in story.records if each.name in story.all_moments.lost and each.offset in offsets
    ]
    times += [each.t for each in facts.polled if each.op == facts.problem.op] + [
        each.t for each in facts.invalid_positions
    ]
    first = min(times, default=float("-inf"))
    lost = [story.all_moments.lost[record.name] for record in about if record.name in story.all_moments.lost]
    if about and len(lost) == len(about):
        return first - NEAR_S, max(lost) + NEAR_S
    return first - NEAR_S, facts.final_reads[1] if facts.final_reads is not None else float("inf")


def unknown_why(files: RunFiles) -> str:
    """Return in a sentence why nothing is known from inside the brokers."""
    if not any(files.traces.values()):
        if files.foreign:
            return f"Not known: {files.foreign} writes no trace, and no log of a broker is here (nodes/N/broker.log)."
        return "Not known: the run directory has no trace of a broker (nodes/N/trace.jsonl)."
    if files.from_polls:
        return (
            f"Not known: {files.foreign} says who leads and who is in sync when it is asked (polled.jsonl), and no "
            "more; its brokers' logs are not here."
        )
    off = [each for each in files.problems if "turn the logger" in each]
    if off:
        return f"Not known: {off[0][0].lower()}{off[0][1:]}"
    name = "nodes/N/broker.log" if files.from_broker_logs else "nodes/N/trace.jsonl"
    return f"Not known: no line of this partition stands in {name}."


# --------------------------------------------------------------------------------------------------------------- seen


def _seen(files: RunFiles, facts: PartitionFacts) -> Iterator[str]:
    problem = facts.problem
    if problem.t is not None:
        yield f"At {problem.t:.3f} s the simulator saw that {problem.name} is broken."
    others = _others(problem)
    where = f" at offset {problem.offsets[0]}" if problem.offsets else ""
    yield f"{problem.name} in {problem.where}{where}{f' ({others})' if others else ''}."
    if problem.name == "not-converged":
        lacking = mapping(mapping(files.run.get("converged")).get("lacking")).get(problem.where)
        yield f"After healing it lacked: {lacking}." if lacking else "run.json does not say what it lacked."
    yield from _of_operation(facts)
    told = [
        each
        for each in facts.invalid_positions
        if each.process == problem.process and each.position in (*problem.offsets, -1)
    ]
    for each in told[:1]:
        yield (
            f"At {each.t:.3f} s process {each.process}, at position {each.position}, was told "
            f"{each.kind.upper()} (its leader's log: {each.log_start} to {each.end})."
        )
    if told[1:]:
        again = f"{len(told) - 1} more time{'s'[: len(told) > 2]}, until {told[-1].t:.3f} s"
        yield f"It asked from there again, and was told that the position is impossible {again}."


def _others(problem: StorySubject) -> str:
    """Return in words the further number of a finding's witness (`Witness.other`), such as for how long nothing
    succeeded. Empty if this anomaly has no such number.
    """
    known = CATALOG.get(problem.name)
    if known is None or not known.other or problem.other < 0:
        return ""
    if problem.name in _IN_NS:
        return f"for {problem.other / 1e9:.2f} s"
    if "value" in known.other:
        return f"{known.other}: {value_text(problem.other)}"
    return f"{known.other}: {problem.other}"


def _of_operation(facts: PartitionFacts) -> Iterator[str]:
    """Describe the read that shows the finding, and the read before it by the same process."""
    polls = facts.polled
    place = next((n for n, each in enumerate(polls) if each.op == facts.problem.op), None)
    if place is None:
        return
    before = next((each for each in reversed(polls[:place]) if each.process == polls[place].process), None)
    if before is not None:
        yield f"Before it, {_poll_text(before)}"
    told = _poll_text(polls[place])
    yield f"{told[0].upper()}{told[1:]}"


def _poll_text(poll: PolledRange) -> str:
    if poll.listed >= 0:
        return f"at {poll.t:.3f} s process {poll.process} asked for the latest offset and was told {poll.listed}."
    what = "final read" if poll.final else "poll"
    if poll.last < 0:
        got = "got nothing"
    else:
        got = f"got offset {poll.first}" if poll.first == poll.last else f"got offsets {poll.first} to {poll.last}"
        got += f" ({poll.many} record{'s'[: poll.many != 1]})"
    marks = f", high watermark {poll.hw}, last stable offset {poll.lso}" if poll.hw >= 0 else ""
    start = f" from {poll.at}" if poll.at >= 0 else ""
    return f"at {poll.t:.3f} s process {poll.process}'s {what}{start} {got}{marks}."


# ------------------------------------------------------------------------------------------------------------ written


def _written(facts: PartitionFacts, about: Sequence[LabelledRecord]) -> Iterator[str]:
    if not about:
        yield from _nobody_wrote(facts)
    for record in about:
        sent = record.sent
        yield f"{record.name} ({value_text(sent.value)}) was handed over at {sent.sent:.3f} s"
        at = f" at offset {sent.offset}" if sent.offset >= 0 else ""
        if sent.done is None:
            yield "and never answered."
        elif sent.state == ACKNOWLEDGED:
            but = f", but appended at offset {record.offset}" if is_misplaced(record) else ""
            yield f"and acknowledged at {sent.done:.3f} s{at} ({facts.acks_words(sent.process)}){but}."
        elif sent.state == FAILED:
            yield f"and failed for certain at {sent.done:.3f} s ({sent.error or 'no error given'})."
        else:
            yield f"and its outcome was unknown at {sent.done:.3f} s ({sent.error or 'no answer'})."


def _nobody_wrote(facts: PartitionFacts) -> Iterator[str]:
    problem = facts.problem
    if problem.records:
        yield from _of_a_coordinator(facts)
    elif problem.values:
        yield f"Nobody sent {value_text(problem.values[0])} to {problem.where}."
    else:
        yield "It is about no single record."
    over = float("inf") if problem.t is None else problem.t
    acked = [s for s in facts.sends if s.state == ACKNOWLEDGED and s.done is not None and s.done <= over]
    if acked:
        last = max(acked, key=lambda sent: sent.done or 0.0)
        yield f"The last record that {problem.where} acknowledged: at {last.done:.3f} s, offset {last.offset}."
    elif not problem.records:
        yield f"{problem.where} acknowledged nothing."


def _of_a_coordinator(facts: PartitionFacts) -> Iterator[str]:
    """Describe the records of a coordinator's log that a broken invariant is about, and which leaders appended each of
    these records before the invariant broke.
    """
    problem = facts.problem
    for offset, says in problem.records:
        appended = [
            f"broker {each.node} in epoch {each.int_of('epoch')} at {each.t:.3f} s"
            for each in facts.events
            if each.name == "appended" and each.fields.get("role") == "leader"
            and each.int_of("from") <= offset < each.int_of("leo") and each.t <= (problem.t or 0.0)
        ]  # fmt: skip
        by = f" Offset {offset} was appended by {', then by '.join(appended)}." if appended else ""
        yield f"Record {offset} of {problem.where}: {says}.{by}"


# -------------------------------------------------------------------------------------------------------- leader, ISR


def _led(files: RunFiles, story: PartitionStory, about: Sequence[LabelledRecord]) -> Iterator[str]:
    told = [(record, story.all_moments.at_ack.get(record.name)) for record in about]
    for record, state in told:
        if state is not None:
            hw = f", HW {'' if story.exact else '≥ '}{state.hw}"
            yield (
                f"Broker {state.node} led in epoch {state.epoch} when {record.name} was acknowledged; "
                f"ISR {ids(state.isr)}{hw}."
            )
    if any(state is not None for _, state in told):
        return
    if story.problem.replicas:
        yield from _replica_sentences(story.problem)
        return
    over = float("inf") if story.problem.t is None else story.problem.t
    terms = [m for m in story.all_moments.moments if m.kind == "leads" and m.t <= over]
    at = min((record.sent.sent for record in about), default=None)
    then = [m for m in terms if at is None or m.t <= at][-1:] or terms[:1]
    if at is None:
        then = terms[-1:]
    for moment in then:
        began = f"at {moment.t:.3f} s" if at is not None else f"that was at {moment.t:.3f} s, when this epoch began"
        # Without the sentence about what this leader lacks (`story_teller`), which other answers give.
        yield f"{moment.text.split('. It does not')[0].rstrip('.')} ({began})."
    if not then:
        yield unknown_why(files)


def _replica_sentences(problem: StorySubject) -> Iterator[str]:
    """Describe the replicas at the moment in which an invariant broke."""
    leaders = [each for each in problem.replicas if each.leads]
    for each in leaders:
        yield (
            f"At {problem.t or 0.0:.3f} s broker {each.node} led in epoch {each.epoch} (LEO {each.leo}, HW {each.hw}), "
            f"in sync: {ids(each.isr)}."
        )
    if not leaders:
        yield f"At {problem.t or 0.0:.3f} s nobody led."
    rest = [f"broker {s.node} was in epoch {s.epoch} (LEO {s.leo}, HW {s.hw})" for s in problem.replicas if not s.leads]
    if rest:
        yield f"{rest[0][0].upper()}{'; '.join(rest)[1:]}."


def _had(files: RunFiles, story: PartitionStory, about: Sequence[LabelledRecord]) -> Iterator[str]:
    if not any(files.traces.values()) or files.from_polls:
        yield unknown_why(files)
        return
    for record in about:
        yield from _holders(story, record)
    if not about:
        yield "There is no one record to follow." + "".join(f" {end}" for end in story.ends)


def _holders(story: PartitionStory, record: LabelledRecord) -> Iterator[str]:
    state, name = story.all_moments.at_ack.get(record.name), record.name
    if state is not None:
        how = "When it was acknowledged" if story.exact else "Inferred from its acknowledgement"
        rest = sorted(set(state.isr) - set(state.holders))
        beside = f"; of {ids(rest)} nothing says so" if rest else ""
        yield f"{how}{',' if story.exact else ':'} {_brokers(state.holders)} had {name}{beside}."
    if name in story.all_moments.lost:
        yield f"No log held {name} any more from {story.all_moments.lost[name]:.3f} s on."
    elif record.name in story.all_moments.mistaken:
        yield f"Nobody: {name} was taken for a batch that was sent before, and never appended."
    elif record.offset < 0:
        there = [each.name for each in story.records if each.offset == record.sent.offset]
        wrong = f"where {' and '.join(there)} was put" if there else "which cannot be"
        told = "was not told" if record.sent.offset < 0 else f"was told {record.sent.offset}, {wrong}"
        yield f"At which offset {name} was put is not known: its producer {told}, and no read found it."
    else:
        left = story.all_moments.logs.holders(record.offset, record.epoch)
        yield f"In the end {_brokers(left)} had {name}." if left else f"In the end no log is known to have {name}."


def _brokers(nodes: Sequence[int]) -> str:
    return f"broker{'s'[: len(nodes) != 1]} {ids(nodes)}"


# ------------------------------------------------------------------------------------------------------------- faults


def _fault(files: RunFiles, span: tuple[float, float]) -> str:
    """Describe the faults that were on at any time within `span`, at most LISTED. A broken invariant has a span without
    a begin (`_span`): then describe the last faults that began before the invariant broke.
    """
    near = [row for row in fault_rows(files) if row.began is not None and _overlaps(row, span)]
    if not near and span[0] == float("-inf"):
        return "No fault had begun." if files.faults else "There was no fault."
    if not near:
        return "None was on." if files.faults else "There was no fault."
    # A broken invariant has no begin: the last faults before it are the ones that may matter.
    if span[0] == float("-inf") and (earlier := len(near) - LISTED) > 0:
        last = " ".join(f"{_fault_text(row)}." for row in near[-LISTED:])
        return f"{last} {earlier} fault{'s'[: earlier > 1]} began before them."
    return " ".join(f"{_fault_text(row)}." for row in near[:LISTED]) + _more(len(near) - LISTED, "fault")


def _overlaps(row: FaultRow, span: tuple[float, float]) -> bool:
    assert row.began is not None
    end = float("inf") if row.length is None else row.began + row.length
    return row.began <= span[1] and end >= span[0]


def _fault_text(row: FaultRow) -> str:
    end = "never ended" if row.length is None else f"to {(row.began or 0.0) + row.length:.3f} s"
    return f"{row.what}{f' of {row.hit}' if row.hit else ''}, {row.began:.3f} s {end}"


def _more(count: int, what: str) -> str:
    return f" {count} more {what}s." if count > 0 else ""


def _elected(files: RunFiles, facts: PartitionFacts, span: tuple[float, float]) -> str:
    """Describe every leader epoch that began within `span`, from the first event that reports it. The controller's
    event is preferred, because it gives the reasons.
    """
    epochs: dict[int, BrokerTraceLine] = {}
    for event in facts.events:
        if event.name not in ("leader_elected", "became_leader", "polled") or not span[0] <= event.t <= span[1]:
            continue
        known = epochs.get(event.int_of("epoch"))
        if known is None or (event.name == "leader_elected" and known.name != event.name):
            epochs[event.int_of("epoch")] = event
    told = [_election_text(epochs[epoch]) for epoch in sorted(epochs)]
    if told:
        return _ends_of(told, "election")
    if not any(event.name in ("became_leader", "polled") for event in facts.events):
        return unknown_why(files)
    since, until = (f"{at:.3f} s" if abs(at) < float("inf") else "" for at in span)
    when = f"{' from ' if since else ''}{since}{' to ' if until else ''}{until}"
    return f"Nobody{when}: the partition kept its leader."


def _election_text(event: BrokerTraceLine) -> str:
    isr, epoch = ids(event.ids("isr")), event.int_of("epoch")
    if event.name == "polled":
        named = f"Broker {event.int_of('leader')}" if event.int_of("leader") >= 0 else "Nobody"
        return f"{named} in epoch {epoch}, as Metadata said at {event.t:.3f} s (ISR {isr})."
    if event.name == "became_leader":
        return f"Broker {event.node} in epoch {epoch} at {event.t:.3f} s (ISR {isr}, LEO {event.int_of('leo')})."
    who = event.int_of("leader")
    unclean = ", uncleanly" if event.fields.get("unclean") is True else ""
    chosen = f"Broker {who}" if who >= 0 else "Nobody could be"
    return f"{chosen} in epoch {epoch} at {event.t:.3f} s{unclean}, by controller {event.node} (ISR {isr})."


def _truncated(files: RunFiles, story: PartitionStory, span: tuple[float, float]) -> str:
    cuts = [
        m for m in story.all_moments.moments if m.kind == "truncates" or (m.kind == "recovers" and "cut off" in m.text)
    ]
    told = [f"{moment.t:.3f} s: {moment.text}" for moment in cuts if span[0] <= moment.t <= span[1]]
    if told:
        return _ends_of(told, "truncation")
    facts = story.facts
    if facts is None or not facts.events or files.from_polls:
        return unknown_why(files)
    return "Nothing: no replica of the partition says that it cut its log."


def _ends_of(told: Sequence[str], what: str) -> str:
    if len(told) <= LISTED:
        return " ".join(told)
    half = LISTED // 2
    return " ".join([*told[:half], f"({len(told) - LISTED} more {what}s.)", *told[-half:]])


# -------------------------------------------------------------------------------------------------------------- reads


def _read(facts: PartitionFacts, about: Sequence[LabelledRecord]) -> Iterator[str]:
    wanted: Iterable[tuple[str, int]] = [(record.name, record.sent.value) for record in about]
    wanted = list(wanted) or [(value_text(value), value) for value in facts.problem.values]
    for name, value in wanted:
        live = [seen for seen in facts.seen if seen.value == value and not seen.final]
        final = [seen for seen in facts.seen if seen.value == value and seen.final]
        for seen in live[:READS_TOLD]:
            yield f"Process {seen.process} got {name} at offset {seen.offset}, {seen.t:.3f} s."
        yield f"{len(live) - READS_TOLD} more reads of it." if len(live) > READS_TOLD else ""
        yield "" if live else f"No reader got {name} under load."
        offsets = sorted({seen.offset for seen in final})
        if offsets:
            yield f"The final reads found {name} at offset {', '.join(map(str, offsets))}."
        elif facts.final_reads is not None:
            yield f"No final read found {name}."
    if not wanted:
        over = float("inf") if facts.problem.t is None else facts.problem.t
        reads = [each for each in facts.polled if each.last >= 0 and each.t <= over]
        last = max(reads, key=lambda each: each.t, default=None)
        yield "Nobody read the partition." if last is None else f"The last read of the partition: {_poll_text(last)}"
