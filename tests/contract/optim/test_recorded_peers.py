"""Twenty steps beside recorded ones of Optax and torch.optim, for machines that have neither."""

from __future__ import annotations

import numpy as np
import pytest

from nnc import optim
from tests.contract.optim.peers import KEPT_STEPS, TORCH, flat, nnc_path, recorded_path
from tests.contract.optim.settings import ADAPTIVE_MUON, LOOSE, MUON, OPTAX, ROUGH, Make

ROWS: dict[tuple[str, str], tuple[Make, float]] = {
    **{
        ("optax", name): (make, 1e-5 if name in ROUGH else 1e-6 if name in LOOSE else 1e-10)
        for name, make in OPTAX.items()
    },
    ("optax", "muon"): (MUON, 2e-6),  # Optax's coefficients are float32
    ("optax", "adaptive muon"): (ADAPTIVE_MUON, 2e-6),
    **{("torch", name): (make, tolerance) for name, (make, _, tolerance) in TORCH.items()},
}


@pytest.mark.parametrize(("peer", "name"), ROWS)
def test_twenty_steps_lead_where_the_peer_s_did(peer: str, name: str) -> None:
    make, tolerance = ROWS[peer, name]
    ours, theirs = nnc_path(make(optim), "float64"), recorded_path(peer, name)
    np.testing.assert_allclose(np.stack([flat(ours[t]) for t in KEPT_STEPS]), theirs, tolerance, tolerance)
