"""The page behind ``pdrn serve``: sound in, everything that there is to hear and see out.

- `server`: the addresses, `guard`: who may ask, `limits`: how much.
- `workshop`: processes that do the work, one request each; `tasks`: what they do.
- `methods`: what there is to choose from; `live`: the microphone.
- `static/`: the page itself.
"""
