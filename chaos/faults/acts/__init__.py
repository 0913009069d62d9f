"""Acts that several kinds of faults share, and long ones: imported when one is played, because they import trio."""
