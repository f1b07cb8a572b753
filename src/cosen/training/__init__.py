"""Training: the loop, the run folders, and model files."""
