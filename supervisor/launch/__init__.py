"""From a request to a run that has started."""
