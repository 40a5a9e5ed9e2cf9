"""Files rewritten so that a reader of the diff sees the change and nothing else.

A conversion or a fix works on plain values; the difference of two values is a list of changes (`changes`), which are
made in the text where it is possible (`text`), so that comments, order, quotes and blank lines of everything else stay
byte for byte. Where nodes are shared by anchors, ruamel.yaml's round trip takes over (`roundtrip`). Whatever way was
taken, the result is read again and must be exactly the wanted value (`rewrite`).
"""
