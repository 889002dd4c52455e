"""`python -m lib.batch` as the command attention-dynamics: it knows whose lib it asks."""


def main() -> int:
    """Run the command. What it needs is imported here: workers begin as this script does."""
    from lib.batch.run import main as batch

    return batch()
