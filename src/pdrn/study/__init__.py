"""The study: a corpus in, tables out."""
