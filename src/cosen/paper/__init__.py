"""Code for reproducing the paper only: protocols, presets, tables, figures, the results page."""
