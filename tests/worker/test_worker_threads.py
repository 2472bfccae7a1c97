"""Numeric libraries in a worker start as many threads as it has processors."""

from __future__ import annotations

import os

import pytest

import visruntime as vr
from visruntime._worker.threads import THREAD_VARIABLES, thread_variables

pytestmark = pytest.mark.one_uid

HERE = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("limits", "threads"),
    [
        (vr.Limits(cpus=0.5), 1),
        (vr.Limits(cpus=1.0), 1),
        (vr.Limits(cpus=1.5), min(2, HERE)),
        (vr.Limits(cpus=1000.0), HERE),
        (vr.Limits(processes=4), 1),
        (vr.Limits(processes=None), HERE),
    ],
)
def test_the_limits_decide_how_many(limits: vr.Limits, threads: int) -> None:
    """Never more than the jail's processors, nor so many that its processes are used up."""
    assert thread_variables(limits, ()) == dict.fromkeys(THREAD_VARIABLES, str(threads))


def test_what_is_given_stays() -> None:
    """The caller's own number is not replaced, by whichever way it came."""
    assert "OMP_NUM_THREADS" not in thread_variables(vr.Limits(), {"OMP_NUM_THREADS"})
    policy = vr.JailPolicy(env={"OMP_NUM_THREADS": "7"})
    code = f"import os\n[os.environ.get(name) for name in {THREAD_VARIABLES!r}]"
    with vr.Runtime(policy, env={"MKL_NUM_THREADS": "9"}) as runtime:
        openblas, openmp, mkl, numexpr = runtime.run(code).value
    expected = thread_variables(policy.limits, ())["OPENBLAS_NUM_THREADS"]
    assert (openblas, openmp, mkl, numexpr) == (expected, "7", "9", expected)
