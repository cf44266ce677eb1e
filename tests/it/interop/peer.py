# Calls the methods of one redis-py Lock that stdin names, one by line; prints each result, or the name of the exception.
import sys

import redis

url, key = sys.argv[1:]
lock = redis.Redis.from_url(url).lock(key, timeout=30, blocking=False, thread_local=False)


def call(name):
    if name == "token":
        return lock.local.token.decode()
    if name == "extend":
        return lock.extend(10)
    return getattr(lock, name)()


for line in sys.stdin:
    try:
        print(call(line.strip()), flush=True)
    except Exception as error:
        print(type(error).__name__, flush=True)
