"""Searches for the smallest plan that still fails in the same way. It first leaves parts out, then resets settings,
then makes numbers plainer.
"""
