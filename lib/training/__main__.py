"""The commands `python -m lib.training TASK RULE`, also under torchrun, and `... study NAME`."""

import sys

from lib.training import commands, study_command

arguments = sys.argv[1:]
studying = arguments[:1] == ["study"]
raise SystemExit(study_command.main(arguments[1:]) if studying else commands.main(arguments))
