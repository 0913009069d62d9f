"""Attaches to a cluster that somebody else runs, behind Squall's own proxies; a plan may act on its containers."""
