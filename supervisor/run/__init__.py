"""The shell around one machine: it does the I/O of a run."""
