"""The import package `squall`. `squall.fixture` and `squall.spark` are its interface; all else below it is private, and
changes without notice.

A checkout has the folders of `squall.broker`, `squall.chaos` and so on at its root. There cannot be a folder `squall/`,
because the launcher has that name. So this module sets `__path__` to its own folder, where they are. In a wheel, and in
images, it is `squall/__init__.py` with the folders beside it, and the same line is right. See ARCHITECTURE.md, "One
import package".
"""

# Rejected: a package in `.venv` that names the checkout (a copy of the checkout would import the original); a link
# `squall` to the checkout in site-packages (modules get paths below `.venv`, and the link leads in a circle); hatch's
# editable install (it refuses paths that change a prefix).

import os

__path__ = [os.path.dirname(os.path.realpath(__file__))]
