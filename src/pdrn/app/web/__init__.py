"""The page behind ``pdrn serve``: sound in, everything that there is to hear and see out.

- `server`: the addresses; `guard`: who may ask; `limits`: how much; `wishes`: what for.
- `answering`: one request; `workshop`: processes that do the work; `conversing` and `tasks`: what they do.
- `methods`: what there is to choose from; `live`: the microphone.
- `static/`: the page itself.
"""
