"""Verdicts and evidence into pages that people read."""
