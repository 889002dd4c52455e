"""Save the state of a run in a file from which an interrupted run resumes."""

import glob
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lib import files

SEAL = 16  # hex digits of the SHA-256 with which a checkpoint begins


@dataclass(frozen=True)
class Checkpoint:
    """A file that holds the state of one run.

    A seal, a hash of what follows, begins the file, so that a damaged one is never
    read. The state carries a key, so that no other run goes on from it.

    Parameters
    ----------
    path : Path
        The file.
    key : str
        What the state must carry to be of this run.

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

    def exists(self) -> bool:
        """Whether the run has been saved.

        Returns
        -------
        bool
            Whether the file is there.
        """
        return self.path.exists()

    def write(self, state: dict[str, Any]) -> None:
        """Write a state, in the place of the one before.

        Parameters
        ----------
        state : dict
            Numbers, words, lists, dicts and tensors.

        Raises
        ------
        OSError
            If the file cannot be written; the one before stays.
        """
        self._sweep()
        stream = io.BytesIO()
        torch.save({"key": self.key, **state}, stream)
        content = stream.getvalue()
        files.write(self.path, files.sha256(content).encode() + content)

    def remove(self) -> None:
        """Remove the file, and what a run left that was killed while it wrote."""
        self._sweep()
        self.path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what a run left that was killed while it wrote."""
        for remains in self.path.parent.glob(f".{glob.escape(self.path.name)}.*"):
            remains.unlink()

    def read(self) -> dict[str, Any]:
        """Read the state.

        Returns
        -------
        dict
            The state, with its tensors on the CPU.

        Raises
        ------
        ValueError
            If the file is damaged, holds no checkpoint, or that of another run.
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
        # which error it is depends on the content of the file
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
