"""Names for commits: branches, tags and revisions. Layer: repository."""
