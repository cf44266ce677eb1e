# Counts in a shared file under the lock `counter`, by read, pause and write, as `agent contend` does: five little-endian numbers, which
# are the count, the process that counted last, the changes of process, the process inside, and whether two were inside.
import os
import struct
import sys
import time

import redis

path, rounds, url = sys.argv[1:]
lock = redis.Redis.from_url(url).lock("counter", timeout=30, sleep=0.001, thread_local=False)
file = os.open(path, os.O_RDWR)
me = os.getpid()


def write(place, value):
    os.pwrite(file, struct.pack("<Q", value), 8 * place)


for _ in range(int(rounds)):
    with lock:
        count, last, changes, inside, _ = struct.unpack("<5Q", os.pread(file, 40, 0))
        if inside != 0:
            write(4, 1)
        write(3, me)
        time.sleep(0.00005)
        write(0, count + 1)
        write(1, me)
        write(2, changes + (last != me))
        write(3, 0)
