"""Studies of networks on real data as experiments with a protocol: what is fixed before, what is
run, how it is judged. Open `confirm` first; notebooks/confirmation.md has the protocol in words."""
