"""Long runs of generated input, each one documented command; the suite has a short seeded run of each."""
