"""A machine with GPUs that is not there: profiles, the mock of NVML, the mock host."""
