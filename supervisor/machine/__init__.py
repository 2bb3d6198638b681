"""The sans-I/O machine of one run: inputs in, commands out."""
