"""Tables made of the records: `python -m companion.tables` renews them where they stand.

In: figures/index.toml, figures/beside.toml, records. Out: the marked tables of `FILES` of
`figures`, and figures/beside.md. Open `figures` first.
"""
