"""What is known of each boundary a device passes: inventory, allocation, preparation, injection.

`snapshot` holds everything known at one moment, `take` reads it from a cluster, `bundle` from a folder, `captures` from
what a node showed, and `records` turns it into one proof per claim UID, node and device.
"""
