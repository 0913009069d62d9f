"""What a container cannot do yet: asked for all the same, it is refused, and not passed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from chaos.errors import Refused
from chaos.runtimes.contract import CrashOp, DiskFault, Evidence


class Beyond:
    """The rest of `chaos.runtimes.contract.Runtime`. A plan that needs it is refused when it is read."""

    async def power_loss(self, nodes: Sequence[int]) -> Evidence:
        """As `Runtime.power_loss`."""
        _refuse("power loss", f"nodes {list(nodes)}")

    async def crash_at(self, node: int, op: CrashOp, nth: int, *, within_s: float) -> Evidence:
        """As `Runtime.crash_at`."""
        _refuse("crash points", f"node {node}")

    async def fault_disk(self, name: str, node: int, fault: DiskFault) -> Evidence:
        """As `Runtime.fault_disk`."""
        _refuse("disk faults", f"node {node}")

    async def heal_disk(self, name: str, node: int) -> Evidence:
        """As `Runtime.heal_disk`."""
        _refuse("disk faults", f"node {node}")

    async def rot(self, node: int, *, path_glob: str = "*.log", bits: int = 1) -> Evidence:
        """As `Runtime.rot`."""
        _refuse("bit rot", f"node {node}")


def _refuse(what: str, where: str) -> NoReturn:
    raise Refused(f'the docker runtime has no {what} ({where}): use the simulator, runtime = "sim"')
