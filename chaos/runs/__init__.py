"""One run: from a plan to a run directory that can be judged, in real worlds and in virtual time."""
