"""Training: the loop, run folders that can be resumed, and the use of trained models."""
