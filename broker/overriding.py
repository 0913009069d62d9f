"""Defines `override`: `typing_extensions.override` for type checkers, and nothing at run time.

So a broker needs no package for it, and a method that is called a million times has no further attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["override"]

if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method: Any) -> Any:
        """Mark a method that implements or replaces a method of a base class, whose docstring applies to it. Return the
        method.
        """
        return method
