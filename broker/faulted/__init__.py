"""Fakes the layer below the seam where a broker's disk and power are to fail: real files, and what is not durable of
them.

`python -m squall.broker --config FILE --faults FOLDER` starts a broker on it; without the option nothing of it is
imported.
"""
