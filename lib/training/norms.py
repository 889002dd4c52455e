"""The norms of many tensors at once, summed in float64."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import torch
from torch import Tensor

# Numbers from which on several threads sum sooner than one: starting them costs more.
MANY = 1e6


@numba.njit(fastmath={"reassoc", "contract"}, nogil=True)
def _square(values: np.ndarray) -> float:
    """Sum the squares of an array in float64."""
    total = 0.0
    for i in range(values.size):
        total += np.float64(values[i]) ** 2
    return total


def norms(tensors: list[Tensor]) -> Tensor:
    """Compute the norm of each of several tensors.

    Parameters
    ----------
    tensors : list of Tensor
        The tensors t.

    Returns
    -------
    Tensor (tensors,)
        ‖t‖ of each, in float64 except on a device that has none.

    Notes
    -----
    Squares are summed in float64. In float32 those of entries below 1e-23 vanish, and
    with them a direction to be kept.

    Examples
    --------
    >>> import torch
    >>> from lib.training.norms import norms
    >>> norms([torch.tensor([3.0, 4.0]), torch.tensor([1e-30])])
    tensor([5.0000e+00, 1.0000e-30], dtype=torch.float64)
    """
    # On a CPU torch sums wider than it reads one number at a time; a compiled loop does
    # not.
    if all(t.device.type == "cpu" and t.dtype == torch.float32 for t in tensors):
        arrays = [t.detach().numpy().ravel() for t in tensors]
        return torch.from_numpy(_squares(arrays)).sqrt()
    # Apple's devices have no float64.
    if tensors[0].device.type == "mps":
        wide = torch.float32
    else:
        wide = torch.float64
    return torch.stack(torch._foreach_norm(tensors, 2, wide))


def _squares(arrays: list[np.ndarray]) -> np.ndarray:
    """Sum the squares of each array; large sets of arrays are shared by threads."""
    squares = np.empty(len(arrays))
    threads = torch.get_num_threads()
    remaining = enumerate(arrays)
    if threads == 1 or sum(a.size for a in arrays) < MANY:
        _sum_remaining(remaining, squares)
        return squares
    with ThreadPoolExecutor(threads) as pool:
        tasks = [
            pool.submit(_sum_remaining, remaining, squares) for _ in range(threads)
        ]
        for task in tasks:
            task.result()
    return squares


def _sum_remaining(
    remaining: Iterator[tuple[int, np.ndarray]], squares: np.ndarray
) -> None:
    """Sum arrays until none is left.

    Threads that share the iterator share the work: a task for each array costs a tenth
    more. One thread sums the whole of an array, so it rounds alike.
    """
    for i, values in remaining:
        squares[i] = _square(values)
