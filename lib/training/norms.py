"""Norms of many tensors at once, with sums in float64."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import torch
from torch import Tensor

# For fewer numbers than this, one thread is faster than starting several threads.
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
        The tensors t, all on the same device.

    Returns
    -------
    Tensor (tensors,)
        For each tensor, the Euclidean norm ‖t‖ of all its entries, in float64 (or in
        float32 on a device without float64).

    Notes
    -----
    Squares are summed in float64. In float32, the squares of entries below 1e-23 would
    vanish, and the direction of a gradient with such entries would be lost.

    Examples
    --------
    >>> import torch
    >>> from lib.training.norms import norms
    >>> norms([torch.tensor([3.0, 4.0]), torch.tensor([1e-30])])
    tensor([5.0000e+00, 1.0000e-30], dtype=torch.float64)
    """
    # When torch sums float32 numbers in float64 on a CPU, it processes one number at a
    # time. A compiled loop is faster.
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
    """Compute the sum of squares of each flat array, (arrays,) in float64.

    If there are `MANY` numbers or more, several threads share the work.
    """
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
    """Write into `squares` the sums of the remaining arrays, until none is left.

    All threads draw from the same iterator, and so share the work. One task per array
    would take a tenth longer. Each array is summed by a single thread, so that rounding
    does not depend on the number of threads.
    """
    for i, values in remaining:
        squares[i] = _square(values)
