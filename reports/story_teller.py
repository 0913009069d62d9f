"""Turns facts into moments in order of time, each with the broker's log as it was then. Pure.

`squall.reports.story` selects the moments that a reader needs.
"""

from __future__ import annotations

from collections.abc import Callable

from squall.reports.story_facts import (
    ACKNOWLEDGED,
    BrokerTraceLine,
    GroupPosition,
    NodeFaultSpan,
    PartitionFacts,
    SeenRecord,
    SentRecord,
)
from squall.reports.story_logs import ReconstructedReplica
from squall.reports.story_moments import (
    DETAIL,
    MUST,
    NOISE,
    READERS,
    TURN,
    LabelledRecord,
    PartitionStateAtAck,
    StoryMoment,
    StoryMoments,
    are,
    ids,
    is_of_another,
    it,
    known_words,
    leo_and_hw,
    offsets_of,
    outcome_words,
    position_words,
)
from squall.reports.story_records import final_words, is_misplaced, with_names


def replay_moments(facts: PartitionFacts, records: list[LabelledRecord], producers: dict[int, str]) -> StoryMoments:
    """Replay all events of the partition and return its moments, in order. `producers` maps a process to its lane."""
    return _StoryBuilder(facts, records, producers).run()


class _StoryBuilder:
    """Replays all events of the partition, keeps its logs, and notes moments."""

    def __init__(self, facts: PartitionFacts, records: list[LabelledRecord], producers: dict[int, str]) -> None:
        self._facts, self._records, self._producers = facts, records, producers
        self._told = StoryMoments()
        self._logs = self._told.logs
        self._told.exact = any(event.name == "appended" for event in facts.events)
        self._doomed: set[str] = set()
        self._read: set[tuple[int, int]] = set()
        self._handed: set[str] = set()
        """Holds the names of records that have been sent."""
        self._acknowledged: set[str] = set()
        self._isr: tuple[int, ...] = ()
        self._fresh: set[int] = set()
        """Holds the brokers that have restarted and that the controller has not unfenced since."""
        self._on_event: dict[str, Callable[[BrokerTraceLine, ReconstructedReplica], None]] = {
            "became_leader": self._became_leader,
            "became_follower": self._became_follower,
            "appended": self._appended,
            "known_batch": self._known_batch,
            "hw_moved": self._hw_moved,
            "offsets": self._offsets,
            "truncated": self._truncated,
            "recovered": self._recovered,
            "isr_changed": self._isr_changed,
            "leader_elected": self._leader_elected,
            "polled": self._polled,
            "node_started": self._node_started,
            "node_stopped": self._node_stopped,
            "broker_fenced": self._broker_fenced,
            "broker_unfenced": self._broker_unfenced,
            "fetch_refused": self._fetch_refused,
            "election": self._election,
            "quorum_election": self._election,
            "vote": self._vote,
            "quorum_vote": self._vote,
        }

    def run(self) -> StoryMoments:
        """Replay everything in order of time; among simultaneous events, the cause comes first."""
        facts = self._facts
        steps: list[tuple[float, int, Callable[[], None]]] = []
        steps += [(s.sent, 0, lambda s=s: self._sent(s)) for s in facts.sends]  # type: ignore[misc]
        steps += [(f.begin, 1, lambda f=f: self._fault_begins(f)) for f in facts.faults]  # type: ignore[misc]
        steps += [(e.t, 2, lambda e=e: self._event(e)) for e in facts.events]  # type: ignore[misc]
        steps += [(s.done, 3, lambda s=s: self._done(s)) for s in facts.sends if s.done is not None]  # type: ignore[misc]
        steps += [(r.t, 4, lambda r=r: self._seen(r)) for r in facts.seen]  # type: ignore[misc]
        steps += [(f.end, 5, lambda f=f: self._fault_ends(f)) for f in facts.faults if f.end is not None]  # type: ignore[misc]
        steps += [(p.t, 4, lambda p=p: self._position(p)) for p in facts.positions]  # type: ignore[misc]
        if facts.problem.t is not None:
            steps.append((facts.problem.t, 6, self._broken))
        if facts.final_reads is not None:
            steps.append((facts.final_reads[1], 7, self._final_read_results))
        # Without the third element: functions cannot be compared.
        for _, _, step in sorted(steps, key=lambda each: each[:2]):
            step()
        return self._told

    # -------------------------------------------------------------------------------------------------------- helpers

    def _note(self, t: float, lane: str, kind: str, text: str, *label: str, weight: int, **more: object) -> StoryMoment:
        moment = StoryMoment(t, lane, kind, text, label, weight, **more)  # type: ignore[arg-type]
        self._told.moments.append(moment)
        return moment

    def _at(
        self, event: BrokerTraceLine, kind: str, text: str, *label: str, weight: int, **more: object
    ) -> StoryMoment:
        replica = self._logs.of(event.node)
        return self._note(
            event.t, str(event.node), kind, text, *label, weight=weight, replica=replica.snapshot(), **more
        )

    def _record(self, sent: SentRecord) -> LabelledRecord | None:
        return next((each for each in self._records if each.sent is sent), None)

    def _records_in_logs(self) -> list[LabelledRecord]:
        """Return the named records that were sent and that no broker took for an earlier batch."""
        mistaken = self._told.mistaken
        return [each for each in self._records if each.name in self._handed and each.name not in mistaken]

    def _names_in(self, start: int, end: int) -> list[LabelledRecord]:
        """Return the named records with offsets in [start, end) that were sent by now and not dropped as duplicates."""
        return [each for each in self._records_in_logs() if start <= each.offset < end]

    def _hold(self, replica: ReconstructedReplica) -> list[str]:
        there = [each for each in self._records_in_logs() if each.offset >= 0]
        return [each.name for each in there if replica.epoch_at(each.offset) == each.epoch]

    def _note_lost_copies(self, moment: StoryMoment) -> None:
        """Mark the moment as a loss of each acknowledged record of which no log holds a copy any more."""
        for record in self._records:
            if record.epoch < 0 or record.name in self._told.lost or record.name not in self._acknowledged:
                continue
            if not self._logs.holders(record.offset, record.epoch):
                self._told.lost[record.name] = moment.t
                moment.text += f" No log holds {record.name} any more."
                moment.weight, moment.grave = MUST, True
                if record.name not in self._doomed:
                    moment.lost = record.name
                    self._doomed.add(record.name)

    # -------------------------------------------------------------------------------------------------------- clients

    def _sent(self, sent: SentRecord) -> None:
        record = self._record(sent)
        if record is None:
            return
        self._handed.add(record.name)
        lane = self._producers.get(sent.process, f"process {sent.process}")
        weight = MUST if record.is_subject else TURN
        text = f"{lane.capitalize()} sends {record.name}."
        self._note(sent.sent, lane, "sends", text, f"sends {record.name}", weight=weight, about=(record.name,))

    def _done(self, sent: SentRecord) -> None:
        record = self._record(sent)
        if record is None:
            self._infer_leader_log(sent, sent.offset)
            return
        lane = self._producers.get(sent.process, f"process {sent.process}")
        assert sent.done is not None
        weight = MUST if record.is_subject else TURN
        name = record.name
        if sent.state == ACKNOWLEDGED:
            self._acknowledged.add(name)
            leader = None if name in self._told.mistaken else self._infer_leader_log(sent, record.offset, record.epoch)
            if leader is not None:
                holders = tuple(self._logs.holders(record.offset, record.epoch))
                self._told.at_ack[name] = PartitionStateAtAck(leader.node, leader.epoch, leader.isr, leader.hw, holders)
            if leader is not None and not any(m.kind == "appends" and name in m.about for m in self._told.moments):
                word = "program's answer" if sent.process in self._facts.programs else "acknowledgement"
                told = f"Inferred from the {word}: broker {leader.node} has appended {name}"
                self._note(
                    sent.done, str(leader.node), "appends", f"{told}{leo_and_hw(leader, surely=False)}.", f"has {name}",
                    offsets_of(leader, surely=False),
                    weight=weight, replica=leader.snapshot(), about=(name,), came_from=(lane, "sends"),
                )  # fmt: skip
        text, label = outcome_words(record, lane, self._facts.acks_words(sent.process))
        self._note(
            sent.done, lane, "told", text, *(each for each in label if each), weight=weight, about=(name,),
            grave=is_misplaced(record), came_from=("leader", name) if sent.state == ACKNOWLEDGED else None,
        )  # fmt: skip

    def _position(self, position: GroupPosition) -> None:
        text, label = position_words(position)
        self._note(position.t, self._producers.get(position.process, READERS), "position", text, *label, weight=MUST,
                   grave=position.fetched)  # fmt: skip

    def _infer_leader_log(self, sent: SentRecord, offset: int, epoch: int | None = None) -> ReconstructedReplica | None:
        """Extend the leader's log, and with acks=all its HW, to an acknowledged record. Return the leader if known."""
        if sent.state != ACKNOWLEDGED or not 0 <= offset < self._facts.known_end:
            return None
        committed = self._facts.acks_of(sent.process) == -1
        return self._logs.acknowledged(offset, epoch, sent.sent, committed=committed)

    def _seen(self, seen: SeenRecord) -> None:
        record = next((each for each in self._records if each.sent.value == seen.value and each.is_subject), None)
        if record is None or seen.final or (seen.value, seen.offset) in self._read:
            return
        self._read.add((seen.value, seen.offset))
        text = f"A reader gets {record.name} at offset {seen.offset}."
        self._note(seen.t, READERS, "read", text, f"reads {record.name}", f"offset {seen.offset}", weight=MUST,
                   about=(record.name,))  # fmt: skip

    def _final_read_results(self) -> None:
        """Note what the final reads found of each record in question, at the time when the last final read ended."""
        assert self._facts.final_reads is not None
        for record in self._records:
            if not record.is_subject:
                continue
            text, label, grave = final_words(self._facts, record, self._records)
            self._note(self._facts.final_reads[1], READERS, "final", text, *label, weight=MUST, grave=grave,
                       about=(record.name,))  # fmt: skip

    def _broken(self) -> None:
        problem = self._facts.problem
        assert problem.t is not None
        lane = str(problem.node) if problem.node is not None else READERS
        replica = self._logs.of(problem.node).snapshot() if problem.node is not None else None
        text = f"Here {problem.name} is broken: {with_names(problem.text.rstrip('.'), self._records)}."
        self._note(problem.t, lane, "broken", text, f"{problem.name}", "is broken", weight=MUST, grave=True,
                   replica=replica)  # fmt: skip

    # --------------------------------------------------------------------------------------------------------- faults

    def _fault_begins(self, bar: NodeFaultSpan) -> None:
        replica = self._logs.of(bar.node)
        text = f"Broker {bar.node} is {bar.words}"
        if bar.down:
            text += leo_and_hw(replica, surely=self._told.exact)
            replica.up = False
        self._note(bar.begin, str(bar.node), "fault", f"{text}.", bar.words, weight=TURN, replica=replica.snapshot(),
                   fault=bar.number)  # fmt: skip

    def _fault_ends(self, bar: NodeFaultSpan) -> None:
        if bar.down:
            return  # its new incarnation tells
        replica = self._logs.of(bar.node)
        assert bar.end is not None
        text = f"Broker {bar.node} is no longer {bar.words}."
        self._note(bar.end, str(bar.node), "fault ends", text, f"no longer {bar.words}", weight=TURN,
                   replica=replica.snapshot(), fault=bar.number)  # fmt: skip

    # --------------------------------------------------------------------------------------------------------- traces

    def _event(self, event: BrokerTraceLine) -> None:
        handler = self._on_event.get(event.name)
        if handler is not None:
            self._logs.note_leaders(event.t)
            handler(event, self._logs.of(event.node))

    def _take_role(self, event: BrokerTraceLine, replica: ReconstructedReplica, leader: int) -> None:
        replica.epoch, replica.leader = event.int_of("epoch"), leader
        replica.isr = event.ids("isr") if "isr" in event.fields else ()  # Kafka's followers do not say
        source = None if replica.leads else self._logs.leader_of(event.node)
        newest = self._logs.newest_leader()
        if replica.leads or source is None or source.leo < event.int_of("leo", 0):
            source = newest if newest is not replica else source
        replica.learn_log_end(event.int_of("leo", replica.leo), source, max(replica.epoch - 1, 0))
        replica.hw = event.int_of("hw", replica.hw)

    def _became_leader(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        held = set(self._hold(replica))
        self._take_role(event, replica, event.node)
        self._isr = replica.isr
        lacks = [
            r.name
            for r in self._records
            if r.name in self._acknowledged and r.name not in self._hold(replica) and 0 <= r.epoch < replica.epoch
        ]
        text = f"Broker {event.node} leads in epoch {replica.epoch}{leo_and_hw(replica)}, in sync: {ids(replica.isr)}."
        moment = self._at(
            event, "leads", text, f"leads epoch {replica.epoch}", offsets_of(replica), f"ISR {ids(replica.isr)}",
            weight=TURN,
        )  # fmt: skip
        fresh = [name for name in lacks if name not in self._doomed]
        if fresh:
            moment.text += f" It does not have {' and '.join(fresh)}: no reader will get {it(fresh)} from here on."
            moment.weight, moment.grave, moment.lost = MUST, True, fresh[0]
            self._doomed.update(fresh)
        if held - set(self._hold(replica)):
            self._note_lost_copies(moment)

    def _became_follower(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        leader, leo = event.int_of("leader"), replica.leo
        was = replica.epoch, replica.leader
        self._take_role(event, replica, leader)
        if leader < 0:
            isr = f" (in sync: {ids(replica.isr)})" if "isr" in event.fields else ""
            text = f"Broker {event.node} hears that nobody leads in epoch {replica.epoch}{isr}."
            self._at(event, "leaderless", text, "no leader", offsets_of(replica), weight=DETAIL,
                     group=("leaderless", replica.epoch))  # fmt: skip
            return
        text = f"Broker {event.node} follows broker {leader} in epoch {replica.epoch}{leo_and_hw(replica)}."
        moment = self._at(
            event, "follows", text, f"follows {leader}, epoch {replica.epoch}", offsets_of(replica),
            weight=DETAIL if was[0] < 0 else TURN, group=("follows", leader, replica.epoch, replica.leo, replica.hw),
            plural=f"Brokers {{who}} follow broker {leader} in epoch {replica.epoch}{leo_and_hw(replica)}.",
        )  # fmt: skip
        if replica.leo < leo:
            self._note_lost_copies(moment)

    def _appended(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        start, end, epoch = event.int_of("from"), event.int_of("leo"), event.int_of("epoch")
        leads = event.fields.get("role") == "leader"
        if leads:
            replica.write(start, end, epoch)
        else:
            replica.copy(start, end, self._logs.leader_of(event.node), epoch)
        new = [r for r in self._names_in(start, end) if replica.epoch_at(r.offset) == r.epoch]
        asked = self._facts.problem.records_in(start, end)
        weight = MUST if asked or any(r.is_subject for r in new) else DETAIL if new else NOISE
        names = " and ".join(r.name for r in new) or asked or f"offsets {start} to {end - 1}"
        verb = "appends" if leads else "copies"
        where = f" at offset {start}" if leads and end - start == 1 else ""
        source = self._producers.get(new[0].sent.process, "") if leads and new else str(replica.leader)
        text = f"Broker {event.node} {verb} {names}{where}{leo_and_hw(replica)}."
        self._at(
            event, verb, text, f"{verb} {names}", offsets_of(replica), weight=weight, about=tuple(r.name for r in new),
            came_from=(source, "sends" if leads else "appends") if source else None,
        )  # fmt: skip

    def _known_batch(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        """Note that a broker took a batch for an earlier one: rightly, because the batch was a retry, or wrongly."""
        start, end = event.int_of("base_offset"), event.int_of("last_offset") + 1
        about = [r for r in self._names_in(start, end) if r.sent.sent <= event.t <= (r.sent.done or event.t)]
        names = " and ".join(r.name for r in about) or "what comes"
        has = not self._told.exact or replica.epoch_at(start) is not None
        self._told.mistaken |= (wrong := {r.name: event.t for r in about if not has or is_of_another(r, self._records)})
        text = known_words(event.node, names, (start, end), event.int_of("producer_id"), has=has, replica=replica)
        weight = MUST if any(r.is_subject for r in about) else TURN if about else DETAIL
        self._at(event, "known", text, f"knows {names} already", offsets_of(replica), weight=weight, grave=bool(wrong),
                 about=tuple(r.name for r in about))  # fmt: skip

    def _hw_moved(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        before, replica.hw = replica.hw, event.int_of("hw")
        new = self._names_in(before, replica.hw) if replica.hw > before else []
        new = [r for r in new if replica.epoch_at(r.offset) == r.epoch]
        names = " and ".join(r.name for r in new)
        weight = NOISE if not new else MUST if any(r.is_subject for r in new) else DETAIL
        came_from = ("follower", "copies") if replica.leads else (str(replica.leader), "hw")
        if replica.hw < before:
            text, weight = f"Broker {event.node}'s high watermark goes back from {before} to {replica.hw}.", TURN
        elif replica.leads:
            committed = f": {names} {are(new)} committed" if new else ""
            text = f"Broker {event.node} moves the high watermark to {replica.hw}{committed}."
        else:
            text = f"Broker {event.node} learns that the high watermark is {replica.hw}."
            weight = min(weight, TURN)
        self._at(event, "hw", text, f"HW {replica.hw}", weight=weight, about=tuple(r.name for r in new),
                 came_from=came_from)  # fmt: skip

    def _offsets(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        """Note a sample of the offsets of a broker that does not trace every append."""
        replica.learn_log_end(event.int_of("leo"), self._logs.leader_of(event.node), max(replica.epoch, 0))
        replica.hw = event.int_of("hw", replica.hw)

    def _truncated(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        start, to = event.int_of("from_offset"), event.int_of("to_offset")
        if replica.leo < start:
            replica.learn_log_end(start, self._logs.leader_of(event.node), max(replica.epoch - 1, 0))
        held = self._hold(replica)
        replica.cut(to)
        if event.fields.get("hw") is not None:
            replica.hw = min(event.int_of("hw"), to)
        gone = [name for name in held if name not in self._hold(replica)]
        why = str(event.fields.get("reason") or "it does not say why")
        text = f"Broker {event.node} truncates its log from {start} to {to}, HW {replica.hw}: {why}."
        if gone:
            text += f" Its copy of {' and '.join(gone)} is gone."
        if asked := self._facts.problem.records_in(to, start):
            text += f" Its {asked} {'are' if ' and ' in asked else 'is'} gone."
        weight = MUST if asked or any(r.is_subject for r in self._records if r.name in gone) else TURN
        moment = self._at(
            event, "truncates", text, f"truncates {start} → {to}", offsets_of(replica),
            *([f"loses {', '.join(gone)}"] if gone else []), weight=weight, grave=bool(gone), about=tuple(gone),
        )  # fmt: skip
        self._note_lost_copies(moment)

    def _recovered(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        leo, cut = event.int_of("leo"), event.int_of("truncated_bytes", 0)
        held, before = self._hold(replica), replica.leo
        replica.learn_log_end(leo, self._logs.leader_of(event.node), max(replica.epoch, 0))
        gone = [name for name in held if name not in self._hold(replica)]
        text = f"Broker {event.node} recovers its log up to {leo}"
        if cut:
            text += f", {cut} bytes are cut off ({event.fields.get('reason')})"
        elif leo < before:
            text += f", it had ended at {before}"
        text += f". Its copy of {' and '.join(gone)} is gone." if gone else "."
        weight = MUST if gone else TURN if cut or leo < before else DETAIL
        moment = self._at(event, "recovers", text, f"recovers to {leo}", offsets_of(replica), weight=weight,
                          grave=bool(gone), about=tuple(gone))  # fmt: skip
        self._note_lost_copies(moment)

    def _isr_changed(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        replica.isr = event.ids("isr")
        if not self._told.exact:
            replica.hw = event.int_of("hw", replica.hw)
        leo = max(event.int_of("leo"), replica.hw)
        if leo > replica.leo:
            replica.write(replica.leo, leo, replica.epoch)
        newest = self._logs.newest_leader()
        stale = newest is not None and newest.epoch > event.int_of("epoch", newest.epoch)
        # A deposed leader's view, or a proposal that the controller has not decided, is no change of the ISR.
        if stale or event.ids("maximal") != replica.isr or replica.isr == self._isr:
            return
        left, joined = set(self._isr) - set(replica.isr), set(replica.isr) - set(self._isr)
        self._isr = replica.isr
        how = [f"broker {ids(left)} is out" if left else "", f"broker {ids(joined)} is back" if joined else ""]
        text = f"The ISR is {ids(replica.isr)} now ({', '.join(each for each in how if each)})."
        self._at(event, "isr", text, f"ISR {ids(replica.isr)}", weight=TURN)

    def _leader_elected(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        leader, epoch, unclean = event.int_of("leader"), event.int_of("epoch"), event.fields.get("unclean") is True
        isr = ids(event.ids("isr"))
        if leader < 0:
            text = f"The controller (broker {event.node}) finds nobody to lead in epoch {epoch} (in sync: {isr})."
            label = f"no leader, epoch {epoch}"
        else:
            how = "elects, uncleanly," if unclean else "elects"
            text = f"The controller (broker {event.node}) {how} broker {leader} in epoch {epoch} (in sync: {isr})."
            label = f"elects {leader}, epoch {epoch}"
        self._at(event, "elected", text, label, *(["unclean"] if unclean else []),
                 weight=MUST if unclean else DETAIL)  # fmt: skip

    def _polled(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        """Note a change of the leader or the ISR that a poll of the metadata showed, for brokers without traces."""
        leader, epoch, isr = event.int_of("leader"), event.int_of("epoch"), event.ids("isr")
        newest = self._logs.newest_leader()
        same = newest is not None and (newest.node, newest.epoch) == (leader, epoch)
        for each in self._logs.replicas.values():
            each.leader = leader if each.epoch <= epoch else each.leader
        for node in {leader, *isr} - {-1}:
            of_node = self._logs.of(node)
            of_node.epoch, of_node.leader, of_node.isr = epoch, leader, isr
        self._isr = isr
        who = f"broker {leader}" if leader >= 0 else "nobody"
        text = f"Metadata says that {who} leads in epoch {epoch} (in sync: {ids(isr)})."
        label = f"leads epoch {epoch}" if leader >= 0 else "no leader"
        self._at(event, "isr" if same else "leads", text, label, f"ISR {ids(isr)}", weight=TURN)

    def _node_started(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        again = event.int_of("incarnation") > 1
        replica.up, replica.leader = True, -1
        if again:
            self._fresh.add(event.node)
        text = f"Broker {event.node} starts{' again' if again else ''}."
        fault = next((f.number for f in reversed(self._facts.faults) if f.down and f.node == event.node and
                      f.begin < event.t), -1)  # fmt: skip
        self._at(event, "starts", text, "starts again" if again else "starts", weight=TURN if again else NOISE,
                 fault=fault)  # fmt: skip

    def _node_stopped(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        replica.up = False
        text = f"Broker {event.node} has stopped{leo_and_hw(replica)}."
        self._at(event, "stopped", text, "stopped", offsets_of(replica), weight=DETAIL)

    def _broker_fenced(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        broker = event.int_of("broker")
        was = ", as it was before its restart" if broker in self._fresh else ""
        text = f"The controller (broker {event.node}) fences broker {broker}{was}."
        self._at(event, "fences", text, f"fences {broker}", weight=DETAIL)

    def _broker_unfenced(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        self._fresh.discard(event.int_of("broker"))

    def _fetch_refused(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        error, offset = event.fields.get("error"), event.int_of("offset")
        leader = event.int_of("leader")
        text = f"Broker {event.node}'s fetch from offset {offset} is refused by broker {leader}: {error}."
        weight = DETAIL if error == "OFFSET_OUT_OF_RANGE" else NOISE
        self._at(event, "refused", text, "fetch refused", str(error), weight=weight)

    # --------------------------------------------------------------------------------------------------------- quorum

    def _election(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        role, why = str(event.fields.get("role")), str(event.fields.get("why") or "")
        replica.epoch = event.int_of("epoch")
        replica.leader = event.node if role == "leader" else event.int_of("leader")
        replica.learn_log_end(event.int_of("leo", replica.leo), self._logs.newest_leader(), replica.epoch)
        replica.hw = event.int_of("hw", replica.hw)
        text = f"Node {event.node} is {role} of the metadata quorum in epoch {replica.epoch} ({why})."
        weight = TURN if role == "leader" else DETAIL
        self._at(event, "quorum", text, f"{role}, epoch {replica.epoch}", offsets_of(replica), weight=weight)

    def _vote(self, event: BrokerTraceLine, replica: ReconstructedReplica) -> None:
        granted = "votes for" if event.fields.get("granted") else "refuses its vote to"
        pre = "would vote for" if event.fields.get("granted") else "would not vote for"
        verb, weight = (pre, NOISE) if event.fields.get("pre_vote") else (granted, DETAIL)
        text = f"Node {event.node} {verb} {event.int_of('candidate')} in epoch {event.int_of('epoch')}."
        self._at(event, "votes", text, f"{verb} {event.int_of('candidate')}", weight=weight)
