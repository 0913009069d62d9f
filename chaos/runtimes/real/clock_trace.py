"""What a node says of its own wall clock, in its trace: the only proof that it is bent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from chaos.runtimes.contract import ClockWord
from chaos.runtimes.real.trace_tail import TraceTail


class ClockWitness:
    """Part of `chaos.runtimes.contract.Runtime`, for traces in files, by this machine's monotonic clock."""

    def trace_path(self, node: int) -> Path:
        """As `Runtime.trace_path`."""
        raise NotImplementedError

    def clock_words(self, node: int) -> Sequence[ClockWord]:
        """As `Runtime.clock_words`."""
        heard: dict[int, tuple[TraceTail, list[ClockWord]]] = self.__dict__.setdefault("_clocks_heard", {})
        if node not in heard:
            heard[node] = (TraceTail(self.trace_path(node)), [])
        tail, words = heard[node]
        # Both clocks are this machine's: what lies between them now lay between them when the line was written.
        between_ms = (time.time() - time.monotonic()) * 1000
        for event in tail.events():
            if event["e"] == "clock":
                offset_ms = event["w"] - (event["t"] * 1000 + between_ms)
                words.append(ClockWord(int(event["t"] * 1e9), offset_ms, event["offset_ms"], event["rate"]))
        return tuple(words)
