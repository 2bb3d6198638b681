"""One file a family of findings, named for the defect it finds."""
