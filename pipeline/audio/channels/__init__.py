"""Assignment of parties to channels: layout, alignment of two files, and bleed between the channels."""
