"""What every figure carries: claims, ledgers, records, and the style of its picture.

In: measured numbers. Out: a claim with its verdict, a record beside the picture, a
ledger. Open `claims` first, then `record`: what a notebook starts with and saves by.
"""

import lib  # noqa: F401 - first of all: lib answers Ctrl-C while our commands still import
