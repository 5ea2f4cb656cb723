"""What every test shares: eight virtual CPU devices, and how many examples hypothesis draws."""

import os

# Before any test imports jax: the devices are counted once, when its first backend starts.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
).strip()

from hypothesis import HealthCheck, settings

# How fast examples are drawn depends on what else the machine does: no reason to fail.
slow_is_well = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("few", max_examples=20, **slow_is_well)
settings.register_profile("fast", max_examples=100, **slow_is_well)
settings.register_profile("full", max_examples=10_000, **slow_is_well)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
