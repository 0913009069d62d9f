"""Starts and stops the compared clusters: processes on loopback ports found at run time, ended by their pids."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.real.processes.ports import free_ports
from squall.chaos.runtimes.real.processes.registry import claimed_ports
from squall.chaos.toolchain.kafka import apache_kafka
from squall.chaos.toolchain.sources import package_in

NODES = (1, 2, 3)
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE_S = 30.0
_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class MeasuredCluster:
    """Runs the nodes of a cluster, by default three, as processes."""

    name = ""

    def __init__(self, folder: Path, extra: dict[str, str] | None = None, nodes: Sequence[int] = NODES) -> None:
        self.folder, self.extra, self.nodes = folder, extra or {}, nodes
        ports = free_ports(2 * len(nodes), claimed_ports(), random.SystemRandom())
        self.ports = dict(zip(nodes, ports[: len(nodes)], strict=True))
        self.internal = dict(zip(nodes, ports[len(nodes) :], strict=True))
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.launched_at = 0.0

    @property
    def bootstrap(self) -> str:
        """Return the bootstrap addresses for clients."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def settings(self, node: int) -> dict[str, str]:
        """Return the server properties of one node."""
        raise NotImplementedError

    def command(self, node: int, config: Path) -> list[str]:
        """Return the command that starts one node."""
        raise NotImplementedError

    def environ(self) -> dict[str, str] | None:
        """Return the environment of each node; None for this process's own."""
        return None

    def prepare(self) -> None:
        """Do what comes before the timed launch, such as formatting directories."""

    def start(self) -> None:
        """Write configurations and launch every node. `launched_at` is when the launch began."""
        for node in self.nodes:
            (self.folder / f"n{node}").mkdir(parents=True, exist_ok=True)
            self.configure(node)
        self.prepare()
        self.launched_at = time.monotonic()
        for node in self.nodes:
            self.launch(node)

    def configure(self, node: int) -> None:
        """Write the properties file with which one node is launched."""
        lines = [f"{key}={value}" for key, value in {**self.settings(node), **self.extra}.items()]
        self._config(node).write_text("\n".join(lines) + "\n")

    def _config(self, node: int) -> Path:
        return self.folder / f"n{node}.properties"

    def launch(self, node: int) -> None:
        """Start one node on its existing data."""
        log = (self.folder / f"n{node}.log").open("ab")
        self.processes[node] = subprocess.Popen(
            self.command(node, self._config(node)), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environ()
        )
        log.close()

    def kill(self, node: int) -> None:
        """End one node by SIGKILL."""
        self.processes[node].kill()
        self.processes[node].wait()

    def stop(self) -> None:
        """End every node by SIGTERM, after 20 s by SIGKILL."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def cpu_s(self) -> float:
        """Return the CPU seconds of all nodes so far, user and system."""
        return sum(self._times())

    def system_s(self) -> float:
        """Return the part of `cpu_s` that the kernel worked for the nodes, in CPU seconds."""
        return self._times()[1]

    def _times(self) -> tuple[float, float]:
        user = system = 0
        for process in self.processes.values():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            user, system = user + int(fields[11]), system + int(fields[12])
        return user / TICKS, system / TICKS

    def rss_mb(self) -> list[float]:
        """Return the resident memory of each node, in MB."""
        found = []
        for process in self.processes.values():
            text = Path(f"/proc/{process.pid}/status").read_text()
            found.append(int(text.split("VmRSS:")[1].split()[0]) / 1024)
        return found


class Squall(MeasuredCluster):
    """Runs brokers of Squall, of this checkout or of the one at `root`."""

    name = "squall"

    def __init__(
        self,
        folder: Path,
        extra: dict[str, str] | None = None,
        nodes: Sequence[int] = NODES,
        *,
        root: Path | None = None,
    ) -> None:
        super().__init__(folder, extra, nodes)
        self._root = root

    def environ(self) -> dict[str, str] | None:
        """Return an environment whose PYTHONPATH makes the nodes import the checkout at `root`; None if no `root` was
        given.
        """
        return None if self._root is None else {**os.environ, "PYTHONPATH": str(self._root)}

    def settings(self, node: int) -> dict[str, str]:
        """Return the server properties that a cluster on loopback needs. All other properties keep Kafka's defaults."""
        voters = ",".join(f"{n}@127.0.0.1:{self.internal[n]}" for n in self.nodes)
        return {
            "node.id": str(node),
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            "listeners": f"INTERNAL://127.0.0.1:{self.internal[node]},CLIENT://127.0.0.1:{self.ports[node]}",
            "inter.broker.listener.name": "INTERNAL",
            "log.dirs": str(self.folder / f"n{node}"),
            "min.insync.replicas": "2",
            "default.replication.factor": "3",
            "auto.create.topics.enable": "false",
        }

    def command(self, node: int, config: Path) -> list[str]:
        """Return the command `python -m squall.broker`, or `broker` for checkouts older than the package `squall`."""
        module = "squall.broker" if self._root is None else package_in(self._root)[0]
        return [sys.executable, "-P", "-m", module, "--config", str(config)]


class Kafka(MeasuredCluster):
    """Runs Apache Kafka with KRaft on three combined nodes. Kafka's files are those in KAFKA_HOME; without it, Maven
    downloads them.
    """

    name = "kafka"

    def __init__(self, folder: Path, extra: dict[str, str] | None = None, nodes: Sequence[int] = NODES) -> None:
        super().__init__(folder, extra, nodes)
        self.kafka = apache_kafka(lambda line: print(line, file=sys.stderr))

    def settings(self, node: int) -> dict[str, str]:
        """Return the properties that make Apache Kafka a cluster like that of Squall's brokers: three combined nodes on
        loopback, replication factor 3, min.insync.replicas 2.
        """
        voters = ",".join(f"{n}@127.0.0.1:{self.internal[n]}" for n in self.nodes)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node]},CONTROLLER://127.0.0.1:{self.internal[node]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.folder / f"n{node}"),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "auto.create.topics.enable": "false",
        }

    def _java(self, main: str, *arguments: str, flags: Sequence[str] = ()) -> list[str]:
        log4j = self.folder / "log4j2.properties"
        log4j.write_text("status = error\nrootLogger.level = WARN\n")
        return self.kafka.command(main, arguments, flags=[*flags, f"-Dlog4j2.configurationFile={log4j}"])

    def prepare(self) -> None:
        """Format each node's directory before the launch, so that this does not count as start-up time."""
        for node in self.nodes:
            subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._config(node))),
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def command(self, node: int, config: Path) -> list[str]:
        """Return the command with the JVM flags of Kafka's own start script, heap fixed at 1 GB."""
        flags = ["-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        flags += ["-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true"]
        return self._java("kafka.Kafka", str(config), flags=flags)


PROGRAM = "broker.py"
"""Names the program of a prototype of the data path: a small stand-in for Squall's broker, for trying out ideas. It
runs as `broker.py NODE PORT FOLDER`. Node n of three, from 0, listens on PORT + n; partition p of each topic is led by
node p mod 3.
"""


def is_prototype(files: Path) -> bool:
    """Return whether a directory holds a prototype of the data path (a small stand-in for Squall's broker, see
    `PROGRAM`) instead of a checkout of Squall.
    """
    return (files / PROGRAM).is_file() and not (files / "broker").is_dir()


class PrototypeCluster(MeasuredCluster):
    """Runs three nodes of a prototype of the data path, from a directory."""

    name = "prototype"

    def __init__(self, files: Path, folder: Path) -> None:
        super().__init__(folder)
        self._files, self._base = files, _consecutive_ports(len(self.nodes))
        self.ports = {node: self._base + index for index, node in enumerate(self.nodes)}

    @override
    def start(self) -> None:
        """Start the nodes and wait until all listen. A request before that would end a prototype's node."""
        super().start()
        deadline = time.monotonic() + PATIENCE_S
        for port in self.ports.values():
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"the prototype does not listen on port {port}") from None
                    time.sleep(0.02)

    def settings(self, node: int) -> dict[str, str]:
        """Return no settings, because a prototype has none."""
        return {}

    def command(self, node: int, config: Path) -> list[str]:
        """Return the command that starts a node of the prototype."""
        index = self.nodes.index(node)
        return [sys.executable, str(self._files / PROGRAM), str(index), str(self._base), str(self.folder / f"n{node}")]


def _consecutive_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports. Raises PreconditionError if there are none."""
    for _ in range(100):
        (base,) = free_ports(1, claimed_ports(), random.SystemRandom())
        try:
            with ExitStack() as held:
                for port in range(base, base + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return base
    raise PreconditionError(f"there are no {count} free ports in a row")


def new_cluster(name: str, folder: Path) -> MeasuredCluster:
    """Return a cluster, not started, with its files in `folder`. `name` is squall or kafka. If Kafka is not available,
    raises PreconditionError, which says how to get it.
    """
    return Squall(folder) if name == "squall" else Kafka(folder)
