"""The durability report: a night of runs, and the nights before it, on a page and on the terminal."""
