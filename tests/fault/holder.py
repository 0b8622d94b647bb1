#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A process that holds one thing that CRIU cannot dump by default."""
import ctypes
import os
import socket
import stat
import sys
import time

kind = sys.argv[1]
if kind == "io_uring":
    libc = ctypes.CDLL(None, use_errno=True)
    params = ctypes.create_string_buffer(120)
    held = libc.syscall(425, 4, params)  # io_uring_setup
    if held < 0:
        print(f"cannot: io_uring_setup: {os.strerror(ctypes.get_errno())}", flush=True)
        sys.exit(1)
elif kind == "device":
    # A character device whose major CRIU has no handler for: a console's memory, or cpuid.
    held = None
    for device in ((7, 0), (203, 0), (254, 0)):
        path = f"/dev/gpucr-test-{os.getpid()}"
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(*device))
            held = os.open(path, os.O_RDONLY)
        except OSError as error:
            why = error
        if os.path.exists(path):
            os.unlink(path)
        if held is not None:
            break
    if held is None:
        print(f"cannot: no character device to hold: {why}", flush=True)
        sys.exit(1)
elif kind == "tcp":
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
print("ready", flush=True)
while True:
    time.sleep(0.1)
