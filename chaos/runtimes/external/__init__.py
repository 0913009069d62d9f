"""Attaches to a cluster that is already running and not Squall's own. Squall's clients reach it through Squall's
proxies; a plan may also act on its containers.
"""
