"""Makes the container images: a base with Python, a broker, Toxiproxy, and the frame relay, which parses Kafka
requests.

Each image is named by a digest of its content, so an image that exists is the right one, and an edit of the broker
makes a new image of the upper layer only. Builds have no network: wheels are fetched by pip on this machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import os
import platform
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import squall
from squall.chaos import __version__
from squall.chaos.errors import PreconditionError
from squall.chaos.toolchain.base_image import base_image
from squall.chaos.toolchain.cache import Say, cache_folder, installed, run
from squall.chaos.toolchain.engine import DockerEngine
from squall.chaos.toolchain.places import PACKAGES, ROOT, commit, shared
from squall.chaos.toolchain.sources import package_in, second_version
from squall.chaos.toolchain.toxiproxy import toxiproxy_server

COMPOSE = shared("compose")
LABEL = "squall.image"
"""Names the label of all our images; its value says which image it is."""
RELAY = (
    *("__init__.py", "runtimes/__init__.py", "runtimes/contract.py"),
    *("runtimes/wire/__init__.py", "runtimes/wire/conversation.py", "runtimes/wire/frames.py"),
    *("runtimes/real/__init__.py", "runtimes/real/frame_relay.py", "runtimes/real/relay_loop.py"),
)
"""Lists the modules of the harness that the relay's image contains."""
STANDALONE, HARNESS = "squall/broker:latest", "squall/squall:latest"
IN_HARNESS = (
    *("broker", "chaos", "checkers", "reports", "spark_analysis", "workloads"),
    *("fixture.py", "spark.py"),
)
"""Lists the packages and modules in the harness's image, the same as in a wheel (pyproject.toml)."""
FORMER = b'import runpy\n\nrunpy.run_module("broker", run_name="__main__", alter_sys=True)\n'
"""Is the source of a module `squall.broker` that runs the package `broker`. Images of old checkouts get this module,
because their broker is a package `broker` outside of `squall`.
"""
KEPT_S = 24 * 3600
"""Gives the seconds for which images of older sources are kept, because another checkout may be about to start them."""
SAY_EACH_S = 5.0
PINNED = ("broker/requirements.txt", "broker/libfaketime.txt")
"""Lists the requirements files whose wheels a broker's image contains."""
PINNED_OF_HARNESS = ("harness/requirements.txt",)
ASK_PYTHON = "import platform, sys; print('%d.%d' % sys.version_info[:2], platform.machine(), platform.libc_ver()[0])"


@dataclass(frozen=True, slots=True)
class ImageNames:
    """Holds the names of the images from which a cluster in containers is started: broker, Toxiproxy and frame relay.
    """

    broker: str
    toxiproxy: str
    relay: str


def ensure_images(engine: DockerEngine, say: Say) -> ImageNames:
    """Make the images of this checkout that the engine does not have, and return all names. `say` gets progress
    messages.

    The first call on a machine takes minutes; the first call after an edit of the broker's code takes seconds. Raise
    PreconditionError if something is missing, and EngineError if the engine fails.
    """
    with _one_at_a_time():
        base, base_id = base_image(engine, say)
        broker = _broker(engine, base, base_id, PACKAGES, say)
        server = toxiproxy_server(say)
        files = {"Dockerfile": _read(COMPOSE / "toxiproxy/Dockerfile"), "toxiproxy-server": server.read_bytes()}
        toxiproxy = _named("toxiproxy", (base_id, *_texts(files)))
        if engine.image(toxiproxy) is None:
            _build(engine, toxiproxy, base, files, say)
        relay = _named("relay", (broker, *_texts(_relay_files())))
        if engine.image(relay) is None:
            _build(engine, relay, broker, _relay_files(), say)
        _forget_old(engine, {broker, toxiproxy, relay})
    return ImageNames(broker, toxiproxy, relay)


def standalone_image(engine: DockerEngine, images: ImageNames, say: Say) -> str:
    """Make the image with which users start a single broker by hand, unless the engine has it. Return the image's name,
    squall/broker:latest.
    """
    files = {name: _read(COMPOSE / "standalone" / name) for name in ("Dockerfile", "start.py", "healthy.py")}
    with _one_at_a_time():
        name = _named("standalone", (images.broker, *_texts(files)))
        if engine.image(name) is None:
            _build(engine, name, images.broker, files, say)
        return _published(engine, name, STANDALONE)


def harness_image(engine: DockerEngine, say: Say) -> str:
    """Make the image of the harness, unless the engine has it, and return its name, `HARNESS`."""
    with _one_at_a_time():
        base, base_id = base_image(engine, say)
        files = {**_harness_files(), "toxiproxy-server": toxiproxy_server(say).read_bytes()}
        name = _named("harness", (base_id, *_texts(files)))
        if engine.image(name) is None:
            _build(engine, name, base, {**files, **_wheels(engine, base, PINNED_OF_HARNESS, say)}, say)
        return _published(engine, name, HARNESS)


def _published(engine: DockerEngine, image: str, latest: str) -> str:
    """Give an image two names that people type: `latest`, such as squall/broker:latest, and the same name with Squall's
    version in place of "latest". Return `latest`.
    """
    engine.tag(image, latest)
    engine.tag(image, latest.replace("latest", __version__))
    return latest


def second_image(engine: DockerEngine, given: str, images: ImageNames, say: Say, *, faulted: bool = False) -> str:
    """Return the id of the broker image that --upgrade-to names: in the engine, in a registry, or made from a checkout.

    Raise PreconditionError if there is no such image, or if it is the first version's image. faulted: the plan injects
    file faults. Then a checkout's broker must count its file faults in a file of the same layout as the first version's
    broker. An image that exists already is not checked for that.
    """
    if Path(given).is_dir():
        with _one_at_a_time():
            name = _broker(engine, *base_image(engine, say), second_version(given, PACKAGES, faulted=faulted), say)
    else:
        name = given if ":" in given.rpartition("/")[2] else f"{given}:latest"
        if engine.image(name) is None and not engine.pull(name):
            raise PreconditionError(f"--upgrade-to {given}: no folder, no image of the engine, and it cannot be pulled")
    found = engine.image(name)
    assert found is not None, "it was just found, pulled or made"
    if found == engine.image(images.broker):
        raise PreconditionError(
            f"--upgrade-to {given}: it is the image that brokers are started from: name another one"
        )
    return found


def name_latest(engine: DockerEngine, images: ImageNames) -> ImageNames:
    """Give the images names that do not change with their content, such as squall-broker:latest, so that a compose file
    can contain them. Return these names.
    """
    latest = [f"{image.partition(':')[0]}:latest" for image in (images.broker, images.toxiproxy, images.relay)]
    for image, name in zip((images.broker, images.toxiproxy, images.relay), latest, strict=True):
        engine.tag(image, name)
    return ImageNames(*latest)


def _broker(engine: DockerEngine, base: str, base_id: str, root: Path, say: Say) -> str:
    """Make the image of a checkout's broker, unless the engine has it, and return its name."""
    files = _broker_files(root)
    name = _named("broker", (base_id, *_texts(files)))
    if engine.image(name) is None:
        _build(engine, name, base, {**files, **_wheels(engine, base, PINNED, say)}, say)
    return name


def _broker_files(root: Path) -> dict[str, bytes]:
    """Return the files from which a broker's image is built, by path in the build context. Only the broker's code is
    from the checkout `root`; the Dockerfile and the requirements are always this checkout's.

    The wheels are left out, because the requirements contain their hashes.
    """
    files = {Path(name).name: _read(COMPOSE / name) for name in ("broker/Dockerfile", *PINNED)}
    module, package = package_in(root)
    into = f"app/{module.replace('.', '/')}"
    for path in sorted(package.rglob("*.py")):
        if "codegen" not in path.parts:
            files[f"{into}/{path.relative_to(package).as_posix()}"] = path.read_bytes()
    files["app/squall/__init__.py"] = _read(Path(str(squall.__file__)))
    return files | ({"app/squall/broker.py": FORMER} if module == "broker" else {})


def _relay_files() -> dict[str, bytes]:
    """Return the files of the build's context by path: the relay, and the modules of the harness that it imports."""
    files = {"Dockerfile": _read(COMPOSE / "relay/Dockerfile")}
    return files | {f"app/squall/chaos/{path}": _read(ROOT / "chaos" / path) for path in RELAY}


def _harness_files() -> dict[str, bytes]:
    """Return the files from which the harness's image is built, by path in the build context, without Toxiproxy and the
    wheels. The folder `app` gets the same files as a wheel of Squall.
    """
    files = {name: _read(COMPOSE / "harness" / name) for name in ("Dockerfile", "requirements.txt", "squall")}
    below = {name: ROOT / name for name in IN_HARNESS}
    below |= {f"chaos/shared/{name}": shared(name) for name in ("compose", "plans")}
    for into, place in below.items():
        for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"app/squall/{(Path(into) / path.relative_to(place)).as_posix()}"] = path.read_bytes()
    files["app/squall/__init__.py"] = _read(Path(str(squall.__file__)))
    return files | {"app/squall/chaos/shared/commit": f"{commit()}\n".encode()}


def _wheels(engine: DockerEngine, base: str, pinned: Iterable[str], say: Say) -> dict[str, bytes]:
    """Return the wheels that requirements files pin, by path in the build context. The wheels fit the base image's
    Python; pip fetches them once into the cache folder. Raise PreconditionError if the base image is not suitable.

    pinned: the paths of the requirements files in the folder `COMPOSE`.
    """
    said = engine.output_of(base, ["python3", "-c", ASK_PYTHON], {LABEL: "question"}).split()
    if len(said) != 3 or said[2] != "glibc":
        raise PreconditionError(
            f"base image {base} will not do: Python 3.11 or newer with glibc is needed, it has {said}"
        )
    version, machine = said[0], said[1]
    if machine != platform.machine():
        raise PreconditionError(f"base image {base} is for {machine}, this machine is {platform.machine()}")
    files = [COMPOSE / name for name in pinned]
    digest = _digest((*(each.read_bytes() for each in files), version.encode(), machine.encode()))

    def fetch(folder: Path) -> None:
        say(f"fetching wheels for Python {version}")
        platforms = [f"--platform=manylinux{glibc}_{machine}" for glibc in ("2014", "_2_17", "_2_28", "_2_34")]
        options = ["--only-binary=:all:", "--require-hashes", "--no-deps", f"--python-version={version}", *platforms]
        for each in files:
            run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
                + [*options, "--dest", str(folder), "--requirement", str(each)],
                what="an image's wheels could not be fetched",
            )

    folder = installed(f"wheelhouse-{digest}", fetch)
    return {f"wheelhouse/{path.name}": path.read_bytes() for path in sorted(folder.iterdir())}


def _build(engine: DockerEngine, tag: str, base: str, files: Mapping[str, bytes], say: Say) -> None:
    say(f"building image {tag}")
    began = time.monotonic()
    for line in sparse(engine.build(tag, _tar(files), base, {LABEL: tag.partition(":")[0].partition("-")[2]})):
        say(f"  {line}")
    say(f"built image {tag} in {time.monotonic() - began:.1f} s")


def sparse(lines: Iterable[str]) -> Iterator[str]:
    """Yield a line every SAY_EACH_S seconds, to show progress, and drop the others."""
    last = time.monotonic()
    for line in lines:
        if line.strip() and time.monotonic() - last > SAY_EACH_S:
            last = time.monotonic()
            yield line.strip()


def _tar(files: Mapping[str, bytes]) -> io.BytesIO:
    """Return the files as a tar archive that is equal, byte by byte, for equal files, so that the engine reuses its
    layer.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o755 if data.startswith(b"\x7fELF") else 0o644
            tar.addfile(entry, io.BytesIO(data))
    out.seek(0)
    return out


def _named(what: str, parts: Iterable[str | bytes]) -> str:
    return f"squall-{what}:{_digest(parts)}"


def _texts(files: Mapping[str, bytes]) -> Iterator[str | bytes]:
    for name, data in sorted(files.items()):
        yield name
        yield data


def _digest(parts: Iterable[str | bytes]) -> str:
    """Return 16 hex digits over all parts in order. The parts' lengths count, so moving a byte to the next part changes
    it.
    """
    found = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:16]


def _forget_old(engine: DockerEngine, wanted: set[str]) -> None:
    for image in engine.images(LABEL):
        tags = image.get("RepoTags") or []
        if image["Created"] < time.time() - KEPT_S and not any(tag in wanted or _is_kept(tag) for tag in tags):
            engine.forget_image(image["Id"])


def _is_kept(tag: str) -> bool:
    """Return whether images with this name are never removed as old: base images, and names that people or compose
    files use, such as squall/broker:latest.
    """
    return tag.startswith(("squall-base:", "squall/")) or tag.endswith(":latest")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PreconditionError(f"the recipes of images are not where they should be: {error}") from error


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Lock the making of images, so that two runs that start together build each image once."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".images-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
