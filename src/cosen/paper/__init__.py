"""Code only for reproducing the paper: protocols, presets, tables, figures, the results page."""
