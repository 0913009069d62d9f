"""A log in memory for replication tests, written as simply as possible."""

from __future__ import annotations

from squall.broker.replication import UNDEFINED


class ListLog:
    """A log as a list: each offset has (leader epoch, value). It also keeps the leader epoch cache."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []
        self.ever: set[str] = set()
        """All values that this log has ever held."""
        self.epochs: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def assign(self, epoch: int, start: int) -> None:
        self.epochs = [(e, s) for e, s in self.epochs if e < epoch and s < start] + [(epoch, start)]

    def append(self, epoch: int, value: str) -> None:
        if self.latest_epoch() != epoch:
            self.assign(epoch, len(self.entries))
        self.entries.append((epoch, value))
        self.ever.add(value)

    def truncate(self, to: int) -> None:
        del self.entries[to:]
        self.epochs = [(e, s) for e, s in self.epochs if s < to]

    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        if not self.epochs or epoch > self.epochs[-1][0]:
            return UNDEFINED, UNDEFINED
        if epoch < self.epochs[0][0]:
            return epoch, self.epochs[0][1]
        ends = [start for _, start in self.epochs[1:]] + [log_end_offset]
        return max((e, end) for (e, _), end in zip(self.epochs, ends, strict=True) if e <= epoch)
