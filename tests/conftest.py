"""What holds for every test: no property test fails for being slow, since speed is measured by `make bench`."""

from hypothesis import HealthCheck, settings

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
