"""The command `python -m lib.training`, also under torchrun."""

from lib.training.commands import main

raise SystemExit(main())
