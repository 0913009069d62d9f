"""Shows transactions on the page: their processes, when they were sent, prepared, marked and visible, and their
stories.
"""
