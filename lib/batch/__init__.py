"""Notebooks headless: `python -m lib.batch`, also what `make figures` calls.

In: names of notebooks and a scale. Out: figures, records, executed copies, and what did not
reproduce. `plan` says what must run, `run` runs it and publishes its figures, `__main__` is the
command and compares new numbers with the committed ones.
"""
