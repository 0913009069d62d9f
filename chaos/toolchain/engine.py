"""Finds the Docker engine of this machine, checks that it is suitable, and calls it.

Only this module uses the SDK. Calls block: from trio, call them in a thread. Any number of threads may call at the same
time. An error of the engine becomes `EngineError`, whose message says what to do.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from squall.chaos.errors import HarnessError, PreconditionError
from squall.chaos.toolchain.extras import missing
from squall.chaos.typed import script

T = TypeVar("T")

SOCKET = "/var/run/docker.sock"
MIN_API = (1, 41)
"""Is the oldest API version that is accepted, that of Docker 20.10. Older engines cannot measure a container without
waiting for a second sample.
"""
HOST_NAME_LETTERS = 63
"""Limits the length of a host name, because the kernel refuses longer ones."""
MIN_FREE_BYTES = 2 << 30
CALL_S, LONG_S = 60, 1800
START = script("compose/engine.sh")
INSTALL = f"start one (as root: {START} installs and starts Debian's; or: systemctl start docker)"
CPU_PERIOD_US, LEAST_QUOTA_US = 100_000, 1000

ADVICE: tuple[tuple[str, str], ...] = (
    ("no space left on device", "the engine is out of disk: `docker system df` shows what takes it"),
    ("pool overlaps", "the network range is taken by another network of the engine"),
    ("is already in use", "the name is taken: `squall clean` removes what interrupted runs left"),
    ("no such image", "the image is gone: the next run builds it again"),
    ("exec format error", "the image is broken, or made for another kind of processor: `squall clean --images`"),
    ("no such file or directory", "the image is broken: `squall clean --images` has the next run build it again"),
    ("iptables", "the engine could not set up its network rules: it needs iptables and the right to use it"),
)


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Write an archive's files into a folder, and no file outside of it."""
    if hasattr(tarfile, "data_filter"):
        tar.extractall(folder, filter="data")
    else:  # Python 3.11 before 3.11.4, as in Debian 12, knows no filters; archives are our own containers'.
        tar.extractall(folder)


class EngineError(HarnessError):
    """Is raised if the engine did not answer, or refused a call. `status` is the HTTP status, 0 if there was no answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ContainerMount:
    """Describes a mount in a container: a folder or file of this machine, or a volume of the engine by its name."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """Describes a container to be made, without privileges, with a read-only root, and with limits on memory and CPU.
    """

    name: str
    image: str
    command: Sequence[str]
    labels: Mapping[str, str]
    network: str
    address: str
    user: str
    mounts: Sequence[ContainerMount]
    memory_bytes: int
    cpus: float
    """Limits how many CPUs the container may keep busy."""
    capabilities: Sequence[str] = ()
    """Lists the only capabilities that the container has."""


class DockerEngine:
    """Represents a connection to a Docker engine. `info` is the engine's description of itself."""

    def __init__(self, url: str, api: Any, info: Mapping[str, Any]) -> None:
        self.url = url
        self.info = info
        self._api = api

    @property
    def api_version(self) -> str:
        """Returns the newest API version that the engine and the SDK both speak."""
        return str(self._api.api_version)

    def image(self, reference: str) -> str | None:
        """Return the id of an image; None if the engine has no such image."""
        try:
            return str(_call(f"look at image {reference}", self._api.inspect_image, reference)["Id"])
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    def image_bytes(self, reference: str) -> int:
        """Return the size of an image that the engine has, with all layers, unpacked."""
        return int(_call(f"look at image {reference}", self._api.inspect_image, reference)["Size"])

    def images(self, label: str) -> list[dict[str, Any]]:
        """Return the images with a label ("name" or "name=value"), as the engine lists them."""
        return list(_call("list images", self._api.images, filters={"label": [label]}))

    def pull(self, reference: str) -> bool:
        """Pull an image. Return whether a registry delivered all of it."""
        repository, _, tag = reference.rpartition(":")
        try:
            _call(f"pull {reference}", self._api.pull, repository, tag=tag)
        except EngineError:
            return False
        return self.image(reference) is not None  # the engine calls a pull that breaks off a success

    def build(self, tag: str, context: IO[bytes], base: str, labels: Mapping[str, str]) -> Iterator[str]:
        """Build an image, without network, from a tar archive with a Dockerfile, whose ARG BASE is `base`.

        Yield the lines that the build prints.
        """
        arguments = {"fileobj": context, "custom_context": True, "tag": tag, "labels": dict(labels), "decode": True}
        options = {"rm": True, "forcerm": True, "network_mode": "none", "timeout": LONG_S}
        said: deque[str] = deque(maxlen=5)
        with _EngineErrorTranslation(f"build image {tag}"):
            for line in self._api.build(**arguments, **options, buildargs={"BASE": base}):
                if "error" in line:
                    last = "\n".join(each for each in said if each)
                    raise EngineError(_advised(f"image {tag} could not be built: {line['error']}\n{last}"))
                said.append(str(line.get("stream", "")).rstrip())
                yield said[-1]

    def import_image(self, tag: str, tar: IO[bytes], changes: Sequence[str]) -> None:
        """Make an image from a tar archive of its files. changes: lines of a Dockerfile, such as LABEL."""
        repository, _, version = tag.rpartition(":")
        _call(
            f"import image {tag}",
            self._api.import_image_from_data,
            tar,
            repository=repository,
            tag=version,
            changes=list(changes),
        )
        if self.image(tag) is None:
            raise EngineError(_advised(f"the engine imported no image {tag}: no space left on device?"))

    def tag(self, image: str, reference: str) -> None:
        """Give an image one more name."""
        repository, _, version = reference.rpartition(":")
        _call(f"name image {reference}", self._api.tag, image, repository, version, force=True)

    def forget_image(self, image: str) -> bool:
        """Remove an image. Return False if that is impossible, because containers or other images were made from it."""
        try:
            _call(f"remove image {image}", self._api.remove_image, image, force=True)
        except EngineError as error:
            if error.status not in (404, 409):
                raise
            return False
        return True

    def output_of(self, image: str, command: Sequence[str], labels: Mapping[str, str]) -> str:
        """Run a command in a new container without network, and return its output. Raise EngineError if it does not
        exit with 0.
        """
        what = f"run {command[0]} in image {image}"
        config = self._api.create_host_config(network_mode="none", cap_drop=["ALL"])
        made = _call(what, self._api.create_container, image, list(command), labels=dict(labels), host_config=config)
        try:
            self.start(made["Id"])
            code = int(_call(what, self._api.wait, made["Id"], timeout=CALL_S)["StatusCode"])
            said = _call(what, self._api.logs, made["Id"]).decode(errors="replace").strip()
        finally:
            self.remove(made["Id"])
        if code:
            raise EngineError(_advised(f"cannot {what}: it ended with {code}: {said[-500:]}"))
        return str(said)

    def make_network(self, name: str, subnet: str, labels: Mapping[str, str]) -> str:
        """Make a bridge network that leads to this machine and nowhere else, and return its id."""
        from docker.types import IPAMConfig, IPAMPool

        return str(
            _call(
                f"make network {name} ({subnet})",
                self._api.create_network,
                name,
                driver="bridge",
                internal=True,
                ipam=IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)]),
                labels=dict(labels),
                check_duplicate=True,
            )["Id"]
        )

    def networks(self, label: str | None = None) -> list[dict[str, Any]]:
        """Return the networks of the engine, or those with a label, as the engine lists them."""
        filters = {"label": [label]} if label else {}
        return list(_call("list networks", self._api.networks, filters=filters))

    def remove_network(self, network: str) -> None:
        """Remove a network; a network that does not exist is no error."""
        _unless_gone(f"remove network {network[:12]}", self._api.remove_network, network)

    def make_volume(self, name: str, size_bytes: int, labels: Mapping[str, str]) -> None:
        """Make a volume of a limited size in memory, to which every user may write. The volume loses its data once no
        running container mounts it.
        """
        options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size_bytes},mode=0777"}
        _call(f"make volume {name}", self._api.create_volume, name, "local", options, dict(labels))

    def volumes(self, label: str) -> list[dict[str, Any]]:
        """Return the volumes with a label, as the engine lists them."""
        return list(_call("list volumes", self._api.volumes, filters={"label": [label]})["Volumes"] or ())

    def remove_volume(self, volume: str) -> None:
        """Remove a volume; a volume that does not exist is no error."""
        _unless_gone(f"remove volume {volume}", self._api.remove_volume, volume)

    def copy_out(self, container: str, path: str, target: Path) -> None:
        """Copy the files below a path of a running container into a folder of this machine, in a folder named as the
        path's last part.
        """
        what = f"copy {path} out of container {container[:12]}"
        with tempfile.TemporaryFile() as spool, _EngineErrorTranslation(what):
            pieces, _ = self._api.get_archive(container, path)
            for piece in pieces:
                spool.write(piece)
            spool.seek(0)
            with tarfile.open(fileobj=spool) as tar:
                unpack(tar, target)

    def create(self, spec: ContainerSpec) -> str:
        """Make a container, without starting it, and return its id."""
        api = self._api
        binds = [f"{m.source}:{m.target}:{'ro' if m.read_only else 'rw'}" for m in spec.mounts]
        endpoint = api.create_endpoint_config(ipv4_address=spec.address)
        config = api.create_host_config(
            binds=binds,
            network_mode=spec.network,
            cap_drop=["ALL"],
            cap_add=list(spec.capabilities),
            security_opt=["no-new-privileges"],
            privileged=False,
            read_only=True,
            tmpfs={"/tmp": "size=16m"},
            mem_limit=spec.memory_bytes,
            memswap_limit=spec.memory_bytes,
            # Not nano_cpus: the engine refuses to change the quota of a container that was made with it.
            cpu_period=CPU_PERIOD_US,
            cpu_quota=int(spec.cpus * CPU_PERIOD_US),
            pids_limit=256,
            # The kernel ignores a SIGKILL that process 1 sends to itself, so a broker must not be process 1.
            init=True,
            restart_policy={"Name": "no"},
        )
        made = _call(
            f"make container {spec.name}",
            api.create_container,
            spec.image,
            list(spec.command),
            name=spec.name,
            hostname=host_name(spec.name),
            user=spec.user,
            labels=dict(spec.labels),
            host_config=config,
            networking_config=api.create_networking_config({spec.network: endpoint}),
        )
        return str(made["Id"])

    def containers(self, label: str) -> list[dict[str, Any]]:
        """Return all containers with a label, also those that have exited, as the engine lists them."""
        return list(_call("list containers", self._api.containers, all=True, filters={"label": [label]}))

    def start(self, container: str) -> None:
        """Start a container."""
        _call(f"start container {container[:12]}", self._api.start, container)

    def kill(self, container: str, signal: str = "SIGKILL") -> None:
        """Send a signal to the first process of a container."""
        _call(f"send {signal} to container {container[:12]}", self._api.kill, container, signal)

    def pause(self, container: str) -> None:
        """Freeze all processes of a container."""
        _call(f"pause container {container[:12]}", self._api.pause, container)

    def unpause(self, container: str) -> None:
        """Let the processes of a paused container continue."""
        _call(f"resume container {container[:12]}", self._api.unpause, container)

    def set_cpus(self, container: str, cpus: float) -> None:
        """Limit the CPUs that a container may keep busy from now on.

        A share below one is given in the shortest slices that the kernel allows, of a millisecond. With longer slices a
        process that works in short bursts would never use up its quota, and would not be slowed down at all.
        """
        period_us = CPU_PERIOD_US if cpus >= 1 else min(int(LEAST_QUOTA_US / cpus), CPU_PERIOD_US)
        limits = {"cpu_period": period_us, "cpu_quota": max(int(cpus * period_us), LEAST_QUOTA_US)}
        _call(f"limit container {container[:12]}", self._api.update_container, container, **limits)

    def run_in(self, container: str, command: Sequence[str]) -> str:
        """Run a command as root in a running container and return its output. Raise EngineError if it does not exit
        with 0.
        """
        what = f"run {command[0]} in container {container[:12]}"
        made = _call(what, self._api.exec_create, container, list(command), user="0")["Id"]
        said = str(_call(what, self._api.exec_start, made).decode(errors="replace"))
        code = _call(what, self._api.exec_inspect, made)["ExitCode"]
        if code:
            raise EngineError(f"cannot {what}: {' '.join(command)} ended with {code}: {said.strip()}")
        return said

    def cpu(self, container: str) -> tuple[float, int]:
        """Return the CPU seconds that a running container has used since its start, and the number of periods in which
        its quota ran out.
        """
        said = _call(f"measure container {container[:12]}", self._api.stats, container, stream=False, one_shot=True)
        stats = said["cpu_stats"]
        return stats["cpu_usage"]["total_usage"] / 1e9, int(stats["throttling_data"]["throttled_periods"])

    def state(self, container: str) -> dict[str, Any]:
        """Return the engine's description of a container's state: Status ("running", "paused", "exited"), Pid,
        ExitCode, OOMKilled, FinishedAt.
        """
        return dict(_call(f"look at container {container[:12]}", self._api.inspect_container, container)["State"])

    def status(self, container: str) -> str:
        """Return the status of a container, "gone" if there is no such container."""
        try:
            return str(self.state(container)["Status"])
        except EngineError as error:
            if error.status == 404:
                return "gone"
            raise

    def last_words(self, container: str, lines: int) -> str:
        """Return the last lines that a container printed."""
        said = _call(f"read what container {container[:12]} printed", self._api.logs, container, tail=lines)
        return str(said.decode(errors="replace")).strip()

    def image_of(self, container: str) -> str:
        """Return the id of the image from which a container was made."""
        return str(_call(f"look at container {container[:12]}", self._api.inspect_container, container)["Image"])

    def remove(self, container: str) -> None:
        """Kill and remove a container; a container that does not exist is no error."""
        _unless_gone(f"remove container {container[:12]}", self._api.remove_container, container, force=True, v=True)

    def events(self, label: str) -> Any:
        """Return the events of containers with a label from now on, as an iterator with `close`. The iterator waits
        without limit.
        """
        filters = {"label": [label], "type": ["container"]}
        return _call("listen to the engine", self._api.events, filters=filters, decode=True)

    def second(self) -> DockerEngine:
        """Return the same engine over new connections."""
        return DockerEngine(self.url, _client(self.url), self.info)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()


def host_name(container: str) -> str:
    """Return the host name of a container: the container's name, or as much of its end as the kernel allows. The end
    differs between the containers of one run.
    """
    return container[-HOST_NAME_LETTERS:].lstrip("-._")


def find_engine() -> DockerEngine:
    """Return the engine of this machine. Raise PreconditionError if none answers or it is not suitable; the message
    says how to get one.
    """
    engine = reach_engine()
    check(engine.info, engine.api_version)
    return engine


def reach_engine(url: str = "") -> DockerEngine:
    """Return the engine of this machine, or at `url`, suitable or not. Raise PreconditionError if none answers."""
    url = url or os.environ.get("DOCKER_HOST") or f"unix://{SOCKET}"
    if not url.startswith("unix://"):
        raise PreconditionError(
            f"DOCKER_HOST is {url}: runs in containers need an engine of this machine (unix://...), "
            "whose networks and folders the harness can reach"
        )
    path = url.removeprefix("unix://")
    if not os.path.exists(path):
        raise PreconditionError(f"no Docker engine: there is no {path}; {INSTALL}")
    if not os.access(path, os.R_OK | os.W_OK):
        raise PreconditionError(
            f"no right to use the Docker engine at {path}: be root, or a member of the group that owns it"
        )
    try:
        api = _client(url)
        return DockerEngine(url, api, _call("ask the engine about itself", api.info))
    except EngineError as error:
        raise PreconditionError(f"no Docker engine answers at {path}: {INSTALL}\n{error}") from error


def check(info: Mapping[str, Any], api_version: str) -> None:
    """Raise PreconditionError if the engine is not suitable, according to its description of itself."""
    version = info.get("ServerVersion", "?")
    major, _, minor = api_version.partition(".")
    if (int(major), int(minor)) < MIN_API:
        raise PreconditionError(f"Docker {version} is too old (API {api_version}): 20.10 or newer is needed")
    if info.get("OSType", "linux") != "linux" or "Docker Desktop" in str(info.get("OperatingSystem")):
        raise PreconditionError(
            "this Docker engine runs in a virtual machine: its networks cannot be reached from here"
        )
    if any("rootless" in str(option) for option in info.get("SecurityOptions") or ()):
        raise PreconditionError("this Docker engine is rootless: its networks cannot be reached from here")
    missing = [name for name in ("MemoryLimit", "CpuCfsQuota") if not info.get(name, True)]
    if missing:
        raise PreconditionError(
            f"this Docker engine cannot set limits ({', '.join(missing)}): its kernel lacks cgroups for it"
        )
    root = str(info.get("DockerRootDir", ""))
    if os.path.isdir(root) and (free := shutil.disk_usage(root).free) < MIN_FREE_BYTES:
        raise PreconditionError(
            f"the Docker engine is out of disk: {free >> 20} MiB are free at {root}, {MIN_FREE_BYTES >> 20} are wanted;"
            " `docker system df` shows what takes it"
        )


def _client(url: str) -> Any:
    if lacks := missing("run"):
        raise PreconditionError(lacks[0])
    from docker import APIClient

    return _call("reach the engine", APIClient, base_url=url, version="auto", timeout=CALL_S)


class _EngineErrorTranslation:
    """Translates exceptions of the SDK in its block into EngineError: "cannot `what`: reason; what to do"."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, HarnessError):
            return
        from docker.errors import APIError, DockerException
        from requests.exceptions import RequestException

        if isinstance(error, APIError):
            said = error.explanation or str(error)
            raise EngineError(_advised(f"cannot {self._what}: {said}"), error.status_code or 0) from error
        if isinstance(error, (DockerException, RequestException, OSError)):
            raise EngineError(f"cannot {self._what}: the engine does not answer: {error}") from error


def _call(what: str, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    with _EngineErrorTranslation(what):
        return function(*arguments, **options)


def _unless_gone(what: str, function: Callable[..., object], *arguments: Any, **options: Any) -> None:
    try:
        _call(what, function, *arguments, **options)
    except EngineError as error:
        if error.status != 404:
            raise


def _advised(message: str) -> str:
    """Return a message with advice about its cause, if the cause is known."""
    advice_found = next((advice for sign, advice in ADVICE if sign in message.lower()), None)
    return f"{message}; {advice_found}" if advice_found else message
