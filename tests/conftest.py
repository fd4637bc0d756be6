"""Hypothesis profiles (HYPOTHESIS_PROFILE=thorough for long runs) and shared fixtures."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", max_examples=25, deadline=None)
settings.register_profile(
    "thorough", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real catalogs, which are not part of the project: beside it, or where SHARED_DATA says."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SHARED_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no real catalogs in {folder}; SHARED_DATA can name another folder")
    return folder
