"""Serve trained models on this machine: a page in the browser, and predictions by HTTP."""
