"""Run CPython's own mixins for executors on JailExecutor; a program for test_executor_suite.py.

    python executor_suite.py FOLDER CASE

FOLDER holds a copy of ``test_concurrent_futures`` named ``cpython_futures`` and one of shared_event.py;
the workers read it, too. Prints one line of JSON: which tests ran, and what became of those that did
not pass.
"""

from __future__ import annotations

import importlib
import json
import sys
import unittest
from typing import Any

from visruntime import JailExecutor, JailPolicy

SUITE = "cpython_futures"
NEEDS_NAME = "imports the class from concurrent.futures by its name; test_executor.py has the same"

# Case: module of the suite since 3.12, name of the mixin, what is left out of it and why.
CASES: dict[str, tuple[str, str, dict[str, str]]] = {
    "tasks": (
        "executor",
        "ExecutorTest",
        {
            "test_free_reference": "its results are objects of a class of its own, and those never "
            "come out of a worker; test_executor.py has the same with sets",
            "test_swallows_falsey_exceptions": "wants exceptions of classes of its own; the same",
        },
    ),
    "shutdown": (
        "test_shutdown",
        "ExecutorShutdownTest",
        {
            "test_interpreter_shutdown": NEEDS_NAME,
            "test_submit_after_interpreter_shutdown": NEEDS_NAME,
            "test_hang_gh83386": NEEDS_NAME,
        },
    ),
    "wait": ("test_wait", "WaitTests", {}),
    "as_completed": ("test_as_completed", "AsCompletedTests", {}),
    "initializer": ("test_init", "InitializerMixin", {}),
    "failing_initializer": ("test_init", "FailingInitializerMixin", {}),
    "processes": (
        "test_process_pool",
        "ProcessPoolExecutorTest",
        dict.fromkeys(
            (
                "test_killed_child",
                "test_max_tasks_early_shutdown",
                "test_max_tasks_per_child",
                "test_max_tasks_per_child_defaults_to_spawn_context",
                "test_idle_process_reuse_one",
                "test_idle_process_reuse_multiple",
                "test_saturation",
                "test_python_finalization_error",
                "test_force_shutdown_workers",
                "test_force_shutdown_workers_dead",
                "test_force_shutdown_workers_not_started_yet",
                "test_force_shutdown_workers_stops_pool",
                "test_force_shutdown_workers_invalid_op",
                # Since 3.14.
                "test_kill_workers",
                "test_terminate_workers",
                "test_force_shutdown_workers_dead_workers",
                "test_force_shutdown_during_max_tasks_worker_exit",
                "test_failed_worker_replacement_breaks_pool",
                "test_gc_during_max_tasks_worker_exit_gh152967",
                "test_max_tasks_per_child_pending_tasks_gh115634",
                "test_shutdown_no_wait_max_tasks_gh119592",
            ),
            "looks into ProcessPoolExecutor's own _processes, or its threads",
        )
        | {
            "test_traceback": "wants multiprocessing's class as the cause; ours is GuestError",
            "test_traceback_when_child_process_terminates_abruptly": "wants BrokenProcessPool",
            "test_broken_process_pool_traceback": "the same",
            "test_ressources_gced_in_workers": "needs a multiprocessing.Manager over the boundary",
            "test_max_workers_too_large": "Windows only",
        },
    ),
}
# Not reused at all: FutureTests (of Future itself, which JailExecutor takes as it is); the tests of
# ThreadPoolExecutor alone (their functions share memory with the caller); ProcessPoolShutdownTest
# and ExecutorDeadlockTest (of ProcessPoolExecutor's own pipes, queues and threads).


class Recorded(unittest.TextTestResult):
    """Keeps the name of each test that passed."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.passed: list[str] = []

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 (unittest's name)
        """Keep the name."""
        super().addSuccess(test)
        self.passed.append(test.id().rpartition(".")[2])


def load(module: str) -> Any:
    """Import a module of the suite; before 3.12 it was a single one."""
    suite = importlib.import_module(SUITE)
    return importlib.import_module(f"{SUITE}.{module}") if hasattr(suite, "__path__") else suite


def main(folder: str, case: str) -> None:
    """Make a class of the mixin as CPython does for its own executors, and run it."""
    sys.path.insert(0, folder)
    policy = JailPolicy(read=[folder])

    def executor_type(max_workers: int | None = None, **arguments: Any) -> JailExecutor:
        def prepare(runtime: Any) -> None:
            runtime.exec(f"import sys; sys.path.insert(0, {folder!r})")

        return JailExecutor(policy, max_workers, prepare=prepare, **arguments)

    shared = load("util")
    module, name, left_out = CASES[case]
    mixin = getattr(load(module), name)
    event = importlib.import_module("shared_event").Event
    body = {
        "executor_type": staticmethod(executor_type),
        "create_event": lambda _: event(folder),  # which the mixins ask for since 3.14
    }
    ours = type("JailMixin", (shared.ExecutorMixin,), body)
    made = type(f"Jail{name}", (mixin, ours, shared.BaseTestCase), {})
    loader = unittest.TestLoader()
    if case == "processes":  # the others of its base are the case «tasks»
        names = [n for n in loader.getTestCaseNames(made) if n in vars(mixin)]
    else:
        names = list(loader.getTestCaseNames(made))
    chosen = [n for n in names if n not in left_out]
    runner = unittest.TextTestRunner(sys.stderr, resultclass=Recorded)
    result: Any = runner.run(unittest.TestSuite(made(n) for n in chosen))
    wrong = [*result.failures, *result.errors, *result.skipped]
    report = {
        "chosen": chosen,
        "passed": result.passed,
        "wrong": {str(test): text for test, text in wrong},
    }
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
