"""`python -m companion.batch` as the command attention-dynamics."""

import sys


def main() -> int:
    """Run the command; workers begin as this script does, so the import is here."""
    try:
        from companion.batch.run import main as batch
    except ModuleNotFoundError as error:
        sys.exit(
            f"There is no {error.name} here, which pages need: "
            "pip install 'attention-dynamics[notebooks]' brings it."
        )
    return batch()
