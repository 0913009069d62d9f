"""Squall's one import package. `squall.fixture` and `squall.spark` are its interface; all else below it is private, and
changes without notice.

A checkout has the folders of `squall.broker`, `squall.chaos` and so on at its root, where a folder `squall/` cannot be:
the launcher has the name. So this module says itself where they are. In a wheel, and in images, it is
`squall/__init__.py`, and they are beside it: the same line is right there. See ARCHITECTURE.md, "One import package".
"""

import os

__path__ = [os.path.dirname(os.path.realpath(__file__))]
