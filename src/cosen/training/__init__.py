"""Training: a visible loop, run folders that survive, and what is done with a trained model."""
