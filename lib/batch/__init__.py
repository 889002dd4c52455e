"""Notebooks headless: `python -m lib.batch`, also what `make figures` calls.

`plan` says what must run, `run` runs it and publishes its figures, `__main__` is the command and
compares new numbers with the committed ones.
"""
