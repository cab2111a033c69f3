"""Dense captions for training rows, from a model: `vtgrl data caption` and docs/captions.md.

clips     which clips have to be asked about: one request a clip, not a question
parse     an answer -> captions: strict about form, times clipped and ordered
frames    a clip -> a chat message with frames and their times
http      one POST; pace: rate, backoff, Retry-After; dialect: what a server does not take; chat: all of it, one answer
remote    many clips at a time from a server (a local model: vtgrl/rollout/caption.py)
journal   what is done, line by line: the next run goes on from it
run       rows in, captioned rows out
"""
