"""Finds the anomalies of `checkers` in large histories, with Spark. The package is private: `squall.spark` is the
public module for it.
"""
