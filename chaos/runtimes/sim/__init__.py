"""Simulates a cluster of many nodes in one OS process under virtual time. Every random choice is drawn from a seed."""
