"""The parts that every figure has: claims, a ledger, a record, and a common style.

The modules take measured numbers. They return claims (statements with a measured value,
a bound and a verdict), a record that is saved with the picture, and a ledger of all
claims of a paper. Open `claims` first, and then `record`, with which a notebook starts
its run and saves its figures.
"""

import lib  # noqa: F401 - first of all: lib answers Ctrl-C while our commands still import
