"""Golden scripts of replication: a text of commands and their output.

    # A comment, for the story.
    cluster 1 2 min.insync.replicas=1
    write 1 m1
    ----
    1: m1 at 0

Commands are followed by `----`, and then by their output up to an empty line. Running a script writes the same text
with the present outputs; a test compares the two. `python -m pytest tests/scripts/replication --update` rewrites the
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from squall.broker.replication import TRUNCATION_RULES, Partition, ReplicationSettings
from tests.support.replication.broken_rules import BROKEN
from tests.support.replication.oracle_controller import AlterAnswer, AlterRequest
from tests.support.replication.replication_invariants import check_converged, check_invariants
from tests.support.replication.replication_world import FetchAnswer, FetchRequest, World

SEPARATOR = "----"


def run_script(text: str) -> str:
    """Return the script with the present outputs of its commands."""
    player = Player()
    out: list[str] = []
    for comments, commands in _blocks(text):
        out += comments
        if commands:
            out += [*commands, SEPARATOR, *player.run(commands), ""]
    return "\n".join(out).rstrip("\n") + "\n"


def _blocks(text: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield (comments and empty lines, commands) of each block. The outputs in the text are dropped."""
    comments: list[str] = []
    commands: list[str] = []
    in_output = False
    for line in text.splitlines():
        if in_output:
            in_output = bool(line.strip())
        elif line == SEPARATOR:
            yield comments, commands
            comments, commands, in_output = [], [], True
        elif not line.strip() or line.startswith("#"):
            comments.append(line)
        else:
            commands.append(line)
    assert not commands, f"no {SEPARATOR} after {commands}"
    yield comments, []


class Player:
    """Carries out commands in one world. Broken invariants are printed as output, because some scripts show a bug's
    effect.
    """

    def __init__(self) -> None:
        self.world = World()
        self.lines: list[str] = []

    def run(self, commands: list[str]) -> list[str]:
        self.lines = []
        for command in commands:
            name, *words = command.split()
            act: Callable[..., None] = getattr(self, f"do_{name.replace('-', '_')}")
            self._watched(lambda act=act, words=words: act(*words))  # type: ignore[misc]
            self._watched(lambda: check_invariants(self.world))
        return self.lines

    def _watched(self, act: Callable[[], None]) -> None:
        try:
            act()
        except AssertionError as fault:
            wrong = f"WRONG: {fault}"
            if wrong not in self.lines:
                self.lines.append(wrong)

    def do_cluster(self, *words: str) -> None:
        """cluster 1 2 3 [min.insync.replicas=N] [replica.lag.max.messages=N] [truncation=RULE] [eligible-leaders]
        [broken=RULE]: start these brokers; the first one leads, and all are in sync.
        """
        brokers = tuple(int(word) for word in words if word.isdigit())
        options = dict(word.split("=") for word in words if "=" in word)
        min_isr = int(options.get("min.insync.replicas", "2"))
        named: dict[str, type[Partition]] = {machine.__name__: machine for machine in BROKEN}
        machine = named[options["broken"]] if "broken" in options else Partition
        most = int(options.get("replica.lag.max.messages", "-1"))
        settings = ReplicationSettings(30_000, min_isr, most, TRUNCATION_RULES[options.get("truncation", "epoch")])
        self.world = World(brokers, settings, machine, keeps_eligible="eligible-leaders" in words)
        self.world.say = self.world.controller.say = self.lines_append

    def lines_append(self, line: str) -> None:
        self.lines.append(line)

    def do_write(self, broker: str, *values: str) -> None:
        """write N VALUE...: append these values at broker N with acks=all."""
        for value in values:
            self.world.write(int(broker), value)

    def do_fetch(self, broker: str, fate: str = "") -> None:
        """fetch N [held | unanswered | unheard]: broker N fetches. The request is held back, its answer is held back,
        or the request is lost.
        """
        network = self.world.network
        held = len(network)
        self.world.send_fetch(int(broker))
        if fate == "held" or len(network) == held:
            return
        request = network.pop()
        assert isinstance(request, FetchRequest)
        self.world.deliver(request)
        answers = [m for m in network[held:] if isinstance(m, FetchAnswer)]
        if not answers:
            self.lines.append(f"{broker}: no answer")
        for answer in answers:
            if fate != "unanswered":
                network.remove(answer)
            if not fate:
                self.world.deliver(answer)

    def do_deliver(self) -> None:
        """deliver: fetches and answers that were held back arrive in order, and so do the answers to these fetches."""
        while held := [m for m in self.world.network if isinstance(m, FetchRequest | FetchAnswer)]:
            self.world.network.remove(held[0])
            self.world.deliver(held[0])

    def do_controller(self, fate: str = "") -> None:
        """controller [unheard | unreachable]: it applies proposals and answers; unheard: its answers are lost;
        unreachable: the proposals are lost.
        """
        for proposal in [m for m in self.world.network if isinstance(m, AlterRequest)]:
            self.world.network.remove(proposal)
            if fate == "unreachable":
                self.world.lose(proposal)
            else:
                self.world.deliver(proposal)
        for answer in [m for m in self.world.network if isinstance(m, AlterAnswer)]:
            self.world.network.remove(answer)
            if fate == "unheard":
                self.world.lose(answer)
            else:
                self.world.deliver(answer)

    def do_learn(self, *brokers: str) -> None:
        """learn N... | all: brokers read the metadata log to its end."""
        for broker in self.world.nodes if brokers == ("all",) else map(int, brokers):
            self.world.apply_metadata(broker)

    def do_wait(self, ms: str) -> None:
        """wait MS: time passes."""
        self.world.pass_time(int(ms))

    def do_check(self, broker: str) -> None:
        """check N: the periodic check of the ISR."""
        self.world.tick(int(broker))

    def do_flush(self, broker: str) -> None:
        """flush N: broker N's records become durable, and survive a power loss."""
        node = self.world.nodes[int(broker)]
        node.durable = len(node.log)

    def do_checkpoint(self, broker: str) -> None:
        """checkpoint N: its high watermark survives a restart."""
        node = self.world.nodes[int(broker)]
        node.checkpoint = node.running.high_watermark

    def do_forgive(self, *values: str) -> None:
        """forgive VALUE...: these values may be lost, because the following failures are more than replication can
        survive.
        """
        self.world.forgiving = True
        for value in values:
            del self.world.acked[value]

    def do_latest(self, broker: str) -> None:
        """latest N: the latest offset that broker N's ListOffsets returns to a consumer."""
        partition = self.world.nodes[int(broker)].running
        known = partition.latest_offset_available()
        self.lines.append(f"{broker}: latest is {partition.high_watermark if known else 'OFFSET_NOT_AVAILABLE'}")

    def do_settle(self) -> None:
        """settle: all failures end, and afterwards all logs must be equal, fully committed and in sync."""
        self.world.say = self.world.controller.say = lambda line: None
        self.world.settle()
        self.world.say = self.world.controller.say = self.lines_append
        check_converged(self.world)
        self.do_logs()

    def do_logs(self) -> None:
        """logs: every broker's role, high watermark and records, as value/epoch."""
        for broker, node in self.world.nodes.items():
            records = " ".join(f"{value}/{epoch}" for epoch, value in node.log.entries) or "empty"
            if node.partition is None:
                self.lines.append(f"{broker}: down: {records}")
                continue
            role = "leader" if node.running.is_leader else "follower"
            place = f"epoch {node.running.leader_epoch}, high watermark {node.running.high_watermark}"
            self.lines.append(f"{broker}: {role}, {place}: {records}")

    # What happens to one broker, or is done to it by the controller.

    def do_kill(self, broker: str) -> None:
        self.world.kill(int(broker))

    def do_lose_power(self, broker: str, fate: str = "") -> None:
        """lose-power N [noticed]: broker N loses its unsynced records. If noticed, the controller knows of the loss,
        and does not elect N.
        """
        if fate:
            self.world.controller.forget(int(broker))
        self.world.lose_power(int(broker))

    def do_start(self, broker: str) -> None:
        self.world.restart(int(broker))

    def do_bounce(self, broker: str) -> None:
        self.world.bounce(int(broker))

    def do_fence(self, broker: str) -> None:
        self.world.controller.fence(int(broker))

    def do_unfence(self, broker: str) -> None:
        self.world.controller.unfence(int(broker))

    def do_shut_down(self, broker: str) -> None:
        self.world.controller.shut_down(int(broker))

    def do_prefer(self, broker: str) -> None:
        self.world.controller.prefer(int(broker))

    def do_elect_unclean(self, broker: str) -> None:
        self.world.controller.elect_unclean(int(broker))
