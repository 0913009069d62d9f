"""Implements a broker's `Env` with disk faults, power losses and crash points (a kill just before a chosen call): real
files, with a journal of changes that are not durable yet.

`python -m squall.broker --config FILE --faults FOLDER` starts a broker with it. Without the option, none of this
package is imported.
"""
