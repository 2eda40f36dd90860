"""Generated programs on the stand-in for a device of CUDA, where kernels, libraries and the host take turns."""

from __future__ import annotations

import pytest

from nnc.testing import fuzz


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "programs"), [("cuda", 12), ("eager cuda", 6), ("cuda vjp", 6)])
def test_generated_programs_have_the_results_of_references(mode: str, programs: int) -> None:
    report = fuzz.run(programs=programs, seed=28, modes=[mode], imports=["tests.devices.cuda.stand_in"], findings=1)
    assert not report.findings, report.findings[0]
    assert report.checks[mode] > programs // 2
