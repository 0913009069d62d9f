"""Drives a cluster as real applications do and writes the history. The package is private: `squall.fixture` and
`squall.spark` are Squall's public modules.
"""
