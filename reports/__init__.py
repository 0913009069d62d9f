"""Turns verdicts and evidence into pages that people read. The package is private: `squall.fixture` and `squall.spark`
are Squall's public modules.
"""
