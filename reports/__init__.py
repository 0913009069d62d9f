"""Turns verdicts and evidence into pages that people read. The package is private, as `squall` says."""
