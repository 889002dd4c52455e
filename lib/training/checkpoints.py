"""Save the state of a run in a file, so that an interrupted run can resume."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lib import files

SEAL = 16  # hex digits of the SHA-256 with which a checkpoint begins


@dataclass(frozen=True)
class Checkpoint:
    """A file that contains the state of one run.

    The file begins with a seal, which is a hash of the rest of the file, so that a
    damaged file is never used. The state contains a key, so that no other run continues
    from this state.

    Parameters
    ----------
    path : Path or str
        The file.
    key : str
        The key that a state must contain to belong to this run.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from lib.training import Checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(Path(folder) / "run.pt", key="digits 0")
    ...     checkpoint.write({"step": 500})
    ...     checkpoint.read()["step"]
    500
    """

    path: Path
    key: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))

    def exists(self) -> bool:
        """Whether the run has been saved.

        Returns
        -------
        bool
            Whether the file is there.
        """
        return self.path.exists()

    def write(self, state: dict[str, Any]) -> None:
        """Write a state, which replaces the previous one.

        Parameters
        ----------
        state : dict
            Numbers, words, lists, dicts and tensors, by names other than "key".

        Raises
        ------
        OSError
            If the file cannot be written. The previous state is then still there.
        """
        stream = io.BytesIO()
        torch.save({"key": self.key, **state}, stream)
        content = stream.getvalue()
        files.write(self.path, files.sha256(content).encode() + content)

    def remove(self) -> None:
        """Remove the file, and what a run that was killed while writing left behind."""
        files.sweep(self.path)
        self.path.unlink(missing_ok=True)

    def read(self) -> dict[str, Any]:
        """Read the state.

        Returns
        -------
        dict
            The state, with its tensors on the CPU, and the key as its entry "key".

        Raises
        ------
        OSError
            If there is no such file, or if it cannot be read.
        ValueError
            If the file is damaged, is not a checkpoint, or belongs to another run.
        """
        content = self.path.read_bytes()
        seal = content[:SEAL]
        saved = content[SEAL:]
        if files.sha256(saved).encode() != seal:
            raise ValueError(
                f"{self.path} is damaged: remove it to start this run afresh"
            )
        try:
            state = torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True)
            key = state["key"]
        # The type of the error depends on the content of the file.
        except Exception as error:
            raise ValueError(
                f"{self.path} holds no checkpoint: remove it to start this run afresh"
            ) from error
        if key != self.key:
            raise ValueError(
                f"{self.path} is of another run or other code: remove it to start "
                "afresh"
            )
        return state
