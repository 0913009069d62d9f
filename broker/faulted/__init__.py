"""What is below the seam where a broker's disk and power are to be hurt: real files, and what is not durable of them.

`python -m squall.broker --config FILE --faults FOLDER` starts a broker on it; without the option nothing of it is
imported.
"""
