"""Changes a broker's wall clock by libfaketime, without help from the broker. Usually the broker itself adds an offset,
which it reads from a file; this second method can show whether the broker does that right.

The dynamic loader loads libfaketime first, and libfaketime answers in place of the C library, so the broker does not
notice. Libfaketime reads an offset from a file at each call (8.8 us instead of 0.12). Monotonic time stays true
(FAKETIME_DONT_FAKE_MONOTONIC, without which waits hang), and so do the times of files.

A clock cannot run at another rate here: libfaketime counts a rate from the start of the OS process, not from the moment
of the order.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from squall.broker.overriding import override
from squall.chaos.errors import PreconditionError
from squall.chaos.runtimes.contract import ClockReport, Evidence
from squall.chaos.runtimes.real.brokers import Brokers
from squall.chaos.runtimes.real.clocks import Clocks, FileClocks
from squall.chaos.runtimes.real.node_folder import NodeFolder
from squall.chaos.toolchain.engine import DockerEngine, EngineError
from squall.chaos.toolchain.images import LABEL

LIBRARY = "/opt/squall/libfaketime.so.1"
FILE = "faketime"
"""Names the file in the node's folder from which libfaketime reads the clock's offset."""
REPORTING_MS = 0.001
"""Is the offset (0.001 ms) that the broker's own clock file gets while libfaketime changes the broker's time. It is too
small to matter, but with an offset of 0 the broker would not report its time in its trace.
"""
TRUE = "+0 x1.0"
TRIED = "-86400 x1.0"
OFF_BY_S = (86_000, 86_800)


def before_program(file: str) -> tuple[str, ...]:
    """Return the arguments to put before a command, so that the command reads its time from `file`."""
    settings = {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": file,
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    return ("env", *(f"{name}={value}" for name, value in settings.items()))


def check_image(engine: DockerEngine, image: str) -> None:
    """Raise if libfaketime does not work in an image: it is missing, or built for another kind of processor."""
    show = ("env", f"LD_PRELOAD={LIBRARY}", f"FAKETIME={TRIED}", "python", "-c", "import time; print(time.time())")
    try:
        off_by_s = time.time() - float(engine.output_of(image, show, {LABEL: "question"}).split()[-1])
    except (EngineError, ValueError, IndexError) as trouble:
        raise PreconditionError(
            f"clocks cannot be bent by libfaketime in image {image}: {trouble}; how = 'offset'"
        ) from trouble
    low, high = OFF_BY_S
    if not low < off_by_s < high:
        raise PreconditionError(f"image {image} has no libfaketime that works (see {LIBRARY} in it): how = 'offset'")


class FaketimeFile:
    """Writes the file from which one node's libfaketime reads the clock's offset, and remembers when each offset was
    ordered.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / FILE
        self._ordered: list[tuple[int, float]] = []

    def order(self, offset_ms: float) -> None:
        """Set the offset of the node's wall clock, in ms, from now on. A reader never sees a half-written file."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{offset_ms / 1000:+.6f} x1.0\n" if offset_ms else f"{TRUE}\n")
        fresh.replace(self._file)
        self._ordered.append((time.monotonic_ns(), offset_ms))

    def with_ordered_offsets(self, reports: Sequence[ClockReport]) -> list[ClockReport]:
        """Return the node's clock reports with libfaketime's offsets. The broker does not notice libfaketime, so the
        `set_ms` of its reports is REPORTING_MS, the offset of the broker's own clock file. This function replaces
        REPORTING_MS by the offset that libfaketime had at the time of the report.
        """
        return [replace(each, set_ms=self._at(each.t_ns)) if each.set_ms == REPORTING_MS else each for each in reports]

    def _at(self, t_ns: int) -> float:
        return next((offset for since, offset in reversed(self._ordered) if since <= t_ns), 0.0)


class FakedClocks(Clocks):
    """Changes the clocks of brokers that run behind libfaketime: by libfaketime (`fake`), or by the broker's own clock
    file (`bend`).
    """

    def __init__(self, brokers: Brokers) -> None:
        self._own, self._brokers = FileClocks(brokers), brokers
        self._faked: dict[int, FaketimeFile] = {}

    def begin(self, files: NodeFolder, node: int) -> None:
        """Cancel the offset that an earlier run in this folder ordered. Called before a node's first start."""
        self._faked[node] = FaketimeFile(files.path)
        self._faked[node].order(0)

    @override
    def bend(self, node: int, offset_ms: float, rate: float) -> Evidence:
        return self._own.bend(node, offset_ms, rate)

    @override
    def fake(self, node: int, offset_ms: float) -> Evidence:
        """Change a broker's clock by libfaketime. In addition, the broker's own clock file gets the tiny offset
        REPORTING_MS, because a broker without an offset does not report its time.
        """
        asked_ns = time.monotonic_ns()
        self._faked[node].order(offset_ms)
        self._own.bend(node, REPORTING_MS if offset_ms else 0, 1.0)
        return {"offset_ms": offset_ms, "rate": 1.0, "by": "libfaketime", "asked_ns": asked_ns}

    @override
    def reports(self, node: int) -> Sequence[ClockReport]:
        return self._faked[node].with_ordered_offsets(self._own.reports(node))

    @override
    def heal(self) -> None:
        for faked in self._faked.values():
            faked.order(0)
        self._own.heal()
