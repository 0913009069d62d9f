"""Defines `override`: `typing_extensions.override` for type checkers, and a function without effect at run time.

So a broker needs no package for it, and methods get no attribute `__override__`, which the real decorator sets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["override"]

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method: Any) -> Any:
        """Mark a method that implements or replaces a method of a base class, and return it. The base method's
        docstring applies to it, too.
        """
        return method
