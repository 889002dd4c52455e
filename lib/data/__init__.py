"""Real data sets, found in a fixed order and checked row by row, and stand-ins for them.

In: the name of a set. Out: tensors or texts with labels, and an identity (source, revision, rows)
for the record. Open `places` first: DATA_DIR, then data/, then the hub; for a demo the stand-in.
The top-level data/ holds the files.
"""
