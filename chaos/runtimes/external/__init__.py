"""A cluster that somebody else runs, behind links of ours; its containers may be hurt."""
