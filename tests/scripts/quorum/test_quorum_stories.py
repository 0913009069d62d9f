"""Golden stories: a quorum's life in commands, and what its nodes said and did.

A story is a text file under `stories/`. Each block is a command, a line `----`, and what followed in 20 ms, or in the
time that the command gives. Messages take 1 ms and syncs 1 ms. What follows a command in brackets is not written.
`--update` writes what is found into the file instead of comparing.

    cluster V [O [R]]    start voters 1 to V and O observers above them; a fetch brings at most R records
    stand N [MS]         its patience is at an end, as is everybody's with a leader that is gone or out of reach
    append N COUNT       node N, or the leader if N is 0, appends records
    resign N             leader N gives up
    cut A [B]            messages from A to B get lost; without B, A is alone
    heal                 all cuts are mended
    kill N ...           they die
    power N ...          they die, and what they had not synced is lost
    start N ...          on what they have on disk
    snapshot N           node N takes a snapshot of what is committed, and drops its log before the end of it
    wait MS              time passes
    logs                 the state of each node's log

Fetches that bring nothing new are left out, and the answers to those that do not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall.broker.protocol.errors import ErrorCode
from squall.broker.protocol.ids import NO_NODE
from squall.broker.quorum.leadership import LeaderState
from squall.broker.quorum.messages import (
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    QuorumMessage,
    Vote,
    VoteReply,
)
from tests.sim.quorum.nodes import Node
from tests.sim.quorum.world import Weather, World

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))
RULE = "----"
AT_ONCE_MS = 20
FOR_EVER_MS = 1 << 40


class Stage(World):
    """A world without randomness, which writes down what happens."""

    def __init__(self, voters: int, observers: int = 0, most_records: int = 1000) -> None:
        super().__init__(1, voters, observers, Weather(delay_ms=(1, 1), sync_ms=(1, 1), most_records=most_records))
        self.lines: list[str] = []
        self._fetched: dict[tuple[int, int], Fetch] = {}

    def note(self, node_id: int, event: str, **fields: Any) -> None:
        match event:
            case "election":
                leader = f", leader {fields['leader']}" if fields["leader"] not in (NO_NODE, node_id) else ""
                self.lines.append(f"{node_id}: {fields['role']} in epoch {fields['epoch']}{leader} ({fields['why']})")
            case "truncated":
                self.lines.append(f"{node_id}: truncates from {fields['from_offset']} to {fields['to_offset']}")
            case "vote":
                pass  # Seen in the reply.
            case _:
                self.lines.append(f"{node_id}: {event}")

    def arrives(self, message: QuorumMessage) -> None:
        body = message.body
        said = self._heard_fetch(message, body) if isinstance(body, Fetch | FetchReply) else self._heard(body)
        if said:
            self.lines.append(f"{message.sender} -> {message.receiver}  {said}")

    def _heard(self, body: Any) -> str:
        match body:
            case Vote(epoch, last_epoch, end_offset, pre_vote):
                return f"{'would you vote' if pre_vote else 'vote'} for me in {epoch}? {last_epoch}/{end_offset}"
            case VoteReply(ErrorCode.NONE, _, _, granted):
                return "yes" if granted else "no"
            case BeginEpoch(epoch):
                return f"I lead {epoch}"
            case EndEpoch(epoch, successors):
                return f"I lead {epoch} no longer, next may be {successors}"
            case FetchSnapshot(_, snapshot, position):
                return f"snapshot of {snapshot.end_offset} from position {position}"
            case FetchSnapshotReply(ErrorCode.NONE):
                return f"{body.length} of {body.size} from position {body.position}"
            case _:
                return "" if body.error is ErrorCode.NONE else f"{body.error.name}, epoch {body.epoch}"

    def _heard_fetch(self, message: QuorumMessage, body: Fetch | FetchReply) -> str:
        if isinstance(body, Fetch):
            place = (message.sender, message.receiver)
            old, self._fetched[place] = self._fetched.get(place), body
            return "" if old == body else f"fetch {body.offset}, know {body.high_watermark}"
        if body.error is not ErrorCode.NONE:
            return f"{body.error.name}, leader {body.leader_id} of {body.epoch}"
        if body.snapshot is not None:
            return f"gone: there is a snapshot of {body.snapshot.end_offset}"
        if body.diverging is not None:
            return f"epoch {body.diverging.epoch} ends at {body.diverging.end_offset}"
        if body.spans:
            return f"{body.spans[0].base_offset} to {body.spans[-1].end_offset - 1}, committed {body.high_watermark}"
        asked = self._fetched.get((message.receiver, message.sender))
        return f"committed {body.high_watermark}" if asked and body.high_watermark > asked.high_watermark else ""

    def check(self, node: Node) -> None:
        before = node.told_hw
        super().check(node)
        if node.told_hw > before:
            self.lines.append(f"{node.node_id}: committed up to {node.told_hw}")


class Teller:
    """Carries out commands, and describes the effects of each."""

    def __init__(self) -> None:
        self.stage = Stage(1)

    def play(self, line: str) -> str:
        verb, *words = line.strip("()").split()
        self.run_ms = AT_ONCE_MS
        getattr(self, f"do_{verb}")(*map(int, words))
        self.stage.run(self.run_ms)
        lines, self.stage.lines = self.stage.lines, []
        if line.startswith("("):
            return "..."
        return "\n".join(lines) or "nothing"

    def do_cluster(self, *size: int) -> None:
        self.stage = Stage(*size)
        for node in self.stage.nodes.values():
            node.start()
            if node.raft is not None and node.node_id in self.stage.settings.voters:
                node.raft.member.deadline_ms += 1000  # No node is a candidate before the story says so.

    def do_stand(self, node_id: int, run_ms: int = AT_ONCE_MS) -> None:
        self.run_ms = run_ms
        for other in self.stage.nodes.values():
            if other.raft is not None and not self._hears_leader(other):
                other.raft._following.fetched_ms = None
        node = self.stage.nodes[node_id]
        assert node.raft is not None
        node.raft.member.deadline_ms = node.now
        node.raft.tick(node.now)
        node.drive()

    def _hears_leader(self, node: Node) -> bool:
        assert node.raft is not None
        leader = self.stage.nodes.get(node.raft.leader_id)
        if leader is None or leader.raft is None or leader.raft.leadership is None:
            return False
        return (node.node_id, leader.node_id) not in self.stage.cuts

    def do_append(self, node_id: int, count: int) -> None:
        leader = self.stage.nodes[node_id] if node_id else self.stage.leader()
        assert leader is not None
        self.stage.append(leader, count)

    def do_resign(self, node_id: int) -> None:
        node = self.stage.nodes[node_id]
        assert node.raft is not None
        node.raft.resign(node.now)
        node.drive()

    def do_cut(self, node_id: int, *others: int) -> None:
        for other in others:
            self.stage.cuts[(node_id, other)] = FOR_EVER_MS
        for other in () if others else self.stage.nodes:
            self.stage.cuts[(node_id, other)] = self.stage.cuts[(other, node_id)] = FOR_EVER_MS

    def do_heal(self) -> None:
        self.stage.cuts.clear()

    def do_kill(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.stage.nodes[node_id].stop(lose_power=False)

    def do_power(self, *node_ids: int) -> None:
        for node_id in node_ids:
            disk = self.stage.nodes[node_id].disk
            disk.log = disk.log[: disk.kept]
            self.stage.nodes[node_id].stop(lose_power=True)

    def do_start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.stage.nodes[node_id].start()

    def do_snapshot(self, node_id: int) -> None:
        node, weather = self.stage.nodes[node_id], self.stage.weather
        weather.snapshot, weather.trim = 1.0, 1.0
        node.maybe_snapshot()
        weather.snapshot = 0.0

    def do_wait(self, ms: int) -> None:
        self.run_ms = ms

    def do_logs(self) -> None:
        self.run_ms = 0
        for node in self.stage.nodes.values():
            if node.raft is None:
                self.stage.lines.append(f"{node.node_id}: down")
                continue
            epochs = " ".join(str(epoch) for epoch, _ in node.disk.log)
            raft = node.raft
            self.stage.lines.append(
                f"{node.node_id}: {raft.role.value} in {raft.epoch}, epochs [{epochs}], committed {raft.high_watermark}"
            )


def told_anew(text: str) -> str:
    """Return the script with the present effects of its commands."""
    teller = Teller()
    blocks = []
    for block in text.strip("\n").split("\n\n"):
        comment = [line for line in block.splitlines() if line.startswith("#")]
        command = [line for line in block.split(f"\n{RULE}")[0].splitlines() if not line.startswith("#")]
        found = [f"{command[0]}\n{RULE}\n{teller.play(command[0])}"] if command else []
        blocks.append("\n".join(comment + found))
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=[path.stem for path in STORIES])
def test_the_story_goes_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    found = told_anew(text)
    if request.config.getoption("--update"):
        path.write_text(found)
    else:
        assert found == text, f"{path.name} goes otherwise; --update accepts it"


def test_there_are_stories() -> None:
    assert STORIES


def test_figure_8_ends_badly_without_the_rule_of_the_own_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    def any_majority(self: LeaderState, own_synced_offset: int) -> int:
        ends = sorted([own_synced_offset, *(replica.end_offset for replica in self.voters.values())])
        return max(0, ends[-self._settings.majority])

    monkeypatch.setattr(LeaderState, "committed_offset", any_majority)
    with pytest.raises(AssertionError, match="high watermark|NoLogDivergence|LeaderCompleteness"):
        told_anew((Path(__file__).parent / "stories" / "figure_8.txt").read_text())
