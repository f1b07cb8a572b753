"""Use trained models: predict, decide, evaluate, export."""
