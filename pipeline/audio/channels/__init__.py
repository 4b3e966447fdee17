"""Who is on which channel: layout, alignment of two files, and bleed of one party into the other's channel."""
