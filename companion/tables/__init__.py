"""Tables made from the records; `python -m companion.tables` renews them in place.

They are made from figures/index.toml, figures/beside.toml and the records. Written are
the marked tables in `FILES` of `figures`, and figures/beside.md. Open `figures` first.
"""
