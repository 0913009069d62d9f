"""Shows transactions on the page: their clients, when they were begun, prepared, marked and visible, and the stories of
findings about them.
"""
