"""Languages: which one is spoken where, and what is known of each (`packs/`)."""
