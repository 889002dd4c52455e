"""`python -m lib.batch` as the command attention-dynamics: it knows whose lib it asks."""


def main() -> int:
    """Run the command; workers begin as this script does, so what it needs comes here."""
    from lib.batch.run import main as batch

    return batch()
