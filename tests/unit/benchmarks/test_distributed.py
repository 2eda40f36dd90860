"""The parts of the benchmark of processes that compute: efficiencies, the fit, the plan, the tables. No process is started."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.distributed import __main__ as benchmark
from benchmarks.distributed.plan import Measured, Model, Step, fit, plan_table, scaling_table

SIZES = (64, 4096, 2**20, 2**23)


def test_the_time_of_a_sum_is_that_of_messages_and_bytes() -> None:
    model = Model(alpha=2.0, beta=0.5)
    assert model.seconds(2, 100) == 2 * 1 * 2.0 + 2 * 0.5 * 100 * 0.5
    assert model.seconds(8, 80) == 2 * 3 * 2.0 + 2 * 7 / 8 * 80 * 0.5


def test_a_fit_finds_the_model_of_times_that_follow_it() -> None:
    model = Model(3e-6, 2e-10)
    found = fit(Measured(n, b, model.seconds(n, b)) for n in (1, 2, 4) for b in SIZES if n > 1)
    np.testing.assert_allclose((found.alpha, found.beta), (3e-6, 2e-10), rtol=1e-9)


def test_a_fit_of_noisy_times_is_near_and_never_negative() -> None:
    model, rng = Model(3e-6, 2e-10), np.random.default_rng(0)
    found = fit(Measured(2, b, model.seconds(2, b) * rng.uniform(0.9, 1.1)) for b in SIZES * 5)
    assert 2.5e-6 < found.alpha < 3.5e-6 and 1.6e-10 < found.beta < 2.4e-10
    flat = fit([Measured(2, 64, 2e-6), Measured(2, 2**20, 1e-6)])
    assert flat.alpha > 0 and flat.beta == 0
    straight = fit([Measured(2, 100, 1e-7), Measured(2, 1000, 2e-6)])
    assert straight.alpha == 0 and straight.beta > 0


def test_a_fit_needs_two_sizes_on_more_than_one_rank() -> None:
    for rows in ([Measured(2, 64, 1e-6)], [Measured(1, 64, 1e-6), Measured(1, 128, 1e-6)]):
        with pytest.raises(ValueError, match="two sizes on more than one rank"):
            fit(rows)


def test_efficiency_is_the_rate_over_that_of_as_many_single_ranks() -> None:
    rows = scaling_table([Step("m", "weak", 1, 64, 0.064, 0.0), Step("m", "weak", 2, 128, 0.08, 0.2)])
    assert rows == [
        ["m", "weak", 1, 64, "64.00", 1000, "100 %", "0 %"], ["m", "weak", 2, 128, "80.00", 1600, "80 %", "20 %"]
    ]  # fmt: skip


def test_a_plan_adds_the_sum_to_the_step_or_hides_it_behind_the_backward_pass() -> None:
    (line,) = plan_table(Model(0.0, 1e-3), {"m": (10, 3.0, 1000)}, [2])
    assert line == ["m", 2, "1000.00", round(20 / 4), "75 %", "100 %"]
    (line,) = plan_table(Model(0.0, 1e-3), {"m": (10, 3.0, 4000)}, [2])
    assert line[-2:] == [f"{100 * 3 / 7:.0f} %", f"{100 * 3 / 5:.0f} %"]


def test_all_tables_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    model = Model(3e-6, 2e-10)
    found = {
        n: {
            "steps": [
                {"model": "m", "mode": "weak", "examples": 64 * n, "seconds": 0.01, "share": 0.1, "nbytes": 1000}
            ],
            "collectives": [
                {"name": "psum", "nbytes": b, "nnc": model.seconds(n, b), "mpi4py": model.seconds(n, b) / 2}
                for b in SIZES if n > 1
            ],
        }
        for n in (1, 2)
    }  # fmt: skip
    benchmark.report(found)
    printed = capsys.readouterr().out
    assert "3.00 µs a message, 5.00 GB/s" in printed and "1,024" in printed and "2.00" in printed


def test_a_plan_is_refused_without_one_and_two_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        benchmark.main(["--ranks", "1,4"])
    assert "needs --ranks with 1 and 2" in capsys.readouterr().err
