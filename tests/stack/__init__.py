"""The service on several hosts: network namespaces of this machine, each with its processes and its data directory.

`make stack` runs it. It needs iproute2 and util-linux, and no rights beyond a user's own (`unshare`).
"""
