"""The story of an anomaly, told for one partition: who wrote what, who led in which epoch, where log ends and high
watermarks stood at each turn, what was truncated and why, and when the data was gone. As text; `reports.spacetime`
draws the same moments. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from checkers.history.values import sequence_of
from reports.problems import Problem, is_of_transactions, problems_of
from reports.run_files import RunFiles
from reports.story_facts import ACKNOWLEDGED, FAILED, Facts, Sent, all_facts
from reports.story_moments import MUST, NAMED_AT_MOST, NOISE, READERS, TURN, Moment, Placed, Told
from reports.story_teller import tell

MOMENTS_AT_MOST = 48
_KEY = (
    "Seconds count from the beginning of the load. LEO: where a log ends. HW: high watermark, as that broker knows it."
)
ROOM_S = 1.0
"""Turns so long before the first and after the last moment of the record in question belong to its story; but what
came after an invariant had broken does not."""
STORIES_AT_MOST = 3


@dataclass
class Story:
    """A story ready to be told or drawn. Times are seconds since the load began."""

    problem: Problem
    summary: str
    records: list[Placed]
    moments: list[Moment]
    left_out: int
    ends: list[str]
    """How each log stands in the end, a sentence each."""
    lanes: list[str]
    """Producers, brokers by id as text, readers, in the order of the picture."""
    told: Told = field(default_factory=Told)
    facts: Facts | None = None

    @property
    def exact(self) -> bool:
        """Whether every append is known."""
        return self.told.exact

    @property
    def title(self) -> str:
        """What it is about."""
        also = f" and {self.problem.also}" if self.problem.also else ""
        return f"{self.problem.name}{also} in {self.problem.where}"


def stories_of(files: RunFiles, problems: Sequence[Problem] | None = None) -> list[Story]:
    """A story of each of these problems of partitions, else of a run's gravest; none where no trace tells of it."""
    if problems is None:
        problems = [each for each in problems_of(files) if not is_of_transactions(each.name)][:STORIES_AT_MOST]
    told = map(story_of, all_facts(files, problems))
    return [story for story in told if story.moments]


def story_of(facts: Facts) -> Story:
    """The story that these facts tell."""
    producers = producers_of(facts)
    records = named_records(facts)
    told = tell(facts, records, producers)
    moments = chosen(told.moments, facts.problem)
    shown = {moment.lane for moment in moments}
    clients = list(dict.fromkeys(producers[each.sent.process] for each in records))
    lanes = [lane for lane in sorted(clients) if lane in shown]
    nodes = {*facts.nodes, *(int(lane) for lane in shown if lane.isdigit())}
    lanes += [str(node) for node in sorted(nodes) if str(node) in shown or _hosts(facts, node)]
    lanes += [READERS] if READERS in shown else []
    left_out = sum(moment.weight > NOISE for moment in told.moments) - len(moments)
    return Story(
        facts.problem,
        summary_of(facts, records, told),
        records,
        moments,
        left_out,
        _ends(facts, records, told),
        lanes,
        told,
        facts,
    )


def _hosts(facts: Facts, node: int) -> bool:
    return any(event.node == node and event.name.startswith("became_") for event in facts.events)


def producers_of(facts: Facts) -> dict[int, str]:
    """Process -> the name of its lane: the producer's number, as plans have it, where that is known."""
    return {
        process: f"producer {facts.slots.get(process, process)}"
        for process in dict.fromkeys(sent.process for sent in facts.sends)
    }


# ------------------------------------------------------------------------------------------------------------ records


def named_records(facts: Facts) -> list[Placed]:
    """The records in question and those at their offsets; all of them where there are few. In order of sending."""
    subjects = set(facts.problem.values)
    offsets = {*facts.problem.offsets, *(s.offset for s in facts.sends if s.value in subjects and s.offset >= 0)}
    seen_at = {(seen.value, seen.offset) for seen in facts.seen}
    offsets |= {offset for value, offset in seen_at if value in subjects}
    beside = {value for value, offset in seen_at if offset in offsets}
    few = len(facts.sends) <= NAMED_AT_MOST
    wanted = [s for s in facts.sends if few or s.value in subjects | beside or (s.offset >= 0 and s.offset in offsets)]
    wanted = sorted(wanted, key=lambda s: (s.sent, s.value))[: 2 * NAMED_AT_MOST]
    guessed = _appended_unheard(facts) if few else {}
    return [_placed(facts, sent, _name(number), subjects, guessed) for number, sent in enumerate(wanted)]


def _name(number: int) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[number % 26] + (str(number // 26) if number >= 26 else "")


def _placed(facts: Facts, sent: Sent, name: str, subjects: set[int], guessed: dict[int, tuple[int, int]]) -> Placed:
    offset = sent.offset
    if offset < 0:
        offset = next((seen.offset for seen in facts.seen if seen.value == sent.value), -1)
    epoch = _epoch_of(facts, sent, offset)
    if offset < 0:
        offset, epoch = guessed.get(sent.value, (-1, -1))
    is_subject = sent.value in subjects or (not subjects and offset in facts.problem.offsets)
    return Placed(name, sent, offset, epoch, is_subject)


def _appended_unheard(facts: Facts) -> dict[int, tuple[int, int]]:
    """Value -> (offset, epoch) of records whose senders were not told it, where only one can be meant."""
    told = {(s.offset, _epoch_of(facts, s, s.offset)) for s in facts.sends if s.offset >= 0}
    silent = [s for s in facts.sends if s.offset < 0 and s.state != FAILED]
    found: dict[int, tuple[int, int]] = {}
    for event in facts.events:
        if event.name != "appended" or event.fields.get("role") != "leader":
            continue
        epoch = event.int_of("epoch")
        free = [o for o in range(event.int_of("from"), event.int_of("leo")) if (o, epoch) not in told]
        meant = [s for s in silent if s.sent <= event.t and s.value not in found]
        if free and len(free) == len(meant):
            found.update({s.value: (o, epoch) for s, o in zip(meant, free, strict=True)})
    return found


def _epoch_of(facts: Facts, sent: Sent, offset: int) -> int:
    """In which epoch a record was appended at `offset`. -1 where nobody can tell."""
    if offset < 0:
        return -1
    done = sent.done if sent.done is not None else float("inf")
    appended = [
        event.int_of("epoch")
        for event in facts.events
        if event.name == "appended"
        and event.fields.get("role") == "leader"
        and sent.sent <= event.t <= done
        and event.int_of("from") <= offset < event.int_of("leo")
    ]
    if appended:
        return appended[-1]
    terms = [
        e for e in facts.events
        if (e.name == "became_leader" or (e.name == "polled" and e.int_of("leader") >= 0))
        and e.t <= done and e.int_of("leo", 0) <= offset
    ]  # fmt: skip
    for event in facts.events:  # who acknowledged it and was cut later is the one that had it
        cut = event.name == "truncated" and event.int_of("to_offset") <= offset < event.int_of("from_offset")
        led = [term for term in terms if term.node == event.node]
        if cut and event.t >= sent.sent and led and sent.state == ACKNOWLEDGED and _is_missing(facts, sent):
            return led[-1].int_of("epoch")
    return max((term.int_of("epoch") for term in terms), default=-1)


def _is_missing(facts: Facts, sent: Sent) -> bool:
    return not any(seen.final and seen.value == sent.value for seen in facts.seen)


# ------------------------------------------------------------------------------------------------------------- choice


def chosen(moments: Sequence[Moment], problem: Problem) -> list[Moment]:
    """The moments that a reader needs: all about the record in question, and the turns around them."""
    must = [moment for moment in moments if moment.weight >= MUST]
    times = [moment.t for moment in must if moment.kind not in ("final", "read")] or [m.t for m in must]
    times += [problem.t] if problem.t is not None else []
    first = min(times, default=float("-inf")) - ROOM_S
    last = max(times, default=float("inf")) + ROOM_S
    begin = next((m for m in reversed(moments) if m.kind == "leads" and m.t <= first + ROOM_S), None)
    if len(moments) <= MOMENTS_AT_MOST:
        first, last = float("-inf"), float("inf")
    if problem.t is not None:
        last = max(times)
    kept: list[Moment] = []
    for least in (MUST, TURN, TURN - 1):
        wider = [
            moment
            for moment in moments
            if moment.weight >= MUST or moment is begin or (moment.weight >= least and first <= moment.t <= last)
        ]
        if kept and len(wider) > MOMENTS_AT_MOST:
            break
        kept = wider
    return kept[:MOMENTS_AT_MOST]


# --------------------------------------------------------------------------------------------------------------- text


def text_of(story: Story, width: int = 100, beside: Iterable[str] = ()) -> str:
    """The story as plain text: what it is about, numbered sentences with times, and how it ends. `beside`: paragraphs
    of what else is known.
    """
    lines = [story.title, "=" * len(story.title), ""]
    lines += _wrapped(story.summary, width)
    lines.append("")
    lines += [_legend(record) for record in story.records]
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
    lines += ["", *_wrapped(_KEY, width)]
    if story.left_out > 0:
        many, verb = ("s", "are") if story.left_out > 1 else ("", "is")
        lines.append(f"{story.left_out} moment{many} that {verb} not needed {verb} left out.")
    return "\n".join(lines) + "\n"


def sentences(moments: Sequence[Moment]) -> list[tuple[float, str]]:
    """(time, sentence), where brokers that do the same one after the other share one."""
    return [(t, text) for t, text, _ in placed_sentences(moments)]


def placed_sentences(moments: Sequence[Moment]) -> list[tuple[float, str, tuple[int, ...]]]:
    """(time, sentence, places of its moments)"""
    told: list[tuple[float, str, tuple[int, ...]]] = []
    for group, run in groupby(enumerate(moments), key=lambda each: each[1].group or id(each[1])):
        places, several = zip(*run, strict=True)
        if isinstance(group, tuple) and len(several) > 1 and several[0].plural:
            who = " and ".join(sorted(moment.lane for moment in several))
            told.append((several[0].t, several[0].plural.format(who=who), places))
        else:
            told += [(moment.t, moment.text, (place,)) for place, moment in zip(places, several, strict=True)]
    return told


def decimals(moments: Sequence[Moment]) -> int:
    """How many digits tell the moments apart: 3, or 4 where less than a millisecond lies between two."""
    times = sorted({moment.t for moment in moments})
    close = any(0 < later - earlier < 0.001 for earlier, later in zip(times, times[1:], strict=False))
    return 4 if close else 3


def _wrapped(text: str, width: int, head: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=head, subsequent_indent=" " * len(head))


def _legend(record: Placed) -> str:
    sent = record.sent
    sequence = sequence_of(sent.value)
    where = f", offset {record.offset}" if record.offset >= 0 else ""
    epoch = f" of epoch {record.epoch}" if record.epoch >= 0 else ""
    return f"{record.name}: record {sequence} of process {sent.process}{where}{epoch}, {sent.state}"


def summary_of(facts: Facts, records: Sequence[Placed], told: Told) -> str:
    """The story in two or three sentences."""
    text = facts.problem.text.rstrip(".")
    words = [f"{text[0].upper()}{text[1:]}."] if text else []
    if told.exact and facts.problem.name in _LOGS_DIFFER:  # there is nothing plainer than that
        words = list(_differences(told, records)) or words
    for record in records:
        if not record.is_subject:
            continue
        if record.sent.state == ACKNOWLEDGED and record.sent.done is not None:
            words.append(f"{record.name} was acknowledged after {record.sent.done:.3f} s, at offset {record.offset}.")
        if record.name in told.mistaken:
            at = told.mistaken[record.name]
            words.append(f"It was never appended: at {at:.3f} s a broker took it for another batch, sent before.")
        doom = next((m for m in told.moments if m.lost == record.name), None)
        if doom is not None and doom.kind == "leads":
            words.append(f"It was lost at {doom.t:.3f} s, when broker {doom.lane} came to lead without it.")
        elif doom is not None:
            words.append(f"It was lost at {doom.t:.3f} s, with its last copy on broker {doom.lane}.")
        words += [_causes(record, told)]
    return " ".join(word for word in words if word)


def _causes(record: Placed, told: Told) -> str:
    cuts = [m for m in told.moments if m.kind in ("truncates", "recovers") and record.name in m.about and m.grave]
    listed = [f"broker {m.lane}'s at {m.t:.3f} s" for m in cuts]
    return f"Copies that were cut off: {'; '.join(listed)}." if listed else ""


def _ends(facts: Facts, records: Sequence[Placed], told: Told) -> list[str]:
    """Each log in the end, and where two of them differ."""
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


def _differences(told: Told, records: Sequence[Placed]) -> Iterable[str]:
    """Where two logs hold records of different epochs below both high watermarks."""
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
