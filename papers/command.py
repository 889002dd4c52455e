"""`python -m lib.batch` as the command attention-dynamics, safe from another lib."""


def main() -> int:
    """Run the command; workers begin as this script does, so the import is here."""
    from lib.batch.run import main as batch

    return batch()
