"""Restoring: sound in, sound out; the one place where cells and optimisation meet.

- `method`: what a way to restore has to offer; `overlapped`: Chambolle-Pock on overlapping frames, with its
  `tuning`; `learned`: a network, from a file of one's own (`trained`) or of the package (`pretrained`);
  `averaged`: both.
- `choosing`: which of them restores a sound.
- `blockwise`: any method over signals of any length, block by block.
- `description`, `levels`: what is known about samples, and the cells that follow.
- `restorer`, `stream`, `recording`: arrays, chunks and files.
"""
