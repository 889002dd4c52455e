"""The hub: whether it answers, what of it is at hand already, and a download with a deadline."""

import hashlib
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path

PROBE_SECONDS = 3.0  # longest wait for the hub's first answer
BYTE_SECONDS = 10.0  # longest wait for the next byte of a download
ANSWER_SECONDS = 60.0  # for which an answer, or its lack, is taken to last
PIECE = 2**16  # bytes after which a download reports
# Of each endpoint: when it was asked, and whether it answered.
_ANSWERS: dict[str, tuple[float, bool]] = {}


def reachable(timeout: float = PROBE_SECONDS) -> bool:
    """Whether the hub answers within `timeout` seconds, name lookup and connection included.

    False at once under HF_HUB_OFFLINE=1, and for a minute after a download that fell silent. A
    proxy (HTTPS_PROXY) and a mirror (HF_ENDPOINT) are used where set.
    """
    keys = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    if any(os.environ.get(key, "").upper() in {"1", "ON", "YES", "TRUE"} for key in keys):
        return False
    # A notebook asks once for each set and for the weights; a silent hub would cost it
    # the wait each time.
    endpoint = _endpoint()
    asked, answer = _ANSWERS.get(endpoint, (-ANSWER_SECONDS, False))
    if time.monotonic() - asked >= ANSWER_SECONDS:
        answer = _answers(endpoint, timeout)
        _ANSWERS[endpoint] = time.monotonic(), answer
    return answer


def _endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _answers(endpoint: str, timeout: float) -> bool:
    answers = []

    def ask():
        try:
            request = urllib.request.Request(endpoint, method="HEAD")
            with urllib.request.urlopen(request, timeout=timeout):
                answers.append(True)
        except urllib.error.HTTPError as error:
            answers.append(error.code < 500)
        except (OSError, ValueError):
            answers.append(False)

    # A socket's own timeout bounds neither the name lookup nor a server that sends
    # one byte now and then.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout)
    return bool(answers and answers[0])


def cached(repository: str, files: Iterable[str], **options) -> list[Path] | None:
    """The `files` of a repository in the hub's own cache, None unless every one is there.

    `options` are `revision` and `repo_type`.
    """
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(repository, name, **options) for name in files]
    return list(map(Path, found)) if all(isinstance(path, str) for path in found) else None


def fetch(repository: str, files: Iterable[str], **options) -> list[Path]:
    """The `files` of a repository, downloaded through the hub's cache with a progress bar.

    A slow download goes on as long as bytes come. Raises TimeoutError after `BYTE_SECONDS` without
    one, whatever the hub's client still tries, and OSError where the hub refuses or breaks off.
    """
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.utils import tqdm

    heard, paths, failure = [time.monotonic()], [], []

    class Bar(tqdm):
        def update(self, n=1):
            heard[0] = time.monotonic()
            return super().update(n)

    def work():
        try:
            for name in files:
                bar = {"endpoint": _endpoint(), "tqdm_class": Bar}
                paths.append(Path(hf_hub_download(repository, name, **bar, **options)))
                heard[0] = time.monotonic()
        except BaseException as error:  # handed on to whoever waits
            failure.append(error)

    constants.DOWNLOAD_CHUNK_SIZE = PIECE  # the client's 10 MB take a slow line minutes
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.1)
        if time.monotonic() - heard[0] > BYTE_SECONDS:
            _ANSWERS[_endpoint()] = time.monotonic(), False
            raise TimeoutError(f"no byte for {BYTE_SECONDS:g} seconds")
    if failure:
        raise failure[0]
    return paths


def check(sums: Mapping[Path, str]) -> None:
    """ValueError, with advice, for a file whose SHA-256 is not the pinned one."""
    for path, expected in sums.items():
        if sha256(path) != expected:
            raise ValueError(
                f"{path} is not the file that was pinned (SHA-256 differs): delete it and run again"
            )


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
