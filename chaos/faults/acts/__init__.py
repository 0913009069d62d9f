"""Acts that several kinds of faults share, and long acts. They import trio, so a kind imports them only when it is
played.
"""
