"""The paper's protocols as data, and comparisons run on them."""
