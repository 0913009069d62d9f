"""Defines what "wrong" means for a history, in plain Python. The package is private: `squall.fixture` and
`squall.spark` are Squall's public modules.
"""
