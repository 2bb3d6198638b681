"""Long runs of generated input, each one documented command; the test suite has a short seeded run of each."""
