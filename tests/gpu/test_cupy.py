"""Arrays and products of CuPy, where there is a device."""

import numpy as np
import pytest

pytest.importorskip("numba.cuda.core", reason="numba-cuda is not installed")
cupy = pytest.importorskip("cupy")

import succinct
import succinct_gpu as sg
from succinct import KeyTable, StepMap


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_search_from_hidden_states(dtype):
    if not sg.is_available():
        pytest.skip("no CUDA device")
    generator = np.random.default_rng(1)
    index = StepMap.build(KeyTable.from_rows(generator.integers(0, 300, (2000, 3))))
    weight = generator.standard_normal((300, 64)).astype(dtype)
    device, head, workspace = sg.to_device(index), cupy.asarray(weight), sg.Workspace()
    states, scores = np.full((2, 1), index.root), np.zeros((2, 1), np.float32)
    for step, projection in enumerate(("band", "full", "selective")):
        hidden = generator.standard_normal((*states.shape, 64)).astype(dtype)
        expected = succinct.filter_step(hidden, weight, index, states, scores, 20)
        given = (cupy.asarray(array) for array in (hidden, states, scores))
        vectors, places, values = given
        found = sg.filter_step(vectors, head, device, places, values, 20, projection,
                               step=step, workspace=workspace)  # fmt: skip
        width = found.scores.shape[1]
        states, scores, _, _ = expected.padded(width)
        np.testing.assert_allclose(cupy.asarray(found.scores).get(), scores, atol=2e-4)
