#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""A process that holds one thing that CRIU cannot dump by default."""
import ctypes
import os
import socket
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
    # A character device whose major CRIU has no handler for.
    path = next((p for p in ("/dev/rtc0", "/dev/nvram", "/dev/ppp", "/dev/vfio/vfio", "/dev/kvm")
                 if os.path.exists(p) and os.major(os.stat(p).st_rdev) not in (1, 4, 5, 10)), None)
    if not path:
        path = "/dev/gpucr-test-%d" % os.getpid()
        try:
            os.mknod(path, 0o600 | 0o020000, os.makedev(29, 0))
            held = os.open(path, os.O_RDONLY)
        except OSError as error:
            if os.path.exists(path):
                os.unlink(path)
            print(f"cannot: no character device to hold: {error}", flush=True)
            sys.exit(1)
        os.unlink(path)
    else:
        held = os.open(path, os.O_RDONLY)
elif kind == "tcp":
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    peer, _ = server.accept()
print("ready", flush=True)
while True:
    time.sleep(0.1)
