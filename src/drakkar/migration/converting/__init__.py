"""From extended resources of a device plugin to claims, or to classes that stand behind the old names (KEP-5004).

A plan is made of plain values: every object of the input gets a wanted value and notes that say what was kept, what
changed, what lost its meaning, what somebody has to do by hand, and what is refused, each with a code and a place.
Nothing is dropped silently: what has no equal in the new world is refused, unless the loss is accepted by its code.
"""
