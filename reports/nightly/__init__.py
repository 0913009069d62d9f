"""Makes the durability report: a night of runs, compared with the nights before, on a page and on the terminal."""
