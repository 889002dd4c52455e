"""Run the jobs of a plan on Dask, each under its lock; their outcomes come as they end."""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator

from lib.batch import kernel, locks
from lib.batch.job import Job, Outcome, in_words
from lib.batch.plan import Plan, UsageError
from lib.budget import Budget


def execute(
    plan: Plan,
    scheduler: str | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    minutes: float | None = None,
) -> Iterator[Outcome]:
    """The outcomes of the jobs to run, in the order in which they end.

    scheduler: a Dask scheduler's address, None for this machine's cores. workers: notebooks at a
    time. timeout: the longest seconds for one cell. minutes: when no further notebook starts; the
    jobs that still wait have no outcome. A job stays locked until the next outcome is asked for, so
    what is done with its figures is done under the lock. Raises UsageError where no scheduler
    answers.
    """
    from dask.system import CPU_COUNT
    from distributed import as_completed
    from tqdm import tqdm

    budget = Budget(minutes)
    if not plan.todo:
        return
    workers = min(workers or CPU_COUNT, len(plan.todo))
    threads = None if scheduler else max(1, CPU_COUNT // workers)
    with contextlib.ExitStack() as stack:
        try:
            client = _connect(scheduler, workers, stack)
            quiet = not sys.stderr.isatty()
            bar = stack.enter_context(tqdm(total=len(plan.todo), leave=False, disable=quiet))
            held, futures, waiting = {}, {}, list(plan.todo)
            running = as_completed()
            while waiting or futures:
                # With minutes no more are started than run at once: what waits can still be left.
                free = len(waiting) if minutes is None else workers - len(futures)
                late = budget.spent() and len(waiting) < len(plan.todo)  # the first always start
                for job in waiting[: 0 if late else free]:
                    waiting.remove(job)
                    try:
                        held[job.notebook] = locks.acquire(job)
                    except (locks.Held, OSError) as error:
                        words = str(error) if isinstance(error, locks.Held) else in_words(error)
                        yield Outcome(job, 0.0, words)
                        continue
                    stack.callback(held[job.notebook].release)
                    order = {"pure": False, "priority": -plan.todo.index(job)}
                    future = client.submit(kernel.run, job, threads, timeout, **order)
                    futures[future] = job
                    running.add(future)
                if not futures:
                    if late:
                        return
                    continue
                future = next(running)
                outcome = _outcome(future, futures.pop(future))
                yield outcome
                held[outcome.job.notebook].release()
                bar.update()
        except KeyboardInterrupt:
            stop()


def stop() -> None:
    """End this process, its workers and their kernels at once, with status 130.

    Kernels lie in sessions of their own and get no Ctrl-C; Dask would wait for running notebooks
    and report each worker it misses.
    """
    import psutil

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    words = "Interrupted; what is finished stays, the rest runs next time."
    print(words, file=sys.stderr, flush=True)
    os._exit(130)


def _outcome(future, job: Job) -> Outcome:
    if future.status == "finished":
        return future.result()
    if future.status in ("cancelled", "lost"):
        return Outcome(job, 0.0, "the scheduler was lost")
    return Outcome(job, 0.0, f"the worker was lost ({type(future.exception()).__name__})")


def _connect(scheduler: str | None, workers: int, stack: contextlib.ExitStack):
    import dask
    from distributed import Client, LocalCluster

    # A worker that died is not tried again: the notebook that took its memory would take the next
    # one's too.
    quiet = {"distributed.logging.distributed": "critical"}
    dask.config.set({"distributed.scheduler.allowed-failures": 0, **quiet})
    # Of a scheduler that dies, `_outcome` tells in a sentence what asyncio would in forty lines.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    if scheduler:
        try:
            return stack.enter_context(Client(scheduler, timeout=10))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"no Dask scheduler answers at {scheduler} ({type(error).__name__})"
            ) from None
    # The memory is in the kernels, which Dask does not see; port 0 since another batch may run on
    # this machine.
    options = {
        "threads_per_worker": 1,
        "dashboard_address": ":0",
        "memory_limit": 0,
        "silence_logs": 60,
    }
    with _interrupts_held_back():
        cluster = stack.enter_context(LocalCluster(n_workers=workers, processes=True, **options))
    return stack.enter_context(Client(cluster))


@contextlib.contextmanager
def _interrupts_held_back():
    """Processes started in here never see Ctrl-C; this one does, afterwards.

    The terminal sends it to the whole group. Workers would each print a traceback before `stop`
    ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
