"""What every figure has: claims, a ledger, a record, and the style of its picture.

The modules take measured numbers and return a claim with its verdict, a record saved
with the picture, and a ledger. Open `claims` first, then `record`, with which a
notebook starts and saves.
"""

import lib  # noqa: F401 - first of all: lib answers Ctrl-C while our commands still import
