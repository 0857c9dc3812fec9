"""Questions about history: blame, log filters, search, bisection, statistics. Layer: repository."""
