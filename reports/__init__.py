"""Verdicts and evidence into pages that people read. Private, as `squall` says."""
