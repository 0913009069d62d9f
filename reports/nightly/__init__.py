"""Makes the durability report of a night: the results of one nightly session of many runs, compared with the nights
before, on a page and on the terminal.
"""
