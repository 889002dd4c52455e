"""`python -m lib.batch` as the command attention-dynamics, which knows whose lib it asks."""


def main() -> int:
    """Run the command; a worker that starts as this script does imports nothing by it."""
    from lib.batch.run import main as batch

    return batch()
